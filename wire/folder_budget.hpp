// Limits the bytes of a folder that several writers append to, some of them in other libraries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace harmonics::wire {

// Returns whether the name is that of a dead-letter file: dropped samples, refused samples, or reasons.
inline bool is_dead_letter(std::string_view name) {
  return name.ends_with(".hxs") || name.ends_with(".reasons.jsonl") || name.find(".refused") != std::string_view::npos;
}

// The limit of all files in a folder. A writer measures the folder again after writing a sixteenth of the remaining
// bytes, so up to 16 independent writers stay within the limit together. Not thread-safe.
class FolderBudget {
 public:
  // `held`: current bytes of the folder. `measure` returns their current number.
  FolderBudget(uint64_t most, uint64_t held, std::function<uint64_t()> measure)
      : most_(most), measure_(std::move(measure)), held_(held) {}
  // Returns whether `bytes` more fit within the limit.
  bool allows(uint64_t bytes) {
    if (written_ + bytes > (most_ - std::min(most_, held_)) / 16) measure();
    return held_ + bytes <= most_;
  }
  void wrote(uint64_t bytes) { written_ += bytes, held_ += bytes; }
  void measure() { held_ = measure_(), written_ = 0; }
  uint64_t held() const { return held_; }

 private:
  uint64_t most_;
  std::function<uint64_t()> measure_;
  uint64_t held_, written_ = 0;  // bytes at the last measurement; written since
};

}  // namespace harmonics::wire
