#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

#include <fmt/core.h>

#include "engine/base/foreign_file.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics::engine {

namespace {

void check_place(const std::string& plugin, const std::string& place, const char* what) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorKind::Denied, fmt::format("plugin '{}' is not loaded: {} '{}' {}", plugin, what, place, reason))
        .note("move it to a folder where only you can write, e.g. ~/.local/share/harmonics/plugins");
  };
  struct stat s {};
  if (stat(place.c_str(), &s) != 0) refuse(fmt::format("cannot be examined: {}", std::strerror(errno)));
  if (const std::string why = foreign_access(s); !why.empty()) refuse(why);
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

}  // namespace harmonics::engine
