#include "tests/faults/layer/injection.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faults {

namespace {

constexpr const char* kNames[] = {"open",   "write", "sync", "rename",  "truncate",
                                  "remove", "mkdir", "send", "receive", "close"};
constexpr size_t kMostFiles = 4096;

std::vector<std::string> parts(const char* text, char between) {
  std::vector<std::string> all;
  for (std::string_view rest = text ? text : ""; !rest.empty();) {
    const size_t end = std::min(rest.find(between), rest.size());
    if (end > 0) all.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return all;
}

std::string text_of(const char* name) {
  const char* set = std::getenv(name);
  return set ? set : "";
}

struct Settings {
  std::vector<std::string> paths = parts(std::getenv("FAULTS_PATHS"), ':');
  unsigned calls = 0;
  uint64_t at = 0;
  bool lasting = false;
  std::string what = text_of("FAULTS_DO");
  int reason = 0;
  std::string struck = text_of("FAULTS_STRUCK"), counted = text_of("FAULTS_COUNTED"), trace = text_of("FAULTS_TRACE");

  Settings() {
    for (const std::string& name : parts(std::getenv("FAULTS_CALLS"), ','))
      for (unsigned i = 0; i < std::size(kNames); ++i)
        if (name == kNames[i]) calls |= 1u << i;
    if (calls == 0) calls = ~(1u << static_cast<unsigned>(Call::Close));
    if (const char* text = std::getenv("FAULTS_AT")) {
      char* end = nullptr;
      at = std::strtoull(text, &end, 10);
      lasting = *end == '+';
    }
    const std::pair<const char*, int> reasons[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},
                                                   {"EDQUOT", EDQUOT}, {"EMFILE", EMFILE}, {"ECONNRESET", ECONNRESET}};
    for (const auto& [name, number] : reasons)
      if (what == name) reason = number;
  }
};

// Never destroyed: other threads may still call during process exit.
const Settings& settings() {
  static const Settings* made = new Settings;
  return *made;
}

std::atomic<uint64_t> count{0};

// Uses raw system calls, which are not counted.
void put(const std::string& path, const std::string& text, int flags) {
  const long file = ::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (file < 0) return;
  for (size_t done = 0; done < text.size();) {
    const long n = ::syscall(SYS_write, file, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  ::syscall(SYS_close, file);
}

std::string escaped(const std::string& text) {
  std::string all;
  for (const char c : text) all += c == '\t' ? "\\t" : c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
  return all;
}

std::atomic<Known*> files[kMostFiles];

struct AtEnd {
  ~AtEnd() {
    if (!settings().counted.empty()) put(settings().counted, std::to_string(count) + "\n", O_TRUNC);
  }
} at_end;

}  // namespace

bool matches(const std::string& name) {
  for (const std::string& pattern : settings().paths)
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 || ::fnmatch(pattern.c_str(), (name + "/").c_str(), 0) == 0)
      return true;
  return false;
}

std::string absolute(const char* path) {
  if (path[0] == '/') return path;
  char here[4096];
  return ::syscall(SYS_getcwd, here, sizeof here) > 0 ? std::string(here) + "/" + path : path;
}

void die() {
  while (true) ::syscall(SYS_kill, ::syscall(SYS_getpid), SIGKILL);
}

Verdict judge(Call call, const std::string& path) {
  const Settings& s = settings();
  if (!(s.calls & 1u << static_cast<unsigned>(call))) return {};
  Verdict verdict;
  verdict.number = ++count;
  if (s.at == 0 || verdict.number < s.at || (!s.lasting && verdict.number != s.at)) return verdict;
  if (!s.struck.empty() && verdict.number == s.at) {
    put(s.struck,
        std::to_string(verdict.number) + "\t" + kNames[static_cast<size_t>(call)] + "\t" + escaped(path) + "\n",
        O_TRUNC);
  }
  if (s.what == "kill") die();
  if (s.what == "SIGINT" || s.what == "SIGTERM")
    ::syscall(SYS_kill, ::syscall(SYS_getpid), s.what == "SIGINT" ? SIGINT : SIGTERM);
  if (s.what == "tear")
    verdict.what = Verdict::Do::Tear;
  else if (s.what == "short")
    verdict.what = Verdict::Do::Short;
  else if (s.reason != 0)
    verdict.what = Verdict::Do::Fail, verdict.reason = s.reason;
  return verdict;
}

bool traces() { return !settings().trace.empty(); }

void trace(const Traced& traced) {
  const int reason = traced.result < 0 ? errno : 0;
  static std::mutex& one = *new std::mutex;
  const std::lock_guard<std::mutex> lock(one);
  const std::string& path = settings().trace;
  std::string line = std::to_string(::syscall(SYS_getpid)) + "\t" + std::to_string(::syscall(SYS_gettid)) + "\t" +
                     std::to_string(traced.number) + "\t" + kNames[static_cast<size_t>(traced.call)] + "\t" +
                     std::to_string(traced.result) + "\t" + std::to_string(reason) + "\t" +
                     std::to_string(traced.inode) + "\t" + escaped(traced.path);
  if (!traced.fields.empty()) line += "\t" + traced.fields;
  if (traced.bytes) {
    const std::string beside = path + ".bytes";
    const long file = ::syscall(SYS_openat, AT_FDCWD, beside.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const long at = ::syscall(SYS_lseek, file, 0, SEEK_END);
    ::syscall(SYS_write, file, traced.bytes, traced.size);
    ::syscall(SYS_close, file);
    line += "\t" + std::to_string(traced.offset) + "\t" + std::to_string(traced.size) + "\t" + std::to_string(at);
  }
  put(path, line + "\n", O_APPEND);
  errno = reason;
}

// The old entry of a reused descriptor is not freed: another thread may still read it.
void remember(int file, Known known) {
  if (file >= 0 && static_cast<size_t>(file) < kMostFiles) files[file].store(new Known(std::move(known)));
}

const Known* known(int file) {
  return file >= 0 && static_cast<size_t>(file) < kMostFiles ? files[file].load() : nullptr;
}

void forget(int file) {
  if (file >= 0 && static_cast<size_t>(file) < kMostFiles) files[file].store(nullptr);
}

}  // namespace faults
