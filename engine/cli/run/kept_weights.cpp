#include "engine/cli/run/kept_weights.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/base/foreign_file.hpp"
#include "engine/model/sealed_file.hpp"

namespace fs = std::filesystem;

namespace harmonics::engine::cli {

namespace {

// Pattern of the copies' names: GRAPH-20261125T020322-PROCESS.safetensors.
constexpr const char* kPattern =
    "*-[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]T[0-9][0-9][0-9][0-9][0-9][0-9]-*.safetensors";

std::string absolute(const char* variable) {
  const char* value = std::getenv(variable);
  return value && value[0] == '/' ? value : "";
}

[[noreturn]] void refuse_copy(const std::string& why) { throw Error(ErrorKind::Output, why); }

std::string parent_of(const std::string& folder) { return fs::path(folder).parent_path().string(); }

// Throws if other users can replace entries of the folder. A sticky folder such as /tmp is accepted, because others
// cannot replace this user's entries in it.
void expect_unshared(const std::string& folder) {
  struct stat state {};
  const auto check = [&](bool writing) {
    const bool sticky = writing && (state.st_mode & S_ISVTX) && (state.st_uid == ::geteuid() || state.st_uid == 0);
    const std::string why = sticky ? "" : foreign_access(state);
    if (!why.empty()) refuse_copy(fmt::format("'{}' {}", folder, why));
  };
  if (::lstat(folder.c_str(), &state) != 0) return;  // it will be created
  if (S_ISLNK(state.st_mode)) {
    state.st_mode = S_IFLNK;  // the permission bits of a link have no meaning
    check(false);
    if (::stat(folder.c_str(), &state) != 0) return;
  }
  check(true);
}

// Opens a folder without following links. Returns -1 if it does not exist; throws if others own it or can write to it.
int open_own(const std::string& folder) {
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0 && errno == ENOENT) return -1;
  if (opened < 0) {
    const std::string why = std::strerror(errno);
    if (fs::is_symlink(folder)) refuse_copy(fmt::format("'{}' is a symbolic link, which is not followed", folder));
    refuse_copy(fmt::format("cannot open the folder '{}': {}", folder, why));
  }
  struct stat state {};
  std::string why = ::fstat(opened, &state) == 0 ? foreign_access(state) : std::strerror(errno);
  if (why.empty() && state.st_uid != ::geteuid()) why = "belongs to another user (number 0)";
  if (why.empty()) return opened;
  ::close(opened);
  refuse_copy(fmt::format("'{}' {}", folder, why));
}

// Checks the folder of the copies and its parents, as far as they exist.
void expect_own(const std::string& kept) {
  const std::string program = parent_of(kept), state = parent_of(program);
  expect_unshared(parent_of(state));
  expect_unshared(state);
  for (const std::string& folder : {program, kept})
    if (const int opened = open_own(folder); opened >= 0) ::close(opened);
}

// Creates the folder and its missing parents, with access for this user only.
void make_private(const std::string& folder) {
  expect_own(folder);
  for (size_t at = folder.find('/', 1);; at = folder.find('/', at + 1)) {
    const std::string part = folder.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST)
      refuse_copy(fmt::format("cannot make '{}': {}", part, std::strerror(errno)));
    if (at == std::string::npos) break;
  }
  expect_own(folder);
  const int opened = open_own(folder);
  const bool hidden = opened >= 0 && ::fchmod(opened, 0700) == 0;
  const std::string why = hidden ? "" : std::strerror(errno);
  if (opened >= 0) ::close(opened);
  if (!hidden) refuse_copy(fmt::format("others may use '{}': {}", folder, why));
}

std::string unused_name(const fs::path& folder, const std::string& graph) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%dT%H%M%S", &utc);
  for (int number = 1;; ++number) {
    const std::string more = number > 1 ? "-" + std::to_string(number) : "";
    const fs::path name = folder / fmt::format("{}-{}-{}{}.safetensors", graph, time, ::getpid(), more);
    std::error_code failed;
    if (!fs::exists(fs::symlink_status(name, failed)) || failed) return name.string();
  }
}

struct Copy {
  fs::path path;
  fs::file_time_type time;
  uint64_t bytes;
};

// Removes an unfinished file of a killed process if it is too old to be in use.
void remove_unfinished(const fs::path& path, fs::file_time_type time) {
  std::error_code failed;
  if (time + std::chrono::hours(24) < fs::file_time_type::clock::now()) fs::remove(path, failed);
}

// Returns the copies, newest first. `newest` is the copy just written.
std::vector<Copy> copies_in(const fs::path& folder, const fs::path& newest) {
  std::vector<Copy> all;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    std::error_code gone;
    if (!fs::is_regular_file(entry.symlink_status(gone)) || gone) continue;
    const Copy copy{entry.path(), entry.last_write_time(gone), entry.file_size(gone)};
    if (gone) continue;
    if (is_unfinished_file(name))
      remove_unfinished(copy.path, copy.time);
    else if (::fnmatch(kPattern, name.c_str(), 0) == 0)
      all.push_back(copy);
  }
  std::sort(all.begin(), all.end(), [&](const Copy& a, const Copy& b) {
    if (a.path == newest || b.path == newest) return a.path == newest && b.path != newest;
    return a.time != b.time ? a.time > b.time : a.path > b.path;
  });
  return all;
}

}  // namespace

std::string kept_folder() {
  if (const std::string state = absolute("XDG_STATE_HOME"); !state.empty()) return state + "/harmonics/kept";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.local/state/harmonics/kept";
}

std::string why_not_kept() {
  const std::string folder = kept_folder();
  try {
    if (folder.empty()) refuse_copy("neither XDG_STATE_HOME nor HOME names a folder");
    expect_own(folder);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

std::string keep_weights(const TensorFile& weights, const std::string& graph) {
  const std::string folder = kept_folder();
  if (folder.empty()) refuse_copy("neither XDG_STATE_HOME nor HOME names a folder");
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : weights.tensors) bytes += type_of(tensor).bytes();
  if (bytes > kMostKeptBytes)
    refuse_copy(fmt::format("they have {} bytes, a copy has at most {}", bytes, kMostKeptBytes));
  make_private(folder);
  const std::string path = unused_name(folder, graph);
  save_sealed(weights, path);
  ::chmod(path.c_str(), 0600);
  uint64_t total = 0;
  size_t number = 0;
  for (const Copy& copy : copies_in(folder, path)) {
    total += copy.bytes;
    std::error_code failed;
    if (copy.path != path && (++number >= kMostKept || total > kMostKeptBytes)) fs::remove(copy.path, failed);
  }
  return path;
}

}  // namespace harmonics::engine::cli
