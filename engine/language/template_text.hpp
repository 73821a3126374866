// Strings with the semantics of Python: positions count characters, and white space is that of Unicode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine::jinja {

size_t characters_in(std::string_view text);
// Returns the characters first .. last-1. Positions after the end are clamped.
std::string_view characters(std::string_view text, int64_t first, int64_t last);
// Removes white space, or the characters in `which`, at one or both ends.
std::string_view stripped(std::string_view text, bool left, bool right, const std::string* which = nullptr);
// Splits at white space, without empty parts. `most` is the maximum number of splits, the last ones if from_right;
// negative: no limit. White space after the last split is kept.
std::vector<std::string_view> split_words(std::string_view text, int64_t most, bool from_right);
// Splits at `separator`, which must not be empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most,
                                       bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool with_ends);
size_t count_of(std::string_view text, std::string_view part);  // non-overlapping; `part` must not be empty
// These change ASCII letters only.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
std::string capitalised(std::string_view text);
std::string title_case(std::string_view text, bool words_of_letters);

}  // namespace harmonics::engine::jinja
