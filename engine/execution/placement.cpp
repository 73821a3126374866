#include "engine/execution/placement.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>

namespace harmonics::engine {

namespace {

// The largest count for the quadratic algorithm, which then takes about a quarter of a second.
constexpr size_t kMostCompared = 8192;

uint64_t aligned(uint64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// Returns the offset of the tightest gap. `taken`: [begin, end) of buffers alive at the same time, sorted by begin.
uint64_t tightest_gap(const std::vector<std::pair<uint64_t, uint64_t>>& taken, uint64_t bytes) {
  uint64_t best = 0, best_gap = ~uint64_t{0}, end = 0;
  for (const auto& [from, to] : taken) {
    if (from > end && from - end >= bytes && from - end < best_gap) {
      best = end;
      best_gap = from - end;
    }
    end = std::max(end, to);
  }
  return best_gap == ~uint64_t{0} ? end : best;
}

// Free ranges of the arena, indexed by offset and by size.
class Gaps {
 public:
  // Takes the smallest free range that fits, or else grows the arena.
  uint64_t take(uint64_t bytes) {
    const auto tightest = by_size_.lower_bound({bytes, 0});
    if (tightest == by_size_.end()) return grow(bytes);
    const auto [size, at] = *tightest;
    remove(at, size);
    if (size > bytes) add(at + bytes, size - bytes);
    return at;
  }
  void give(uint64_t at, uint64_t bytes) {
    const auto after = by_place_.lower_bound(at);
    if (after != by_place_.begin()) {
      const auto [place, size] = *std::prev(after);
      if (place + size == at) {
        remove(place, size);
        at = place, bytes += size;
      }
    }
    if (const auto next = by_place_.find(at + bytes); next != by_place_.end()) {
      const uint64_t size = next->second;
      remove(at + bytes, size);
      bytes += size;
    }
    add(at, bytes);
  }
  uint64_t end() const { return end_; }

 private:
  uint64_t grow(uint64_t bytes) {
    uint64_t at = end_;
    if (!by_place_.empty()) {
      const auto [place, size] = *by_place_.rbegin();
      if (place + size == end_) {
        remove(place, size);
        at = place;
      }
    }
    end_ = at + bytes;
    return at;
  }
  void add(uint64_t at, uint64_t bytes) {
    by_place_[at] = bytes;
    by_size_.insert({bytes, at});
  }
  void remove(uint64_t at, uint64_t bytes) {
    by_place_.erase(at);
    by_size_.erase({bytes, at});
  }

  std::map<uint64_t, uint64_t> by_place_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
  uint64_t end_ = 0;
};

// Places buffers in step order, best fit.
Placement place_by_step(const std::vector<BufferSpan>& buffers) {
  std::vector<uint32_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(buffers[a].first, ~buffers[a].bytes) < std::pair(buffers[b].first, ~buffers[b].bytes);
  });
  Placement placement{std::vector<uint64_t>(buffers.size(), 0), 0};
  Gaps gaps;
  using Alive = std::pair<uint32_t, uint32_t>;  // last step, buffer
  std::priority_queue<Alive, std::vector<Alive>, std::greater<>> alive;
  for (const uint32_t b : order) {
    if (buffers[b].bytes == 0) continue;
    for (; !alive.empty() && alive.top().first < buffers[b].first; alive.pop()) {
      const uint32_t over = alive.top().second;
      gaps.give(placement.offsets[over], aligned(buffers[over].bytes));
    }
    placement.offsets[b] = gaps.take(aligned(buffers[b].bytes));
    alive.emplace(buffers[b].last, b);
  }
  placement.bytes = gaps.end();
  return placement;
}

}  // namespace

Placement place_buffers(const std::vector<BufferSpan>& buffers) {
  if (buffers.size() > kMostCompared) return place_by_step(buffers);
  std::vector<uint32_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return buffers[a].bytes > buffers[b].bytes; });

  Placement placement{std::vector<uint64_t>(buffers.size(), 0), 0};
  std::vector<uint32_t> placed;  // by offset
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  for (uint32_t b : order) {
    const BufferSpan& buffer = buffers[b];
    if (buffer.bytes == 0) continue;
    taken.clear();
    for (uint32_t other : placed)
      if (buffers[other].first <= buffer.last && buffer.first <= buffers[other].last)
        taken.emplace_back(placement.offsets[other], placement.offsets[other] + aligned(buffers[other].bytes));
    const uint64_t offset = tightest_gap(taken, aligned(buffer.bytes));
    placement.offsets[b] = offset;
    placement.bytes = std::max(placement.bytes, offset + aligned(buffer.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                   [&](uint32_t x, uint32_t y) { return placement.offsets[x] < placement.offsets[y]; }),
                  b);
  }
  return placement;
}

}  // namespace harmonics::engine
