#include "engine/cli/outputs.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/core.h>

namespace fs = std::filesystem;

namespace harmonics::cli {

namespace {

[[noreturn]] void refuse(const char* flag, const std::string& path, const std::string& why, const std::string& remedy,
                         int reason = 0) {
  throw Error(kind_of_failure(reason, ErrorKind::Output), fmt::format("{}: cannot write '{}': {}", flag, path, why), {},
              {remedy});
}

// By making a file beside it: permissions alone do not tell of read-only file systems.
void expect_writable(const char* flag, const std::string& path) {
  std::error_code failed;
  const fs::path linked = fs::is_symlink(path, failed) ? fs::weakly_canonical(path, failed) : fs::path(path);
  if (fs::is_directory(linked, failed))
    refuse(flag, path, "it is a folder",
           fmt::format("name a file in it: {} {}", flag, (fs::path(path) / "NAME").string()));
  const fs::path folder = linked.has_parent_path() ? linked.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, failed))
    refuse(flag, path, fmt::format("there is no folder '{}'", folder.string()),
           fmt::format("make it first: mkdir -p '{}'", folder.string()));
  const std::string tried = (folder / fmt::format(".harmonics-try-{}.tmp", ::getpid())).string();
  const int file = ::open(tried.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) refuse(flag, path, std::strerror(errno), "give a file in a folder that may be written", errno);
  ::close(file);
  ::unlink(tried.c_str());
}

// An unused name in `folder` for a file that was to be written at `path`.
std::string free_name(const fs::path& folder, const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  for (int number = 1;; ++number) {
    const fs::path name =
        folder / fmt::format("{}.unsaved{}.safetensors", stem, number > 1 ? "-" + std::to_string(number) : "");
    std::error_code failed;
    if (!fs::exists(fs::symlink_status(name, failed)) || failed) return name.string();
  }
}

}  // namespace

void expect_writable_outputs(const Options& options) {
  const std::pair<const char*, const std::string*> outputs[] = {{"--save", &options.save},
                                                                {"--report", &options.report},
                                                                {"--plot", &options.plot},
                                                                {"--confusion", &options.confusion}};
  for (const auto& [flag, path] : outputs)
    if (!path->empty()) expect_writable(flag, *path);
}

void save_or_rescue(const TensorFile& weights, const std::string& path) {
  try {
    save_safetensors(weights, path);
  } catch (const Error& failure) {
    std::error_code failed;
    for (const fs::path& folder : {fs::path(), fs::temp_directory_path(failed)}) {
      const std::string instead = free_name(folder, path);
      try {
        save_safetensors(weights, instead);
      } catch (const Error&) {
        continue;
      }
      throw Error(failure).note(fmt::format("the weights are in {}: --weights takes them", instead));
    }
    throw;
  }
}

}  // namespace harmonics::cli
