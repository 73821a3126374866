#include "engine/base/read_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <harmonics/error.hpp>

#include "engine/base/nearest_file.hpp"

namespace harmonics::engine {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why, int reason = 0) {
  Error e(kind_of_failure(reason, ErrorKind::NoInput), "cannot read '" + path + "': " + why);
  if (const std::string advice = advice_for_missing(path); !advice.empty()) e.note(advice);
  throw e;
}
[[noreturn]] void refuse_by_system(const std::string& path, int reason) { refuse(path, std::strerror(reason), reason); }

constexpr size_t kShortestRead = 64 * 1024, kLongestRead = 1024 * 1024;

// An open file. The first read of a pipe waits a limited time for a writer.
class InputFile {
 public:
  explicit InputFile(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (file_ < 0 || ::fstat(file_, &state_) != 0) fail(errno);
  }
  ~InputFile() { ::close(file_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const struct stat& state() const { return state_; }

  // Reads at most `bytes`. Returns 0 at the end.
  size_t read(char* to, size_t bytes) {
    for (;;) {
      const ssize_t got = ::read(file_, to, bytes);
      if (got > 0) return begun_ = true, static_cast<size_t>(got);
      if (got == 0 && (begun_ || !awaits_writer())) return 0;
      if (got < 0 && errno == EAGAIN)
        wait_for(-1);
      else if (got < 0 && errno != EINTR)
        fail(errno);
    }
  }

 private:
  static constexpr int kPatience = 2000;  // milliseconds to wait for a pipe's writer

  [[noreturn]] void fail(int reason) {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    refuse_by_system(path_, reason);
  }
  short wait_for(int milliseconds) const {
    pollfd ready{file_, POLLIN, 0};
    while (::poll(&ready, 1, milliseconds) < 0 && errno == EINTR) {
    }
    return ready.revents;
  }
  // Returns whether a pipe has data after all: read() returns 0 before a writer has opened it.
  bool awaits_writer() {
    if (!S_ISFIFO(state_.st_mode)) return false;
    const short events = wait_for(kPatience);
    if (events == 0) refuse(path_, "it is a pipe without a writer");
    return (events & POLLIN) != 0;  // otherwise a writer has opened and closed the pipe
  }

  const std::string& path_;
  int file_;
  struct stat state_ {};
  bool begun_ = false;
};

}  // namespace

std::string read_file(const std::string& path, size_t limit, const std::function<void(const struct stat&)>& expect) {
  InputFile file(path);
  if (expect) expect(file.state());
  const auto expected = S_ISREG(file.state().st_mode) ? static_cast<size_t>(file.state().st_size) : 0;
  std::string bytes;
  for (;;) {
    const size_t before = bytes.size();
    const size_t room = expected > before ? std::min(expected - before + 1, kLongestRead) : kShortestRead;
    const size_t step = std::min(room, limit + 1 - before);
    if (step == 0) refuse(path, "it holds more than the " + std::to_string(limit) + " bytes allowed");
    bytes.resize(before + step);
    const size_t got = file.read(bytes.data() + before, step);
    bytes.resize(before + got);
    // A short read ends a regular file. Files in /proc report size 0 and are read until a read returns 0.
    if (got == 0 || (expected > 0 && got < step && bytes.size() >= expected)) return bytes;
  }
}

}  // namespace harmonics::engine
