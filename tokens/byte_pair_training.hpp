// Training of byte-pair encoding.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokens/divisions.hpp"

namespace harmonics::tokens {

// Returns the printable character, in UTF-8, that represents a byte in byte-pair vocabularies.
std::string byte_character(uint8_t byte);

struct TrainedPairs {
  std::vector<std::string> tokens;                  // in the byte alphabet, by id
  std::vector<std::pair<int32_t, int32_t>> merges;  // pairs of ids, in order of priority
};

// Counts words, then trains on them. Results equal those of the library `tokenizers`: each step merges the most
// frequent pair, and of equally frequent ones the pair with the smallest ids.
class PairTraining {
 public:
  // Divides texts into words by GPT-2's expression.
  PairTraining();
  // Adds the words of a text in UTF-8. Each call divides its text independently. Throws ErrorKind::Weights if a word
  // occurs more than 2^31 times in total.
  void add(std::string_view text);
  uint64_t words() const { return counts_.size(); }  // distinct words
  // `special`: texts of the first tokens. Returns fewer than `size` tokens if no remaining pair occurs at least `least`
  // times.
  TrainedPairs train(size_t size, const std::vector<std::string>& special, int64_t least = 1) const;

 private:
  WordDivision division_;
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace harmonics::tokens
