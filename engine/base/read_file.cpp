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

[[noreturn]] void refuse(const std::string& path, const std::string& why, int reason = 0) {
  Error e(kind_of_failure(reason, ErrorKind::NoInput), "cannot read '" + path + "': " + why);
  if (const std::string advice = advice_for_missing(path); !advice.empty()) e.note(advice);
  throw e;
}
[[noreturn]] void refuse_by_system(const std::string& path, int reason) { refuse(path, std::strerror(reason), reason); }

}  // namespace

std::string read_file(const std::string& path, size_t limit) {
  // 'e': not inherited by child processes.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (!file) refuse_by_system(path, errno);
  std::string bytes;
  while (bytes.size() <= limit) {
    const size_t before = bytes.size(), step = std::min<size_t>(64 * 1024, limit + 1 - before);
    bytes.resize(before + step);
    const size_t got = std::fread(bytes.data() + before, 1, step, file.get());
    bytes.resize(before + got);
    if (got == step) continue;
    if (std::ferror(file.get())) refuse_by_system(path, errno);
    break;
  }
  if (bytes.size() > limit) refuse(path, "it holds more than the " + std::to_string(limit) + " bytes allowed");
  return bytes;
}

}  // namespace harmonics
