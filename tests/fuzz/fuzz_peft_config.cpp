// Any input is a PEFT configuration or an error, and a module's name or not.
#include <cmath>

#include "engine/transformer/adapter_names.hpp"
#include "engine/transformer/peft_adapter.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  const std::string_view text(exact.data(), size);
  const std::string weight = weight_of_module(text);
  require(weight.empty() || weight.ends_with(".weight"), "a weight without its ending");
  return refusing([&] {
    const PeftConfig config = parse_peft_config(text, "input");
    require(std::isfinite(config.alpha), "an alpha that is not finite");
    for (const auto& [pattern, alpha] : config.alphas)
      require(!pattern.empty() && std::isfinite(alpha), "a pattern without a value");
    require(std::isfinite(config.scale("model.layers.0.self_attn.q_proj", 1)), "a scale that is not finite");
  });
}
