// A DATA frame that grows sample by sample in the memory it is sent from.
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

// Memory of frames that were sent, for those that follow: it is warm, and nobody has to ask the system for it. Any
// thread may drop what was taken.
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
  // As many samples as have `bytes`, at least one.
  FrameBuilder(FrameOrigin origin, uint64_t bytes);

  uint32_t count() const { return count_; }
  uint32_t capacity() const { return capacity_; }
  bool is_full() const { return count_ == capacity_; }
  uint64_t sample_bytes() const { return sample_bytes_; }
  // The bytes of one sample, copied: a piece for each tensor, of its size.
  void append(std::span<const std::span<const std::byte>> tensors);
  // The frame, its first sample numbered `seq`; the next one begins empty.
  Batch take(uint64_t seq);

 private:
  FrameOrigin origin_;
  DataEncoder encoder_;
  uint32_t capacity_ = 1, count_ = 0;
  uint64_t sample_bytes_ = 0;
  size_t head_ = 0, size_ = 0;      // room for the header; all
  std::vector<size_t> sizes_, at_;  // of each tensor: the bytes of one, and where its samples begin when it is full
  std::optional<FrameMemory> sent_;
  std::shared_ptr<std::byte[]> memory_;
};

}  // namespace harmonics::wire
