// Builds a DATA frame sample by sample, in the memory from which it is sent.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "wire/data_codec.hpp"
#include "wire/send_session.hpp"

namespace harmonics::wire {

struct FrameOrigin {
  std::string stream, producer;
  uint64_t epoch = 0;
  std::vector<TensorPart> tensors;  // of every sample, without bytes
};

// Recycles the memory of sent frames, which is already allocated and warm in the cache. Memory may be released by any
// thread.
class FrameMemory {
 public:
  FrameMemory(size_t size, size_t most_free_bytes);
  std::shared_ptr<std::byte[]> take();

 private:
  struct Free {
    std::mutex mutex;
    std::vector<std::unique_ptr<std::byte[]>> pieces;
  };
  size_t size_, most_;
  std::shared_ptr<Free> free_;
};

class FrameBuilder {
 public:
  // Has room for as many samples as fit in `bytes`, at least one.
  FrameBuilder(FrameOrigin origin, uint64_t bytes);

  uint32_t count() const { return count_; }
  uint32_t capacity() const { return capacity_; }
  bool is_full() const { return count_ == capacity_; }
  uint64_t sample_bytes() const { return sample_bytes_; }
  // Copies one sample: one piece per tensor, each of the tensor's size.
  void append(std::span<const std::span<const std::byte>> tensors);
  // Returns the frame, with its first sample numbered `seq`, and starts an empty one.
  Batch take(uint64_t seq);

 private:
  FrameOrigin origin_;
  DataEncoder encoder_;
  uint32_t capacity_ = 1, count_ = 0;
  uint64_t sample_bytes_ = 0;
  size_t head_ = 0, size_ = 0;      // room for the header; total
  std::vector<size_t> sizes_, at_;  // per tensor: bytes of one sample, and the offset of its samples in a full frame
  std::optional<FrameMemory> sent_;
  std::shared_ptr<std::byte[]> memory_;
};

}  // namespace harmonics::wire
