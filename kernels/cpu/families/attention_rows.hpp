// Shared by attention and its gradient: rows of heads, the causal mask of a block, prefetch of the next head.
#pragma once

#include "../attention.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Causal mask of a block: query r sees the keys before r + 1 + offset, at most `keys`. The last query of the sequence
// sees all keys.
struct Staircase {
  int64_t offset, rows, keys;

  Staircase(const AttentionContext& c, int64_t first_query, int64_t queries, int64_t first_key, int64_t n)
      : offset(c.causal ? first_query + c.keys - c.queries - first_key : n), rows(queries), keys(n) {}
  // Number of keys visible to any of the first r queries.
  HM_INLINE int64_t seen(int64_t r) const {
    const int64_t n = (r < rows ? r : rows) + offset;
    return n < 0 ? 0 : least(n, keys);
  }
  HM_INLINE int64_t seen() const { return seen(rows); }
  // Number of keys visible to every query.
  HM_INLINE int64_t full() const { return offset < 0 ? 0 : least(offset, seen()); }
};

// Prefetches the rows of the next head into the L2 cache: one line every few k-loop steps of the current head's
// products.
class NextHead {
 public:
  HM_INLINE void one() {
    if (--wait_ > 0) return;
    wait_ = every_;
    if (left_ == 0 && !advance()) return;
    if (write_)
      __builtin_prefetch(at_, 1, 2);
    else
      __builtin_prefetch(at_, 0, 2);
    at_ += 16;
    --left_;
  }
  // Starts a new head. Without a prefetch distance (ahead_every 0) nothing is prefetched.
  void set(const AttentionContext& c) {
    areas_ = left_ = 0;
    wait_ = every_ = c.ahead_every;
  }
  // `write`: the rows will be written.
  void add(const float* rows, int64_t step, int64_t n, int64_t width, bool write = false) {
    if (every_ > 0 && n > 0) area_[areas_++] = {rows, step, n, (width + 15) / 16, write};
  }

 private:
  struct Area {
    const float* at;
    int64_t step, rows, lines;
    bool write;
  };
  bool advance() {
    if (areas_ == 0) return false;
    Area& a = area_[areas_ - 1];
    at_ = a.at;
    left_ = a.lines;
    write_ = a.write;
    a.at += a.step;
    if (--a.rows == 0) --areas_;
    return true;
  }

  const float* at_ = nullptr;
  int64_t left_ = 0, every_ = 0, wait_ = 0;
  Area area_[8];
  int areas_ = 0;
  bool write_ = false;
};
struct FetchNext {
  NextHead* next;
  HM_INLINE void one() { next->one(); }
};

[[maybe_unused]] void scale_row(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i += kWidth) store_some(x + i, load_some(x + i, lanes_at(i, n)) * factor, lanes_at(i, n));
}

// Returns the rows of a head in x, which has `heads` heads per sample.
template <typename T>
HM_INLINE T* head_of(T* x, const HeadRows& at, int64_t head, int64_t heads) {
  return x + head / heads * at.batch + head % heads * at.head;
}

[[maybe_unused]] void copy_rows(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t n,
                                int64_t width) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; j += kWidth)
      store_some(to + i * to_row + j, load_some(from + i * from_row + j, lanes_at(j, width)), lanes_at(j, width));
}
// Returns the rows in place, or a copy in `room` with leading dimension `width`.
[[maybe_unused]] const float* dense(const float* rows, int64_t stride, int64_t n, int64_t width, bool copies,
                                    float* room) {
  if (!copies) return rows;
  copy_rows(rows, stride, room, width, n, width);
  return room;
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
