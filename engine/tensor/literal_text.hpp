// Numbers and strings in the text form of programs; printed values read back exactly.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::engine {

// Shortest text that reads back as this number; contains a point, an exponent, "inf" or "nan".
std::string float_text(double value);
std::string float_text(float value);
// In double quotes; \" \\ \n \t and \xHH for other control characters.
std::string quoted(std::string_view text);
// ASCII letter or '_'.
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
// A letter or '_', then letters, digits and '_'.
bool is_word(std::string_view text);

}  // namespace harmonics::engine
