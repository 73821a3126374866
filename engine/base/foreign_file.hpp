// Whether others may change a file.
#pragma once

#include <string>

#include <sys/stat.h>

namespace harmonics {

// "belongs to another user (number 1001)", "can be written to by everybody" or "... by its group"; "": only this user
// and root may.
std::string foreign_access(const struct stat& file);

}  // namespace harmonics
