// Formats numbers and strings for the text form of programs. Parsing the text gives the same value.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::engine {

// Returns the shortest text that parses to this number. It contains a point, an exponent, "inf" or "nan".
std::string float_text(double value);
std::string float_text(float value);
// Returns the text in double quotes, with the escapes \" \\ \n \t, and \xHH for other control characters.
std::string quoted(std::string_view text);
// Returns whether the character is an ASCII letter or '_'.
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
// Returns whether the text is a letter or '_', followed by letters, digits and '_'.
bool is_word(std::string_view text);

}  // namespace harmonics::engine
