// Feeds the bytes of a descriptor or of a growing file to a SampleFeed, on a separate thread.
#pragma once

#include <atomic>
#include <thread>

#include "wire/pipe.hpp"
#include "wire/plain/sample_feed.hpp"

namespace harmonics::plain {

// The first bytes of a stream, read to detect its format.
struct Beginning {
  std::vector<std::byte> bytes;
  bool is_hxs = false;           // HXS/1 frames
  std::optional<Format> format;  // otherwise; none: not detected
  bool ended = false;            // end of stream reached
};
// Waits for enough bytes to detect the format, up to the given time. `grows`: the file may be appended to, so its end
// is not the end of the stream. Errors: InputOutput, Unavailable.
Beginning read_beginning(const std::string& where, int fd, bool grows, std::chrono::milliseconds wait);

class BytePipe {
 public:
  // Closes the descriptor on destruction if `owns`. `first`: bytes already read from it.
  BytePipe(int fd, bool owns, std::vector<std::byte> first, FeedOptions options);
  // Follows the file at this path, already open as `fd`, through appends, truncation and replacement.
  BytePipe(std::string path, int fd, std::vector<std::byte> first, FeedOptions options);
  ~BytePipe();
  SampleFeed& feed() { return feed_; }
  wire::Inbox& inbox() { return feed_.inbox(); }

 private:
  void run();
  void follow();
  bool give(std::span<const std::byte> bytes);
  void begin_anew(const std::string& why);
  bool wait_for_room();
  int fd_;
  bool owns_;
  std::string path_;
  std::vector<std::byte> first_;
  SampleFeed feed_;
  wire::Bell bell_;
  uint64_t peer_ = 1, read_ = 0;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace harmonics::plain
