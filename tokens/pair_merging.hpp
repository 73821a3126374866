// Merges adjacent symbols, as in byte-pair encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace harmonics::tokens {

// A range of the text, and its symbol.
struct Symbol {
  size_t begin = 0, end = 0;
  int32_t id = -1;  // -1: no symbol has this text
};

struct Joined {
  double rank;  // the lowest is merged first
  int32_t id;
};

// Merges adjacent symbols until no pair can be merged, always the pair of lowest rank, of equal ranks the leftmost.
// `join` returns the rank and id of the merged symbol, or none. Takes O(n log n) time.
template <typename Join>
std::vector<Symbol> merge_pairs(std::vector<Symbol> symbols, Join join) {
  struct Pair {
    double rank;
    size_t left, right, begin, end;  // detect stale pairs: a side has changed since
    int32_t id;
    bool operator<(const Pair& other) const {  // for a max-heap: the lowest rank first
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  const size_t n = symbols.size();
  std::vector<size_t> before(n), after(n);
  for (size_t i = 0; i < n; ++i) before[i] = i ? i - 1 : n, after[i] = i + 1;
  std::priority_queue<Pair> pairs;
  const auto consider = [&](size_t left, size_t right) {
    if (left >= n || right >= n) return;
    if (const std::optional<Joined> joined = join(symbols[left], symbols[right]))
      pairs.push({joined->rank, left, right, symbols[right].begin, symbols[right].end, joined->id});
  };
  for (size_t i = 0; i + 1 < n; ++i) consider(i, i + 1);
  std::vector<bool> gone(n);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    Symbol &left = symbols[pair.left], &right = symbols[pair.right];
    if (gone[pair.left] || gone[pair.right] || left.end != pair.begin || right.end != pair.end) continue;
    left.end = right.end;
    left.id = pair.id;
    gone[pair.right] = true;
    after[pair.left] = after[pair.right];
    if (after[pair.left] < n) before[after[pair.left]] = pair.left;
    consider(before[pair.left], pair.left);
    consider(pair.left, after[pair.left]);
  }
  std::vector<Symbol> result;
  for (size_t i = 0; i < n; ++i)
    if (!gone[i]) result.push_back(symbols[i]);
  return result;
}

}  // namespace harmonics::tokens
