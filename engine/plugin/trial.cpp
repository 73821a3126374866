#include "engine/plugin/trial.hpp"

#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/base/child_process.hpp"
#include "engine/base/foreign_file.hpp"
#include "engine/base/read_file.hpp"
#include "engine/plugin/discovery.hpp"

namespace harmonics::engine {

namespace {

constexpr double kOpening = 30;             // seconds
constexpr size_t kLargestMemory = 1 << 20;  // limit for the file of past trials
constexpr int kOpens = 0, kRefused = 1;     // exit codes of the child
constexpr int kFirstOfTrial = 64;           // exit codes from here are the trial's; others come from the library

// Returns a line that identifies the state of the file. It includes the ctime, which changes with the content and
// cannot be set by users.
std::string line_of_file(const std::string& file) {
  struct stat s {};
  if (::stat(file.c_str(), &s) != 0 || file.find('\n') != std::string::npos) return {};
  return fmt::format("{}\t{}\t{}.{:09}\t{}.{:09}\t{}\t{}\n", file, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                     s.st_ctim.tv_sec, s.st_ctim.tv_nsec, s.st_dev, s.st_ino);
}

std::string memory_path() {
  const std::string beside = plugin_cache_path();
  return beside.empty() ? beside : beside + "-opened";
}

// Lines of libraries that opened without a crash. Lines are appended to a file, so concurrent writers do not overwrite
// each other.
class Tried {
 public:
  static Tried& all() {
    static Tried* tried = new Tried;  // libraries may be opened during process exit
    return *tried;
  }

  bool has(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (lines_.count(line)) return true;
    if (std::exchange(read_, true)) return false;
    read();
    return lines_.count(line) > 0;
  }

  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.insert(line);
    const std::string path = memory_path();
    if (path.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (full_ ? O_TRUNC : 0), 0600);
    if (fd < 0) return;  // for example a read-only home directory: tried again next time
    full_ = false;
    [[maybe_unused]] const ssize_t n = ::write(fd, line.data(), line.size());  // a partial line matches nothing
    ::close(fd);
  }

 private:
  void read() {
    const std::string path = memory_path();
    struct stat s {};
    if (path.empty() || ::stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode) || !is_own(path)) return;
    full_ = static_cast<size_t>(s.st_size) > kLargestMemory / 2;
    std::string text;
    try {
      text = read_file(path, kLargestMemory);
    } catch (const Error&) {
      return;
    }
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      lines_.insert(text.substr(at, end + 1 - at));
  }

  std::mutex mutex_;
  std::set<std::string> lines_;
  bool read_ = false, full_ = false;
};

// Runs in the child process. Discards output.
[[noreturn]] void open_in_child(const std::string& file) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
  const rlimit no_image{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_image);
  const bool opens = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
  ::_exit(kFirstOfTrial + (opens ? kOpens : kRefused));
}

}  // namespace

double plugin_patience(double otherwise) {
  const char* set = std::getenv("HARMONICS_PLUGIN_PATIENCE");
  if (!set || !*set) return otherwise;
  double seconds = 0;
  const auto [end, error] = std::from_chars(set, set + std::strlen(set), seconds);
  if (error != std::errc() || *end || !std::isfinite(seconds) || seconds <= 0)
    throw Error(ErrorKind::Usage,
                fmt::format("HARMONICS_PLUGIN_PATIENCE is '{}', which is not a number of seconds above 0", set), {},
                {"write it as 30 or 0.5"});
  return seconds;
}

void try_to_open(const std::string& name, const std::string& file) {
  const std::string line = line_of_file(file);
  if (!line.empty() && Tried::all().has(line)) return;
  const double patience = plugin_patience(kOpening);
  const ChildEnd end =
      in_child_process([&](const auto&) { open_in_child(file); }, [](const std::string&) {}, [&] { return patience; });
  if (end.code == kFirstOfTrial + kRefused) return;
  if (end.code == kFirstOfTrial + kOpens) {
    if (!line.empty()) Tried::all().add(line);
    return;
  }
  const std::string how = end.timed_out ? fmt::format("it did not end within {:g} seconds", patience)
                          : end.signal  ? "it crashes with " + signal_name(end.signal)
                                        : "it ends the process";
  throw Error(ErrorKind::Plugin, fmt::format("plugin '{}' cannot be loaded: {}", name, how), {},
              {end.timed_out ? "its constructors run when it is loaded; HARMONICS_PLUGIN_PATIENCE=SECONDS waits longer"
                             : "the file is damaged, or its constructors are wrong: build it or copy it again"});
}

}  // namespace harmonics::engine
