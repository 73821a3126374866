// LoRA adapters in the format of Hugging Face's PEFT library.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/transformer/adapter.hpp"

namespace harmonics::engine {

// Contents of adapter_config.json that determine the scale of a module.
struct PeftConfig {
  double alpha = 0;
  bool by_root = false;                                // use_rslora: divide alpha by the square root of the rank
  std::vector<std::pair<std::string, double>> alphas;  // alpha_pattern: by suffix of the module's name; the first fits
  bool of_down_projections = false;  // target_parameters includes down_proj, which the outer module then adapts

  double scale(const std::string& module, int64_t rank) const;
  double alpha_of(const std::string& module) const;
};

// Throws ErrorKind::Weights, with `path`, for malformed JSON and for unsupported settings, such as biases.
PeftConfig parse_peft_config(std::string_view text, const std::string& path);
// Reads a folder; see read_adapter().
Adapter read_peft_adapter(const AdapterFile& file, const ResolvedSpec& resolved);

}  // namespace harmonics::engine
