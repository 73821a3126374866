// Buffers that are live at the same time do not overlap in the arena, for any number of buffers.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "engine/execution/placement.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

// Returns the maximum of live bytes.
uint64_t peak(const std::vector<BufferSpan>& buffers) {
  std::map<uint32_t, int64_t> change;
  for (const BufferSpan& b : buffers) {
    const auto bytes = static_cast<int64_t>((b.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
    change[b.first] += bytes;
    change[b.last + 1] -= bytes;
  }
  int64_t now = 0, most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, now += bytes);
  return static_cast<uint64_t>(most);
}

// Keeps live buffers by offset, and compares each new one with its two neighbours.
bool lie_apart(const std::vector<BufferSpan>& buffers, const Placement& placement) {
  std::map<uint32_t, std::vector<uint32_t>> begin, end;
  for (uint32_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].bytes == 0) continue;
    if (placement.offsets[b] % kArenaAlignment != 0 || placement.offsets[b] + buffers[b].bytes > placement.bytes)
      return false;
    begin[buffers[b].first].push_back(b);
    end[buffers[b].last + 1].push_back(b);
  }
  std::map<uint64_t, uint32_t> alive;
  const auto until = [&](uint32_t b) { return placement.offsets[b] + buffers[b].bytes; };
  for (const auto& [step, those] : begin) {
    while (!end.empty() && end.begin()->first <= step) {
      for (const uint32_t b : end.begin()->second) alive.erase(placement.offsets[b]);
      end.erase(end.begin());
    }
    for (const uint32_t b : those) {
      const auto [at, fresh] = alive.emplace(placement.offsets[b], b);
      if (!fresh) return false;
      if (at != alive.begin() && until(std::prev(at)->second) > at->first) return false;
      if (std::next(at) != alive.end() && until(b) > std::next(at)->first) return false;
    }
  }
  return true;
}

std::vector<BufferSpan> random_spans(size_t count, uint32_t most_steps, std::mt19937& random) {
  std::vector<BufferSpan> buffers;
  for (size_t i = 0; i < count; ++i) {
    const auto first = static_cast<uint32_t>(random() % (count / 2 + 1));
    buffers.push_back({random() % 4 == 0 ? random() % 100000 : random() % 300, first,
                       first + static_cast<uint32_t>(random() % most_steps)});
  }
  return buffers;
}

}  // namespace

TEST_CASE("placement: live buffers do not overlap, few and many") {
  std::mt19937 random(7);
  for (const size_t count : {0u, 1u, 2u, 13u, 500u, 3000u, 8193u, 40000u}) {
    const auto buffers = random_spans(count, 40, random);
    const Placement placement = place_buffers(buffers);
    INFO(count << " buffers, " << placement.bytes << " bytes, at least " << peak(buffers));
    CHECK(lie_apart(buffers, placement));
    CHECK(placement.bytes <= peak(buffers) * 2);
  }
}

TEST_CASE("placement: a deep network needs little more than its live bytes") {
  // Each layer keeps a result until its gradient exists, and has two more that the next step needs.
  constexpr uint32_t kLayers = 60'000;
  std::vector<BufferSpan> buffers;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const uint32_t forward = 2 * layer, backward = 4 * kLayers - 2 * layer;
    buffers.push_back({640, forward, backward + 1});
    buffers.push_back({300, forward, forward + 1});
    buffers.push_back({640, backward, backward + 3});
    buffers.push_back({128, backward, backward});
  }
  const Placement placement = place_buffers(buffers);
  CHECK(lie_apart(buffers, placement));
  CHECK(placement.bytes <= peak(buffers) * 101 / 100);
}
