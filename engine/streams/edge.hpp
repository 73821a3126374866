// Edge: the queue of a live stream, with a policy for samples that arrive faster than steps consume them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/streams/stream_source.hpp"

namespace harmonics::engine {

enum class EdgePolicy : uint8_t {
  block,        // stop reading, which blocks the sender
  drop_oldest,  // drop the oldest queued sample
  latest,       // as drop_oldest, with a queue no longer than one step needs
};
// Parses "block", "drop_oldest" or "latest"; returns nothing for any other text.
std::optional<EdgePolicy> parse_edge_policy(const std::string& text);

struct EdgeOptions {
  EdgePolicy policy = EdgePolicy::block;
  uint64_t most_bytes = uint64_t{16} << 20;  // limit for queued samples
};

// A sample's position in its stream, from 0, and its sender's number for it (the position if the sender gave none).
struct SampleMark {
  uint64_t index = 0;
  SampleNumber number{0, 0};
};

// Prefetches a source on its own thread. Allocates in the constructor and in set_step. Supports one reader.
class Edge {
 public:
  using Clock = std::chrono::steady_clock;

  // `step`: maximum number of samples that one step takes. The source must outlive the Edge, which must be its only
  // reader.
  Edge(Source& source, const EdgeOptions& options, uint64_t step);
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;
  // Cancels the source. If the source cannot be cancelled, blocks until its pending read returns.
  ~Edge();

  // Reads up to n samples, back to back, and their marks. Returns at least one, except when none arrives before
  // `until` (empty: no time limit) or after the end. Rethrows the source's exception after the samples before it.
  uint64_t read(uint64_t n, std::byte* to, SampleMark* marks, std::optional<Clock::time_point> until);
  bool ended() const;
  // Sets the number of samples that one step takes, the queue's limit under `latest`. Must not be called during a read.
  void set_step(uint64_t step);
  // [any thread] Number of samples dropped for newer ones; number of samples queued.
  uint64_t dropped() const;
  uint64_t waiting() const;

 private:
  void run();
  bool put(const std::byte* sample, const SampleMark& mark);

  Source& source_;
  EdgePolicy policy_;
  size_t bytes_, most_, capacity_;  // size of a sample; limits of queued samples: by hold=, and currently
  std::vector<std::byte> ring_;
  std::vector<SampleMark> marks_;
  mutable std::mutex mutex_;
  std::condition_variable filled_, room_;
  size_t first_ = 0, waiting_ = 0;
  uint64_t dropped_ = 0;
  bool ended_ = false, stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // started by the first read
};

}  // namespace harmonics::engine
