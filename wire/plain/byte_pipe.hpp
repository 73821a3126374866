// Bytes of a descriptor or of a file that grows, given to a feed by a thread of its own.
#pragma once

#include <atomic>
#include <thread>

#include "wire/pipe.hpp"
#include "wire/plain/sample_feed.hpp"

namespace harmonics::plain {

// What stands first in a stream of bytes, read while it is not known what it holds.
struct Beginning {
  std::vector<std::byte> bytes;
  bool is_hxs = false;           // frames of HXS/1
  std::optional<Format> format;  // else; none: it cannot be told
  bool ended = false;            // there are no more bytes
};
// Waits for as many bytes as tell it, at most so long. `grows`: the end of the file is not the end. Errors:
// InputOutput, Unavailable.
Beginning read_beginning(const std::string& where, int fd, bool grows, std::chrono::milliseconds wait);

class BytePipe {
 public:
  // The descriptor is closed with it where `owns`. `first`: what was read of it already.
  BytePipe(int fd, bool owns, std::vector<std::byte> first, FeedOptions options);
  // Follows the file of this path, which `fd` has open, through what is appended, through truncation and replacement.
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
