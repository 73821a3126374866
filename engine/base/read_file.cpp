#include "engine/base/read_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <harmonics/error.hpp>

#include "engine/base/nearest_file.hpp"

namespace harmonics {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  Error e(ErrorKind::NoInput, "cannot read '" + path + "': " + why);
  if (const std::string advice = advice_for_missing(path); !advice.empty()) e.note(advice);
  throw e;
}

}  // namespace

std::string read_file(const std::string& path, size_t limit) {
  // 'e': not inherited by child processes.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (!file) refuse(path, std::strerror(errno));
  std::string bytes;
  while (bytes.size() <= limit) {
    const size_t before = bytes.size(), step = std::min<size_t>(64 * 1024, limit + 1 - before);
    bytes.resize(before + step);
    const size_t got = std::fread(bytes.data() + before, 1, step, file.get());
    bytes.resize(before + got);
    if (got < step) break;
  }
  if (std::ferror(file.get())) refuse(path, std::strerror(errno));
  if (bytes.size() > limit) refuse(path, "it holds more than the " + std::to_string(limit) + " bytes allowed");
  return bytes;
}

}  // namespace harmonics
