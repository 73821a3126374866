#include "wire/plain/byte_pipe.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace harmonics::plain {
namespace {

constexpr std::chrono::milliseconds kLookAgain{50};
constexpr size_t kPiece = 64u << 10;

bool is_hxs_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "HXS1", 4) == 0;
}

}  // namespace

Beginning read_beginning(const std::string& where, int fd, bool grows, std::chrono::milliseconds wait) {
  Beginning begin;
  const wire::Time latest = wire::now() + wait;
  while (true) {
    if (begin.bytes.size() >= 4 || begin.ended) {
      begin.is_hxs = is_hxs_magic(begin.bytes);
      if (!begin.is_hxs) begin.format = format_of_first(begin.bytes, begin.ended);
      if (begin.is_hxs || begin.format || begin.ended || begin.bytes.size() > kPiece) return begin;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(latest - wire::now());
    if (left.count() <= 0) {
      if (!begin.bytes.empty()) return begin;
      throw Error(ErrorKind::Unavailable,
                  where + ": nothing arrived within " + std::to_string(wait.count() / 1000) + " s")
          .note("start the sender, or wait longer with ?wait=SECONDS");
    }
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(std::min(left, std::chrono::milliseconds(1000)).count())) <= 0) continue;
    const size_t had = begin.bytes.size();
    begin.bytes.resize(had + kPiece);
    const ssize_t n = read(fd, begin.bytes.data() + had, kPiece);
    begin.bytes.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno != EINTR && errno != EAGAIN)
      throw Error(ErrorKind::InputOutput, where + ": " + std::strerror(errno));
    if (n == 0 && !grows) begin.ended = true;
    if (n == 0 && grows) std::this_thread::sleep_for(std::min(left, kLookAgain));
  }
}

BytePipe::BytePipe(int fd, bool owns, std::vector<std::byte> first, FeedOptions options)
    : fd_(fd), owns_(owns), first_(std::move(first)), feed_(std::move(options)) {
  feed_.wake_by([this] { bell_.ring(); });
  thread_ = std::thread([this] { run(); });
}

BytePipe::BytePipe(std::string path, int fd, std::vector<std::byte> first, FeedOptions options)
    : fd_(fd), owns_(true), path_(std::move(path)), first_(std::move(first)), feed_(std::move(options)) {
  feed_.wake_by([this] { bell_.ring(); });
  thread_ = std::thread([this] { follow(); });
}

BytePipe::~BytePipe() {
  feed_.wake_by({});
  leaving_ = true;
  bell_.ring();
  thread_.join();
  if (owns_) close(fd_);
}

// Returns false when nothing more is read.
bool BytePipe::give(std::span<const std::byte> bytes) { return !feed_.arrived(peer_, bytes).broken; }

// Returns false when this end is closed.
bool BytePipe::wait_for_room() {
  while (!leaving_ && feed_.is_full()) bell_.wait(-1, kLookAgain);
  return !leaving_;
}

void BytePipe::run() {
  feed_.came(peer_);
  std::vector<std::byte> piece(kPiece);
  const std::vector<std::byte> first = std::exchange(first_, {});
  if (!first.empty() && !give(first)) return;
  while (wait_for_room()) {
    bell_.wait(fd_, kLookAgain);
    pollfd ready{fd_, POLLIN, 0};
    if (leaving_ || poll(&ready, 1, 0) <= 0) continue;
    const ssize_t n = read(fd_, piece.data(), piece.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return feed_.fail(std::strerror(errno));
    if (n == 0) {
      feed_.left(peer_);
      return feed_.close_input();
    }
    if (!give({piece.data(), static_cast<size_t>(n)})) return;
  }
}

void BytePipe::begin_anew(const std::string& why) {
  feed_.note("'" + path_ + "' " + why + ": read from its beginning");
  feed_.came(peer_ + 1);
  feed_.left(peer_++);
  read_ = 0;
}

void BytePipe::follow() {
  feed_.came(peer_);
  std::vector<std::byte> piece(kPiece);
  read_ = first_.size();
  const std::vector<std::byte> first = std::exchange(first_, {});
  if (!first.empty() && !give(first)) return;
  while (wait_for_room()) {
    const ssize_t n = read(fd_, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return feed_.fail(std::strerror(errno));
    if (n > 0) {
      read_ += static_cast<uint64_t>(n);
      if (!give({piece.data(), static_cast<size_t>(n)})) return;
      continue;
    }
    struct stat mine {
    }, named{};
    if (fstat(fd_, &mine) == 0 && static_cast<uint64_t>(mine.st_size) < read_) {
      lseek(fd_, 0, SEEK_SET);
      begin_anew("was truncated");
      continue;
    }
    if (stat(path_.c_str(), &named) == 0 && (named.st_ino != mine.st_ino || named.st_dev != mine.st_dev)) {
      const int other = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
      if (other >= 0) {
        // Reads what was written to the old file before it was replaced.
        for (ssize_t more; (more = read(fd_, piece.data(), piece.size())) > 0;)
          if (!give({piece.data(), static_cast<size_t>(more)})) return close(other), void();
        close(fd_);
        fd_ = other;
        begin_anew("was replaced");
        continue;
      }
    }
    bell_.wait(-1, kLookAgain);
  }
}

}  // namespace harmonics::plain
