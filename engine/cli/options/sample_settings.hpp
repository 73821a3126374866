// Settings for texts that a language model generates during its training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/language/tokenizer.hpp"

namespace harmonics::engine::cli {

struct SampleSettings {
  int64_t every = 0;  // interval in steps
  std::vector<std::string> prompts;
  int64_t tokens = 64;
  double temperature = 0.8;  // 0: always the most likely token
  std::shared_ptr<const Tokenizer> tokenizer;
};

}  // namespace harmonics::engine::cli
