// Which sender each sample of a stream is from, between the last that is durable and the last that was given.
#pragma once

#include <deque>

#include "wire/positions.hpp"

namespace harmonics::wire {

class SampleLog {
 public:
  // Sample `index` is the next; the senders stand there.
  void begin(uint64_t index, std::map<SenderName, Position> senders);
  // The next `count` samples are these of a sender's.
  void add(const SenderName& sender, uint64_t epoch, uint64_t seq, uint32_t count);
  // Where every sender stood before sample `index`, which lies from first() to end(). A sender that gave none before is
  // not there.
  std::map<SenderName, Position> at(uint64_t index) const;
  // Nothing before sample `index` will be asked for.
  void forget(uint64_t index);
  void forget(const SenderName& sender) { senders_.erase(sender); }

  uint64_t first() const { return first_; }
  uint64_t end() const { return end_; }
  // The number after the sender's last sample; first(): it has none here.
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
