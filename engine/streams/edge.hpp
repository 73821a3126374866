// Edge: one live stream on its way into the steps, with what is to become of samples that come faster than they are
// used.
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

namespace harmonics {

enum class EdgePolicy : uint8_t {
  block,        // nothing more is read: who sends has to wait
  drop_oldest,  // the oldest that waits makes room
  latest,       // no more waits than the next step takes
};
// "block", "drop_oldest" or "latest"; empty: none of them.
std::optional<EdgePolicy> parse_edge_policy(const std::string& text);

struct EdgeOptions {
  EdgePolicy policy = EdgePolicy::block;
  uint64_t most_bytes = uint64_t{16} << 20;  // that wait
};

// Where a sample stands in its stream, counted from the beginning, and the number its sender gave it (that place again,
// where it gave none).
struct SampleMark {
  uint64_t index = 0;
  SampleNumber number{0, 0};
};

// Reads a source ahead on a thread of its own. Memory is taken when it is made. One reader.
class Edge {
 public:
  using Clock = std::chrono::steady_clock;

  // `step`: the most samples that one step takes. The source must outlive it, and is read by nobody else.
  Edge(Source& source, const EdgeOptions& options, uint64_t step);
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;
  // Wakes the source where that can be done; else waits for the sample that it is waiting for.
  ~Edge();

  // Up to n samples, back to back, and their marks; at least one, unless none comes until `until` (empty: waits for
  // ever), or after the end. Rethrows what the source threw, after the samples before it.
  uint64_t read(uint64_t n, std::byte* to, SampleMark* marks, std::optional<Clock::time_point> until);
  bool ended() const;
  // From now on one step takes so many: `latest` holds no more than that. Not while it is read.
  void set_step(uint64_t step);
  // [any thread] Samples that made room for others, and that wait.
  uint64_t dropped() const;
  uint64_t waiting() const;

 private:
  void run();
  bool put(const std::byte* sample, const SampleMark& mark);

  Source& source_;
  EdgePolicy policy_;
  size_t bytes_, most_, capacity_;  // of a sample; samples that hold= allows, and that may wait
  std::vector<std::byte> ring_;
  std::vector<SampleMark> marks_;
  mutable std::mutex mutex_;
  std::condition_variable filled_, room_;
  size_t first_ = 0, waiting_ = 0;
  uint64_t dropped_ = 0;
  bool ended_ = false, stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // begins with the first read
};

}  // namespace harmonics
