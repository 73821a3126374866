// '#name': one of the things a file holds.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace harmonics {

// The place of `name` among `names`; without a name the only one there is. Else refuses the file and says which there
// are. `what` names one of them: "array".
size_t selected(const std::string& file, const std::string& what, const std::vector<std::string>& names,
                const std::optional<std::string>& name);

// "a, b, c", twenty of them at most.
std::string listed(const std::vector<std::string>& names);

}  // namespace harmonics
