// Any text is adapter settings, or an error.
#include <cmath>

#include "engine/transformer/lora_settings.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  return refusing([&] {
    const LoraSettings settings = parse_lora({exact.data(), exact.size()});
    require(settings.rank >= 1 && std::isfinite(settings.factor()) && settings.factor() > 0, "a factor of nothing");
    require(settings.dropout >= 0 && settings.dropout < 1, "all is dropped");
    for (const std::string& target : settings.targets) require(!target.empty(), "a target without a name");
  });
}
