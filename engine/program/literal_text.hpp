// Numbers and strings as the text form of programs writes them: what is printed reads back exactly.
#pragma once

#include <string>
#include <string_view>

namespace harmonics {

// Shortest text that reads back as this number, always with a point, an exponent, "inf" or "nan".
std::string float_text(double value);
std::string float_text(float value);
// In double quotes; \" \\ \n \t and \xHH for other control characters.
std::string quoted(std::string_view text);
// A letter or '_', then letters, digits and '_'.
bool is_word(std::string_view text);

}  // namespace harmonics
