#include "engine/base/file_group.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace fs = std::filesystem;

namespace {

bool is_plain(const std::string& path) {
  std::error_code failed;
  return fs::is_regular_file(path, failed);
}

}  // namespace

FileGroup::FileGroup(const std::string& leading, FileCalls& calls) : path_(leading), calls_(calls) {
  files_.emplace_back(leading, calls);
}

FileReplacement& FileGroup::add(const std::string& path) { return files_.emplace_back(path, calls_); }

void FileGroup::finish() {
  if (files_.size() == 1 && removed_.empty()) return files_.front().finish();
  for (FileReplacement& file : files_) file.sync();
  const bool replaces = is_plain(path_);
  if (replaces) {
    std::error_code failed;  // a symbolic link is kept and its target replaced
    const std::string former = fs::canonical(path_, failed).string(), folder = fs::path(former).parent_path().string();
    if (failed || calls_.remove(former.c_str()) != 0) {
      const int reason = failed ? failed.value() : errno;
      throw Error(kind_of_failure(reason, ErrorKind::Output),
                  "cannot replace '" + path_ + "': " + std::strerror(reason));
    }
    (void)sync_directory(folder, calls_);
  }
  try {
    for (const std::string& path : removed_)
      if (is_plain(path)) (void)calls_.remove(path.c_str());
    for (size_t i = files_.size(); i-- > 0;) files_[i].finish();  // the leading file is last
  } catch (Error& e) {
    if (!is_plain(path_))
      e.note("note: '" + path_ + "' is missing, because the files beside it are incomplete; write them again");
    throw;
  }
}

}  // namespace harmonics::engine
