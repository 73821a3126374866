// '#name': selects one of the objects in a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace harmonics {

// Returns the index of `name` in `names`; without a name, of the only one. Otherwise rejects the file and lists the
// names. `what`: kind of object, such as "array".
size_t selected(const std::string& file, const std::string& what, const std::vector<std::string>& names,
                const std::optional<std::string>& name);

// Returns "a, b, c", at most twenty of them.
std::string listed(const std::vector<std::string>& names);
// Returns the remedy for a word that is not among the learned ones.
std::string learned_words(const std::vector<std::string>& words);

}  // namespace harmonics
