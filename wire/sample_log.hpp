// Records the sender of each sample of a stream, between the last durable sample and the last one returned.
#pragma once

#include <deque>

#include "wire/positions.hpp"

namespace harmonics::wire {

class SampleLog {
 public:
  // Starts before sample `index`, with the senders at these positions.
  void begin(uint64_t index, std::map<SenderName, Position> senders);
  // Adds the next `count` samples, from this sender.
  void add(const SenderName& sender, uint64_t epoch, uint64_t seq, uint32_t count);
  // Returns the position of every sender before sample `index`, which lies from first() to end(). Omits senders
  // without earlier samples.
  std::map<SenderName, Position> at(uint64_t index) const;
  // Drops the samples before `index`.
  void forget(uint64_t index);
  void forget(const SenderName& sender) { senders_.erase(sender); }

  uint64_t first() const { return first_; }
  uint64_t end() const { return end_; }
  // Returns the number after the sender's last sample; first() if it has none here.
  uint64_t last_of(const SenderName& sender) const;

 private:
  struct Run {
    uint64_t begin;
    SenderName sender;
    uint64_t epoch, seq, count;
  };
  uint64_t first_ = 0, end_ = 0;
  std::map<SenderName, Position> senders_;  // before sample first_
  std::deque<Run> runs_;
};

}  // namespace harmonics::wire
