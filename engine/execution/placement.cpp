#include "engine/execution/placement.hpp"

#include <algorithm>
#include <numeric>

namespace harmonics {

namespace {

uint64_t aligned(uint64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// `taken`: {begin, end} of what is alive at the same time, by begin.
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

}  // namespace

Placement place_buffers(const std::vector<BufferSpan>& buffers) {
  std::vector<uint32_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return buffers[a].bytes > buffers[b].bytes; });

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

}  // namespace harmonics
