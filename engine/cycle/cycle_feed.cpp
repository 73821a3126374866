#include "engine/cycle/cycle_feed.hpp"

#include <time.h>

#include <fmt/core.h>

namespace harmonics::engine {

CycleFeed::CycleFeed(CyclePlan& plan, uint64_t epoch, uint64_t index) : plan_(plan), epoch_(epoch) {
  if (!plan_.from) plan_.reader->seek(epoch, index);
  if (plan_.epochs > 0 && epoch >= static_cast<uint64_t>(plan_.epochs))
    passes_ended_.store(true, std::memory_order_relaxed);
}

void CycleFeed::allocate(const std::vector<std::optional<TensorType>>& results) {
  prefetch_bytes_.resize(plan_.producers.size());
  for (size_t i = 0; i < prefetch_bytes_.size(); ++i) prefetch_bytes_[i] = plan_.reader->bytes(i) * plan_.batch;
  const ItemPtr device = plan_.graph.registry().find(HX_DEVICE, plan_.run.device);
  if (device && has_own_memory(*device))
    prefetch_ = InputPrefetch::open(device, plan_.graph.store().queue_on(device), prefetch_bytes_, slots_.size());
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    for (size_t i = 0; i < prefetch_bytes_.size(); ++i) {
      void* p = nullptr;
      if (prefetch_) {
        p = prefetch_->host(s, i);
      } else {
        // Kernels read the data in place, so it is aligned to 64 bytes.
        auto& bytes = slot.streams.emplace_back(prefetch_bytes_[i] + 64);
        p = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
      }
      slot.targets.push_back(p);
      slot.pointers.push_back(p);
    }
    for (const auto& type : results) slot.results.emplace_back(type ? type->bytes() * plan_.batch : 0);
    slot.delivers.resize(results.size());
    slot.reads.resize(plan_.producers.size());
  }
}

Slot* CycleFeed::next() {
  if (passes_ended()) return nullptr;
  Slot& slot = slots_[next_slot_];
  fill(slot);
  return slot.count == 0 ? nullptr : &take();
}

Slot& CycleFeed::take() {
  Slot& slot = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % slots_.size();
  slot.sequence = read_++;
  return slot;
}

// Uses the coarse clock: this is called three times per step, and the precise clock costs a tenth of the smallest step.
double feed_clock() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void CycleFeed::fill(Slot& slot) {
  slot.asked = feed_clock();
  const auto at = static_cast<size_t>(&slot - slots_.data());
  if (prefetch_) prefetch_->renew(at);
  read(slot);
  slot.ready = feed_clock();
  if (!prefetch_ || slot.count == 0) return;
  for (size_t i = 0; i < prefetch_bytes_.size(); ++i) prefetch_bytes_[i] = plan_.reader->bytes(i) * slot.count;
  prefetch_->start(at, prefetch_bytes_);
}

void CycleFeed::read(Slot& slot) {
  slot.count = 0;
  if (stream_ended() || passes_ended()) return;
  slot.count = plan_.reader->read(plan_.batch, slot.targets.data());
  while (slot.count == 0) {
    if (!next_pass()) return;
    slot.count = plan_.reader->read(plan_.batch, slot.targets.data());
  }
  slot.epoch = epoch_;
  slot.end = plan_.reader->position();
  for (size_t i = 0; i < slot.reads.size(); ++i) slot.reads[i] = plan_.reader->reads(i);
}

bool CycleFeed::next_pass() {
  if (plan_.reader->position() == 0 && plan_.reader->was_cut()) {  // stopped before the first sample
    stream_ended_.store(true, std::memory_order_relaxed);
    return false;
  }
  if (plan_.reader->position() == 0)
    throw Error(ErrorKind::Stream, fmt::format("the streams of '{}' have no samples", plan_.graph.graph().name));
  ++epoch_;
  if (plan_.once) {
    stream_ended_.store(true, std::memory_order_relaxed);
    return false;
  }
  if (plan_.epochs >= 0 && static_cast<int64_t>(epoch_) >= plan_.epochs) {
    passes_ended_.store(true, std::memory_order_relaxed);
    return false;
  }
  plan_.reader->begin(epoch_);
  return true;
}

}  // namespace harmonics::engine
