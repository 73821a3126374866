// The most bytes of a folder that several writers append to, some of them in other libraries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace harmonics::wire {

// Whether a file of this name is one of dead letters: samples left out or refused, or the reasons.
inline bool is_dead_letter(std::string_view name) {
  return name.ends_with(".hxs") || name.ends_with(".reasons.jsonl") || name.find(".refused") != std::string_view::npos;
}

// Not thread-safe. The folder is measured anew before a writer could have used up a sixteenth of what remains, so
// writers that do not know of each other stay within the limit together.
class FolderBudget {
 public:
  // `held`: the bytes in the folder now, which `measure` returns later.
  FolderBudget(uint64_t most, uint64_t held, std::function<uint64_t()> measure)
      : most_(most), measure_(std::move(measure)), held_(held) {}
  // Whether so many bytes more are within the limit.
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
  uint64_t held_, written_ = 0;  // since it was measured
};

}  // namespace harmonics::wire
