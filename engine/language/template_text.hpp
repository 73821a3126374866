// Strings with the semantics of Python: positions count characters, and white space is that of Unicode.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/language/template_budget.hpp"

namespace harmonics::engine::jinja {

// A set of characters. Whether it has one takes no time that grows with the set.
class CharacterSet {
 public:
  CharacterSet(Budget& budget, std::string_view characters);
  bool has(char32_t character) const;

 private:
  std::bitset<128> ascii_;
  std::vector<char32_t> others_;  // sorted
};

// A text to look for, in time proportional to the text that is searched. Refers to `part`, which must not be empty.
class Needle {
 public:
  Needle(Budget& budget, std::string_view part, bool from_right = false);
  // The first place at or behind `from`, or the last one if from_right; npos: none. Counts the search.
  size_t find(std::string_view text, size_t from = 0) const;
  size_t size() const { return part_.size(); }

 private:
  size_t look_short(std::string_view text) const;
  size_t look(std::string_view text) const;
  char at(size_t i) const { return from_right_ ? part_[part_.size() - 1 - i] : part_[i]; }

  Budget& budget_;
  std::string_view part_;
  bool from_right_;
  std::vector<uint32_t> borders_;  // of Knuth, Morris and Pratt; none for a short text
};

size_t characters_in(std::string_view text);
// Returns the characters first .. last-1. Positions after the end are clamped.
std::string_view characters(std::string_view text, int64_t first, int64_t last);
// Removes white space, or the characters in `which`, at one or both ends.
std::string_view stripped(std::string_view text, bool left, bool right, const CharacterSet* which = nullptr);
// Splits at white space, without empty parts. `most` is the maximum number of splits, the last ones if from_right;
// negative: no limit. White space after the last split is kept.
std::vector<std::string_view> split_words(std::string_view text, int64_t most, bool from_right);
// Splits at the separator, which is searched from the side that it was made for.
std::vector<std::string_view> split_at(std::string_view text, const Needle& separator, int64_t most, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool with_ends);
size_t count_of(std::string_view text, const Needle& part);  // that do not overlap; not from the right
// These change ASCII letters only.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
std::string capitalised(std::string_view text);
std::string title_case(std::string_view text, bool words_of_letters);

}  // namespace harmonics::engine::jinja
