// Suggests the column or array name nearest to a misspelt one.
#pragma once

#include <string>
#include <vector>

namespace harmonics {

// Returns the name that differs in case only, else the nearest within a third of the word's length; "": none.
std::string near_name(const std::string& word, const std::vector<std::string>& names);
// Returns "; did you mean 'age'?", or "".
std::string meant_name(const std::string& word, const std::vector<std::string>& names);

}  // namespace harmonics
