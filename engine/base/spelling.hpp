// Lists of words, and "did you mean": the known words nearest to a misspelled one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

// Damerau-Levenshtein distance (adjacent swaps count one).
size_t edit_distance(std::string_view a, std::string_view b);
// Returns the known words that `word` may mean: the same without regard to case, else its synonyms, else the nearest
// one within a third of its length (at least 1), ties by order. Only synonyms can be several.
std::vector<std::string> meant_by(std::string_view word, const std::vector<std::string>& known);
// Returns the first of them.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);
// Returns "did you mean 'cuda' or 'opencl'?", or "" if no word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// "1 example", "2,000 examples": a number and a word whose plural ends in s.
std::string number_of(uint64_t number, std::string_view one);

// "a, b, c"
std::string comma_separated(const std::vector<std::string>& words);

// Words of other programs and their names here. A row applies if the name is one of the known words.
struct Synonym {
  std::string_view word, name;
};
const std::vector<Synonym>& synonyms();

}  // namespace harmonics::engine
