#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "engine/plugin/loader.hpp"

namespace harmonics {

namespace {

// Does this group have nobody but the user? Debian and others give each user one, and let it write.
bool is_private_group(gid_t gid) {
  const passwd* user = getpwuid(geteuid());
  if (!user || user->pw_gid != gid) return false;
  const std::string name = user->pw_name;
  const group* g = getgrgid(gid);
  return g && name == g->gr_name && (!g->gr_mem[0] || (name == g->gr_mem[0] && !g->gr_mem[1]));
}

void check_place(const std::string& plugin, const std::string& place, const char* what) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorKind::Denied, fmt::format("plugin '{}' is not loaded: {} '{}' {}", plugin, what, place, reason))
        .note("put it where only you can write, e.g. ~/.local/share/harmonics/plugins");
  };
  struct stat s {};
  if (stat(place.c_str(), &s) != 0) refuse(fmt::format("cannot be looked at: {}", std::strerror(errno)));
  if (s.st_uid != geteuid() && s.st_uid != 0) refuse(fmt::format("belongs to another user (number {})", s.st_uid));
  if (s.st_mode & S_IWOTH) refuse("can be written to by everybody");
  if ((s.st_mode & S_IWGRP) && s.st_gid != 0 && !is_private_group(s.st_gid)) refuse("can be written to by its group");
}

}  // namespace

void check_trust(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path given = fs::absolute(path), real = fs::canonical(given);
  check_place(path, real.string(), "its file");
  check_place(path, real.parent_path().string(), "its folder");
  const fs::path reached = fs::canonical(given.parent_path());
  if (reached != real.parent_path()) check_place(path, reached.string(), "the folder of the link");
}

}  // namespace harmonics
