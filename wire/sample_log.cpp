#include "wire/sample_log.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace harmonics::wire {

void SampleLog::begin(uint64_t index, std::map<SenderName, Position> senders) {
  first_ = end_ = index;
  senders_ = std::move(senders);
  runs_.clear();
}

void SampleLog::add(const SenderName& sender, uint64_t epoch, uint64_t seq, uint32_t count) {
  Run* const last = runs_.empty() ? nullptr : &runs_.back();
  if (last && last->sender == sender && last->epoch == epoch && last->seq + last->count == seq)
    last->count += count;
  else
    runs_.push_back({end_, sender, epoch, seq, count});
  end_ += count;
}

std::map<SenderName, Position> SampleLog::at(uint64_t index) const {
  if (index < first_ || index > end_)
    throw Error(ErrorKind::Internal,
                fmt::format("the position before sample {} is requested, but only those from {} to {} are known", index,
                            first_, end_));
  std::map<SenderName, Position> senders = senders_;
  for (const Run& run : runs_) {
    if (run.begin >= index) break;
    senders[run.sender] = {run.epoch, run.seq + std::min(run.count, index - run.begin), false};
  }
  return senders;
}

void SampleLog::forget(uint64_t index) {
  if (index <= first_) return;
  senders_ = at(index);
  while (!runs_.empty() && runs_.front().begin + runs_.front().count <= index) runs_.pop_front();
  if (!runs_.empty() && runs_.front().begin < index) {
    Run& run = runs_.front();
    const uint64_t gone = index - run.begin;
    run.begin += gone, run.seq += gone, run.count -= gone;
  }
  first_ = index;
}

uint64_t SampleLog::last_of(const SenderName& sender) const {
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run)
    if (run->sender == sender) return run->begin + run->count;
  return first_;
}

}  // namespace harmonics::wire
