// Frames through a pipe or a file: one way, in order, without reconnection.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "wire/frame_reader.hpp"
#include "wire/inbox.hpp"
#include "wire/outbox.hpp"

namespace harmonics::wire {

// Wakes a sleeping thread.
class Bell {
 public:
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  void ring();
  // Waits until the bell rings, `fd` (-1: none) is readable, or the time has passed.
  void wait(int fd, std::chrono::milliseconds most);

 private:
  int fd_;
};

class PipeReader {
 public:
  // Does not own the descriptor. `first`: bytes already read from it.
  explicit PipeReader(int fd, InboxOptions options, std::vector<std::byte> first = {});
  ~PipeReader();
  Inbox& inbox() { return inbox_; }

 private:
  void run();
  bool take(FrameReader& reader);
  int fd_;
  Limits limits_;
  std::vector<std::byte> first_;
  Inbox inbox_;
  Bell bell_;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

class PipeWriter {
 public:
  explicit PipeWriter(int fd, OutboxOptions options);
  ~PipeWriter();
  Outbox& outbox() { return outbox_; }

 private:
  void run();
  bool write_all(std::span<const std::byte> bytes);
  int fd_;
  Outbox outbox_;
  Bell bell_;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace harmonics::wire
