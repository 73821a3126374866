// LoRA adapters as the library PEFT of Hugging Face saves them.
#pragma once

#include <string>
#include <string_view>

#include "engine/transformer/adapter.hpp"

namespace harmonics::engine {

// adapter_config.json: what the scale of a module follows from.
struct PeftConfig {
  double alpha = 0;
  bool by_root = false;                  // use_rslora: divided by the root of the rank
  std::map<std::string, double> alphas;  // alpha_pattern: by the end of a module's name
  bool of_down_projections = false;      // target_parameters: stacks of experts have one for each of these

  double scale(const std::string& module, int64_t rank) const;
  double alpha_of(const std::string& module) const;
};

// Throws ErrorKind::Weights, with `path`, for JSON that is malformed or has a setting that adapters here refuse, such
// as biases.
PeftConfig parse_peft_config(std::string_view text, const std::string& path);
// Reads a folder; see read_adapter().
Adapter read_peft_adapter(const AdapterFile& file, const ResolvedSpec& resolved);

}  // namespace harmonics::engine
