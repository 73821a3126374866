// Any input is a config.json or an error. Its metadata is written as a config.json that parses to the same metadata.
#include "plugins/huggingface/exported_config.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  return refusing([&] {
    const huggingface::Config config = huggingface::read_config({exact.data(), size}, "config.json");
    const std::string text = huggingface::config_text(
        config.metadata, *config.architecture, {config.tied, false, config.switches, config.rope_factors, "float32"});
    require(!text.empty(), "no text");
  });
}
