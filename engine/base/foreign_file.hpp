// Checks whether other users can change a file.
#pragma once

#include <string>

#include <sys/stat.h>

namespace harmonics::engine {

// Returns "belongs to another user (number 1001)", "is writable by all users" or "is writable by its group"; "" if only
// this user and root can write to the file.
std::string foreign_access(const struct stat& file);

// Returns whether the file or folder at `path` exists, belongs to this user, and only this user and root can write to
// it.
bool is_own(const std::string& path);

}  // namespace harmonics::engine
