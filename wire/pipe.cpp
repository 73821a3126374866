#include "wire/pipe.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace harmonics::wire {
namespace {

constexpr uint64_t kPeer = 1;
constexpr std::chrono::milliseconds kLook{50};

InboxOptions one_way(InboxOptions options) {
  options.one_way = true;
  return options;
}
OutboxOptions one_way(OutboxOptions options) {
  options.one_way = true;
  return options;
}

}  // namespace

Bell::Bell() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
Bell::~Bell() { close(fd_); }

void Bell::ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(fd_, &one, sizeof one);
}

void Bell::wait(int fd, std::chrono::milliseconds most) {
  pollfd waiting[] = {{fd_, POLLIN, 0}, {fd, POLLIN, 0}};
  poll(waiting, fd < 0 ? 1 : 2, static_cast<int>(most.count()));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(fd_, &count, sizeof count);
}

PipeReader::PipeReader(int fd, InboxOptions options, std::vector<std::byte> first)
    : fd_(fd), limits_(options.limits), first_(std::move(first)), inbox_(one_way(std::move(options))) {
  inbox_.wake_by([this] { bell_.ring(); });
  thread_ = std::thread([this] { run(); });
}

PipeReader::~PipeReader() {
  inbox_.wake_by({});
  leaving_ = true;
  bell_.ring();
  thread_.join();
}

// Returns false when nothing more can be read.
bool PipeReader::take(FrameReader& reader) {
  try {
    while (const OwnedBytes frame = reader.next())
      if (!inbox_.arrived(kPeer, frame)) return inbox_.fail(inbox_.health().last_error), false;
  } catch (const Error& e) {
    return inbox_.fail(e.what()), false;
  }
  inbox_.poll();
  return true;
}

void PipeReader::run() {
  FrameReader reader(limits_);
  for (std::span<const std::byte> rest = first_; !rest.empty();) {
    const auto room = reader.room();
    const size_t n = std::min(room.size(), rest.size());
    std::memcpy(room.data(), rest.data(), n);
    reader.arrived(n);
    rest = rest.subspan(n);
    if (!take(reader)) return;
  }
  while (!leaving_) {
    const bool full = inbox_.is_full();
    bell_.wait(full ? -1 : fd_, kLook);
    if (full || leaving_) continue;
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0) continue;
    const auto room = reader.room();
    const ssize_t n = read(fd_, room.data(), room.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return inbox_.fail(std::strerror(errno));
    if (n == 0) return reader.begun() > 0 ? inbox_.fail("it ends within a frame") : inbox_.close_input();
    reader.arrived(static_cast<size_t>(n));
    if (!take(reader)) return;
  }
}

PipeWriter::PipeWriter(int fd, OutboxOptions options) : fd_(fd), outbox_(one_way(std::move(options))) {
  outbox_.wake_by([this] { bell_.ring(); });
  thread_ = std::thread([this] { run(); });
}

PipeWriter::~PipeWriter() {
  outbox_.wake_by({});
  leaving_ = true;
  bell_.ring();
  thread_.join();
}

void PipeWriter::run() {
  while (true) {
    while (const OwnedBytes frame = outbox_.poll()) {
      if (!write_all(frame.bytes)) return outbox_.fail(std::strerror(errno));
      outbox_.sent();
    }
    if (leaving_) return;
    bell_.wait(-1, std::chrono::duration_cast<std::chrono::milliseconds>(outbox_.until_deadline()));
  }
}

bool PipeWriter::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // another program has made it non-blocking
      pollfd room{fd_, POLLOUT, 0};
      poll(&room, 1, static_cast<int>(kLook.count()));
      continue;
    }
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace harmonics::wire
