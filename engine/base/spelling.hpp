// Lists of words, and "did you mean": the known words nearest to a misspelled one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

// Returns the Levenshtein distance in which a swap of adjacent characters counts one.
size_t edit_distance(std::string_view a, std::string_view b);
// Returns the known words that `word` may mean: the one that differs only in case, else its synonyms, else the first
// with the smallest edit distance, up to a third of the length of `word` (at least 1). Only synonyms give several.
std::vector<std::string> meant_by(std::string_view word, const std::vector<std::string>& known);
// Returns the first word of meant_by().
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);
// Returns "did you mean 'cuda' or 'opencl'?", or "" if no word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// Formats a number and a noun whose plural ends in s: "1 example", "2,000 examples".
std::string number_of(uint64_t number, std::string_view one);

// Returns "a, b, c".
std::string comma_separated(const std::vector<std::string>& words);

// A word of other programs and its equivalent here. It is used only where `name` is among the known words.
struct Synonym {
  std::string_view word, name;
};
const std::vector<Synonym>& synonyms();

}  // namespace harmonics::engine
