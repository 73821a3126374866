// Caches released device memory for reuse. Drivers synchronise the device on allocation and release, so compiling one
// graph would stall the graphs being served.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>

#include <harmonics/error.hpp>

namespace harmonics::kernels {

class MemoryPool {
 public:
  // `take` allocates from the driver or throws harmonics::Error; `give_back` releases.
  MemoryPool(std::function<uint64_t(uint64_t bytes)> take, std::function<void(uint64_t buffer)> give_back)
      : take_(std::move(take)), give_back_(std::move(give_back)) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool() { keep_at_most(0); }

  // Returns the smallest cached block of at least `bytes` and at most a quarter more, else allocates. If the driver is
  // out of memory, releases the cache and retries.
  uint64_t allocate(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto block = kept_.begin(); block != kept_.end(); ++block)
      if (block->bytes >= bytes && block->bytes <= bytes + bytes / 4 &&
          (best == kept_.end() || block->bytes < best->bytes))
        best = block;
    Block block{0, bytes};
    if (best != kept_.end()) {
      block = *best;
      kept_.erase(best);
      kept_bytes_ -= block.bytes;
    } else
      block.buffer = ask(bytes);
    used_[block.buffer] = block.bytes;
    used_bytes_ += block.bytes;
    return block.buffer;
  }

  // Caches the block. Releases the oldest blocks while more memory is cached than used.
  void release(uint64_t buffer) {
    const std::lock_guard lock(mutex_);
    const auto at = used_.find(buffer);
    kept_.push_back({buffer, at->second});
    kept_bytes_ += at->second;
    used_bytes_ -= at->second;
    used_.erase(at);
    keep_at_most(used_bytes_);
  }

  uint64_t kept_bytes() const {
    const std::lock_guard lock(mutex_);
    return kept_bytes_;
  }

 private:
  struct Block {
    uint64_t buffer, bytes;
  };

  uint64_t ask(uint64_t bytes) {
    if (kept_.empty()) return take_(bytes);
    try {
      return take_(bytes);
    } catch (const Error&) {
      keep_at_most(0);
      return take_(bytes);
    }
  }
  void keep_at_most(uint64_t bytes) {
    while (kept_bytes_ > bytes) {
      give_back_(kept_.front().buffer);
      kept_bytes_ -= kept_.front().bytes;
      kept_.pop_front();
    }
  }

  std::function<uint64_t(uint64_t)> take_;
  std::function<void(uint64_t)> give_back_;
  mutable std::mutex mutex_;
  std::list<Block> kept_;              // oldest first
  std::map<uint64_t, uint64_t> used_;  // bytes by buffer
  uint64_t kept_bytes_ = 0, used_bytes_ = 0;
};

}  // namespace harmonics::kernels
