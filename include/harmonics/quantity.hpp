// Numbers with their units, for messages.
#pragma once

#include <string>
#include <string_view>

namespace harmonics {

// Returns "1 byte" or "2 bytes". `several` is the plural, if it is not `one` with an s.
template <typename Integer>
std::string quantity(Integer number, std::string_view one, std::string_view several = {}) {
  std::string text = std::to_string(number) + " ";
  if (number != 1 && !several.empty()) return text.append(several);
  text.append(one);
  return number == 1 ? text : text + "s";
}

}  // namespace harmonics
