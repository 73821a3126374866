#include "engine/base/foreign_file.hpp"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

namespace harmonics::engine {

namespace {

// Returns whether the user is the only member of the group. Debian and others create such a group for each user, and
// new files are writable by it.
bool is_private_group(gid_t gid) {
  const passwd* user = getpwuid(geteuid());
  if (!user || user->pw_gid != gid) return false;
  const std::string name = user->pw_name;
  const group* g = getgrgid(gid);
  return g && name == g->gr_name && (!g->gr_mem[0] || (name == g->gr_mem[0] && !g->gr_mem[1]));
}

}  // namespace

std::string foreign_access(const struct stat& file) {
  if (file.st_uid != geteuid() && file.st_uid != 0)
    return "belongs to another user (number " + std::to_string(file.st_uid) + ")";
  if (file.st_mode & S_IWOTH) return "is writable by all users";
  if ((file.st_mode & S_IWGRP) && file.st_gid != 0 && !is_private_group(file.st_gid)) return "is writable by its group";
  return "";
}

bool is_own(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && s.st_uid == ::geteuid() && foreign_access(s).empty();
}

}  // namespace harmonics::engine
