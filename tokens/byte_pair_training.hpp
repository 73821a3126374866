// Training of byte pairs: the merges that shorten a text most.
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

// A byte as vocabularies of byte pairs write it: one printable character, in UTF-8.
std::string byte_character(uint8_t byte);

struct TrainedPairs {
  std::vector<std::string> tokens;                  // texts in the byte alphabet, by id
  std::vector<std::pair<int32_t, int32_t>> merges;  // ids of their parts, the first to be joined first
};

// Counts the words of texts, then trains on them. Gives the merges that the library `tokenizers` gives: always the most
// frequent pair, of equal ones the one of the smallest ids.
class PairTraining {
 public:
  // Words as GPT-2 divides them.
  PairTraining();
  // A text in UTF-8; lines that are added one by one are divided one by one. Texts of more than 2^31 equal words in all
  // are refused: ErrorKind::Weights.
  void add(std::string_view text);
  uint64_t words() const { return counts_.size(); }  // different ones
  // `special`: texts of tokens that come first. Ends with fewer than `size` tokens if no pair is left that occurs at
  // least `least` times.
  TrainedPairs train(size_t size, const std::vector<std::string>& special, int64_t least = 1) const;

 private:
  WordDivision division_;
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace harmonics::tokens
