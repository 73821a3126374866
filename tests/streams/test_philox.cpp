#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

#include <harmonics/philox.hpp>

using namespace harmonics;

TEST_CASE("philox gives the published numbers") {  // Random123's known answers
  using Block = std::array<uint32_t, 4>;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a bounded draw is below its bound and even") {
  PhiloxStream random(philox_key(1, 2), 3);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(random.below(7));
  for (const int c : counts) CHECK(std::abs(c - 10000) < 400);
  for (const uint32_t n : {1u, 2u, 0x80000001u, 0xFFFFFFFFu})
    for (int i = 0; i < 100; ++i) CHECK(random.below(n) < n);
}

TEST_CASE("a shuffled order is a permutation that depends on its arguments only") {
  for (const uint32_t n : {0u, 1u, 2u, 3u, 64u, 1000u, 8192u}) {
    std::vector<uint32_t> a(n), b(n), sorted;
    shuffled_order(a.data(), n, 5, 1, 2);
    shuffled_order(b.data(), n, 5, 1, 2);
    CHECK(a == b);
    sorted = a;
    std::sort(sorted.begin(), sorted.end());
    std::vector<uint32_t> all(n);
    std::iota(all.begin(), all.end(), 0u);
    CHECK(sorted == all);
    if (n < 64) continue;
    for (const auto& [seed, epoch, block] : {std::array<uint64_t, 3>{6, 1, 2}, {5, 2, 2}, {5, 1, 3}, {5, 2, 1}}) {
      shuffled_order(b.data(), n, seed, epoch, block);
      CHECK(a != b);
    }
  }
}

TEST_CASE("every order of a few samples is equally frequent") {
  std::vector<int> counts(24);
  for (uint64_t block = 0; block < 24000; ++block) {
    uint32_t o[4];
    shuffled_order(o, 4, 0, 0, block);
    int rank = 0;
    for (int i = 0; i < 4; ++i) {
      int smaller = 0;
      for (int k = i + 1; k < 4; ++k) smaller += o[k] < o[i];
      rank = rank * (4 - i) + smaller;
    }
    ++counts.at(static_cast<size_t>(rank));
  }
  for (const int c : counts) CHECK(std::abs(c - 1000) < 150);
}
