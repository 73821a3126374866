// Checks whether other users can change a file.
#pragma once

#include <string>

#include <sys/stat.h>

namespace harmonics::engine {

// Returns "belongs to another user (number 1001)", "can be written to by everybody" or "... by its group", or "" if
// only this user and root have access.
std::string foreign_access(const struct stat& file);

}  // namespace harmonics::engine
