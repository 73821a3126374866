// Edge: a live stream's queue in front of the steps, with a policy for samples that arrive faster than they are used.
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
  block,        // stops reading: the sender has to wait
  drop_oldest,  // drops the oldest queued sample
  latest,       // queues no more than the next step takes
};
// Parses "block", "drop_oldest" or "latest"; empty for any other text.
std::optional<EdgePolicy> parse_edge_policy(const std::string& text);

struct EdgeOptions {
  EdgePolicy policy = EdgePolicy::block;
  uint64_t most_bytes = uint64_t{16} << 20;  // limit of the queued samples
};

// A sample's position in its stream, counted from the beginning, and the number its sender gave it (the position
// again if it gave none).
struct SampleMark {
  uint64_t index = 0;
  SampleNumber number{0, 0};
};

// Prefetches a source on a separate thread. Allocates at construction. Supports one reader.
class Edge {
 public:
  using Clock = std::chrono::steady_clock;

  // `step`: the most samples that one step takes. The source must outlive the Edge, which is its only reader.
  Edge(Source& source, const EdgeOptions& options, uint64_t step);
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;
  // Wakes the source if it can be woken; else waits for the sample that the source is waiting for.
  ~Edge();

  // Reads up to n samples, back to back, and their marks. Returns at least one, except when none arrives before
  // `until` (empty: no time limit) or after the end. Rethrows the source's exception after the samples before it.
  uint64_t read(uint64_t n, std::byte* to, SampleMark* marks, std::optional<Clock::time_point> until);
  bool ended() const;
  // Sets the number of samples that one step takes; `latest` holds no more than that. Must not be called during a
  // read.
  void set_step(uint64_t step);
  // [any thread] Samples dropped for newer ones, and samples queued.
  uint64_t dropped() const;
  uint64_t waiting() const;

 private:
  void run();
  bool put(const std::byte* sample, const SampleMark& mark);

  Source& source_;
  EdgePolicy policy_;
  size_t bytes_, most_, capacity_;  // of a sample; samples that hold= allows; most samples that may be queued
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
