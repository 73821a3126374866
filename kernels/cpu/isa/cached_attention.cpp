#include "../cached_attention.hpp"

#include "eight_bits.hpp"
#include "gemm.hpp"
#include "kernels.hpp"
#include "score_terms.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

using Cached = CachedAttentionContext;

void scale_row(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i += kWidth) store_some(x + i, load_some(x + i, lanes_at(i, n)) * factor, lanes_at(i, n));
}
void copy_row(const float* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store_some(to + i, load_some(from + i, lanes_at(i, n)), lanes_at(i, n));
}
void clear_row(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store_some(x + i, vf{}, lanes_at(i, n));
}
HM_INLINE float power_of(float x, float shift) { return power(splat(x), splat(1), splat(shift))[0]; }
HM_INLINE float finite_shift(float largest) { return largest == -kInfinity ? 0.0f : largest; }

// What a query has summed: 2^largest is the unit of sum and values.
struct Sums {
  float largest, sum;
};

// Adds a query's scores [from, to) of a block: they become weights, and `values` is brought to their unit.
[[gnu::noinline]] void weigh(const Cached& c, const ScoreTerms& terms, float* scores, int64_t from, int64_t to,
                             bool fresh, Sums& sums, float* values) {
  const int64_t begin = from / kWidth * kWidth;
  const auto mask = [&](int64_t v) __attribute__((always_inline)) { return lanes_within(v, from, to); };
  const bool changed = c.softcap > 0 || terms.any();
  vf here = splat(-kInfinity);
  for (int64_t v = begin; v < to; v += kWidth) {
    vf x = load(scores + v);
    if (changed) {
      x = c.softcap > 0 ? vtanh(choose(mask(v), x, vf{}) * (c.scale / c.softcap)) * c.softcap : x * c.scale;
      x = terms.apply(x, v, lanes_at(v, to));
      store(scores + v, x);
    }
    here = vmax(choose(mask(v), x, splat(-kInfinity)), here);  // NaN is left to the exponentials
  }
  const float scale = (changed ? 1.0f : c.scale) * kLog2E, top = max_of(here);
  const float scaled = top == -kInfinity ? top : top * scale;
  const float before = fresh ? -kInfinity : sums.largest, largest = before > scaled ? before : scaled;
  const float shift = finite_shift(largest);
  float sum = fresh ? 0.0f : sums.sum;
  if (!fresh && before != largest) {
    const float factor = power_of(before, shift);
    sum *= factor;
    scale_row(values, c.value_width, factor);
  }
  vf more{};
  for (int64_t v = begin; v < to; v += kWidth) {
    const vf e = choose(mask(v), power(load(scores + v), splat(scale), splat(shift)), vf{});
    store(scores + v, e);
    more += e;
  }
  sums = {largest, sum + sum_of(more)};
}

// Joins the sums of the next split to those of the former ones.
[[gnu::noinline]] void join(Sums& total, float* values, const Sums& next, const float* next_values, int64_t n) {
  const float largest = total.largest > next.largest ? total.largest : next.largest, shift = finite_shift(largest);
  const float a = power_of(total.largest, shift), b = power_of(next.largest, shift);
  const vf by_a = splat(a), by_b = splat(b);
  total = {largest, total.sum * a + next.sum * b};
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t some = lanes_at(i, n);
    store_some(values + i, fma(load_some(values + i, some), by_a, load_some(next_values + i, some) * by_b), some);
  }
}

// Normalises the sums of a query of `head` and returns its lse.
[[gnu::noinline]] float finish(const Cached& c, void* const* buffers, int64_t head, Sums sums, float* values) {
  if (c.sinks != kNoBuffer) {
    const float sink = static_cast<const float*>(buffers[c.sinks])[head] * kLog2E;
    const float largest = sums.largest > sink ? sums.largest : sink, shift = finite_shift(largest);
    const float factor = power_of(sums.largest, shift);
    sums = {largest, sums.sum * factor + power_of(sink, shift)};
    scale_row(values, c.value_width, factor);
  }
  const bool blind = sums.sum == 0;
  scale_row(values, c.value_width, blind ? 0.0f : 1.0f / sums.sum);
  return blind ? -kInfinity : sums.largest * kLog2 + vlog(splat(sums.sum))[0];
}

struct Query {
  int64_t batch, head, position;
  HM_INLINE float* out(const Cached& c, void* const* buffers) const {
    return static_cast<float*>(buffers[c.out_buffer]) + batch * c.out.batch + head * c.out.head + position * c.out.row;
  }
  HM_INLINE int64_t row(const Cached& c) const { return (batch * c.shared * c.group + head) * c.queries + position; }
  HM_INLINE float* lse(const Cached& c, void* const* buffers) const {
    return static_cast<float*>(buffers[c.lse]) + row(c);
  }
  HM_INLINE float* partial(const Cached& c, void* const* buffers, int64_t split) const {
    return static_cast<float*>(buffers[c.workspace]) + c.parts * c.part_workspace +
           (row(c) * c.splits + split) * partial_floats(c);
  }
};

// Workspace of a part.
struct Room {
  float *q, *scores, *values;     // of all queries of an item
  float *k_copy, *v_copy;         // of a block
  float *largest, *sums;          // of all queries: of the current split
  float *all_largest, *all_sums;  // of the splits before

  Room(const Cached& c, float* at) {
    const int64_t rows = c.tile * c.group;
    const auto take = [&](int64_t n) { return (at += (n + 15) & ~int64_t{15}) - ((n + 15) & ~int64_t{15}); };
    q = take(rows * c.width);
    scores = take(rows * kCacheBlock);
    values = take(rows * c.value_width);
    k_copy = take(c.copy_k ? kCacheBlock * c.width : 0);
    v_copy = take(c.copy_v ? kCacheBlock * c.value_width : 0);
    largest = take(rows);
    sums = take(rows);
    all_largest = take(rows);
    all_sums = take(rows);
  }
};

// Rows of a cache, from `row` on.
struct Rows {
  const float* at;
  int64_t stride;
};
Rows rows_of(const void* cache, CacheType type, const HeadRows& at, int64_t b, int64_t head, int64_t row, int64_t n,
             int64_t width, bool copies, float* copy) {
  const int64_t offset = b * at.batch + head * at.head + row * at.row;
  if (!copies) return {static_cast<const float*>(cache) + offset, at.row};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = offset + i * at.row;
    float* const to = copy + i * width;
    if (type == CacheType::f16)
      widen_f16(static_cast<const uint16_t*>(cache) + from, to, width);
    else if (type == CacheType::q8_0)
      widen_q8_0(static_cast<const char*>(cache) + from / kEightBlock * kEightBytes, to, width);
    else
      copy_row(static_cast<const float*>(cache) + from, to, width);
  }
  return {copy, width};
}

// scores[query][key]. As gemm_inner, with more rows where there are registers for them; the sums are the same.
void scores_of(int64_t queries, int64_t keys, int64_t width, const float* q, const Rows& k, float* scores) {
#if defined(__AVX512F__)
  constexpr int64_t kColumns = 32;  // keys that stay in cache while the queries are read
  for (int64_t j = 0; j < keys; j += kColumns) {
    const float* const at = k.at + j * k.stride;
    const int64_t n = least(kColumns, keys - j);
    int64_t i = 0;
    const auto rows = [&]<int kRows>() __attribute__((always_inline)) {
      inner_rows<kRows, 4>(q + i * width, width, at, k.stride, scores + i * kCacheBlock + j, kCacheBlock, n, width,
                           false);
      i += kRows;
    };
    while (i + 6 <= queries) rows.template operator()<6>();
    if (i + 4 <= queries) rows.template operator()<4>();
    if (i + 3 <= queries) rows.template operator()<3>();
    if (i + 2 <= queries) rows.template operator()<2>();
    if (i < queries) rows.template operator()<1>();
  }
#else
  gemm_inner(queries, keys, width, q, width, k.at, k.stride, scores, kCacheBlock, false);
#endif
}

// Some queries of one key and value head, with all query heads that share it.
class Item {
 public:
  Item(const Cached& c, void* const* buffers, const Room& room, int64_t item)
      : c_(c),
        buffers_(buffers),
        room_(room),
        batch_(item / c.tiles / c.shared),
        head_(item / c.tiles % c.shared),
        first_(item % c.tiles * c.tile),
        queries_(least(c.tile, c.queries - first_)),
        length_(length_of(c, buffers, batch_)) {
    const float* q = static_cast<const float*>(buffers[0]);
    for (int64_t t = 0; t < queries_; ++t)
      for (int64_t g = 0; g < c.group; ++g) {
        const Query at = query(t, g);
        copy_row(q + batch_ * c.q.batch + at.head * c.q.head + at.position * c.q.row,
                 room.q + (t * c.group + g) * c.width, c.width);
      }
  }

  // All splits of the queries, one after another.
  void run() const {
    bool begun[kMostTile] = {};
    for (int64_t split = 0; split < c_.splits; ++split) {
      bool fresh[kMostTile];
      if (!sum(split, fresh)) continue;
      for (int64_t t = 0; t < queries_; ++t) {
        if (fresh[t]) continue;
        for (int64_t g = 0; g < c_.group; ++g) join_split(t, g, begun[t]);
        begun[t] = true;
      }
    }
    for (int64_t t = 0; t < queries_; ++t)
      for (int64_t g = 0; g < c_.group; ++g) {
        const int64_t i = t * c_.group + g;
        const Query at = query(t, g);
        float* const out = at.out(c_, buffers_);
        if (!begun[t]) clear_row(out, c_.value_width);
        const Sums sums = begun[t] ? Sums{room_.all_largest[i], room_.all_sums[i]} : Sums{-kInfinity, 0};
        *at.lse(c_, buffers_) = finish(c_, buffers_, at.head, sums, out);
      }
  }

  // One split, whose sums are kept for the second phase.
  void run_apart(int64_t split) const {
    bool fresh[kMostTile];
    if (!sum(split, fresh)) return;
    for (int64_t t = 0; t < queries_; ++t)
      for (int64_t g = 0; g < c_.group && !fresh[t]; ++g) {
        const int64_t i = t * c_.group + g;
        float* const to = query(t, g).partial(c_, buffers_, split);
        to[0] = room_.largest[i];
        to[1] = room_.sums[i];
        copy_row(room_.values + i * c_.value_width, to + 2, c_.value_width);
      }
  }

 private:
  Query query(int64_t t, int64_t g) const { return {batch_, head_ * c_.group + g, first_ + t}; }
  Seen seen(int64_t t) const { return seen_by(c_, length_, first_ + t); }

  void join_split(int64_t t, int64_t g, bool begun) const {
    const int64_t i = t * c_.group + g;
    float* const out = query(t, g).out(c_, buffers_);
    const float* const values = room_.values + i * c_.value_width;
    Sums total{room_.all_largest[i], room_.all_sums[i]};
    const Sums next{room_.largest[i], room_.sums[i]};
    if (begun) {
      join(total, out, next, values, c_.value_width);
    } else {
      total = next;
      copy_row(values, out, c_.value_width);
    }
    room_.all_largest[i] = total.largest;
    room_.all_sums[i] = total.sum;
  }

  // Sums a split into the room; `fresh` stays true for queries that see none of its keys. False: all of them.
  bool sum(int64_t split, bool* fresh) const {
    for (int64_t t = 0; t < queries_; ++t) fresh[t] = true;
    bool any = false;
    const int64_t end = least((split + 1) * kCacheSplit, c_.keys);
    for (int64_t first = split * kCacheSplit; first < end; first += kCacheBlock)
      any = block(first, least(first + kCacheBlock, end), fresh) || any;
    return any;
  }

  bool block(int64_t first, int64_t end, bool* fresh) const {
    Seen all{end, first};
    for (int64_t t = 0; t < queries_; ++t) {
      const Seen here = seen(t).within(first, end);
      if (!here.none()) all = {least(all.begin, here.begin), most_of(all.end, here.end)};
    }
    if (all.none()) return false;
    const int64_t keys = all.end - all.begin, skipped = all.begin - first;
    const Rows k =
        rows_of(buffers_[1], c_.k_type, c_.k, batch_, head_, all.begin, keys, c_.width, c_.copy_k, room_.k_copy);
    scores_of(queries_ * c_.group, keys, c_.width, room_.q, k, room_.scores + skipped);
    const Rows v =
        rows_of(buffers_[2], c_.v_type, c_.v, batch_, head_, all.begin, keys, c_.value_width, c_.copy_v, room_.v_copy);
    for (int64_t t = 0; t < queries_;) {
      const Seen here = seen(t).within(first, end);
      int64_t next = t + 1;  // queries that see the same keys are multiplied together
      while (next < queries_ && fresh[next] == fresh[t] && same(seen(next).within(first, end), here)) ++next;
      if (!here.none()) multiply(t, next, first, {here.begin - first, here.end - first}, fresh[t], v, skipped);
      for (; t < next; ++t) fresh[t] = fresh[t] && here.none();
    }
    return true;
  }
  static bool same(const Seen& a, const Seen& b) { return a.begin == b.begin && a.end == b.end; }

  void multiply(int64_t t, int64_t next, int64_t key, Seen at, bool fresh, const Rows& v, int64_t skipped) const {
    for (int64_t i = t * c_.group; i < next * c_.group; ++i) {
      Sums sums{room_.largest[i], room_.sums[i]};
      const Query row = query(i / c_.group, i % c_.group);
      const ScoreTerms terms = ScoreTerms::of(c_, buffers_, batch_, row.head, row.position, key);
      weigh(c_, terms, room_.scores + i * kCacheBlock, at.begin, at.end, fresh, sums,
            room_.values + i * c_.value_width);
      room_.largest[i] = sums.largest;
      room_.sums[i] = sums.sum;
    }
    const int64_t i = t * c_.group;
    gemm_broadcast((next - t) * c_.group, c_.value_width, at.end - at.begin,
                   {room_.scores + i * kCacheBlock + at.begin, kCacheBlock, 1}, v.at + (at.begin - skipped) * v.stride,
                   v.stride, room_.values + i * c_.value_width, c_.value_width, !fresh);
  }

  const Cached& c_;
  void* const* buffers_;
  const Room& room_;
  int64_t batch_, head_, first_, queries_, length_;
};

// Joins the splits of a query.
void join_apart(const Cached& c, void* const* buffers, int64_t row) {
  const int64_t heads = c.shared * c.group;
  const Query at{row / c.queries / heads, row / c.queries % heads, row % c.queries};
  const Seen seen = seen_by(c, length_of(c, buffers, at.batch), at.position);
  float* const out = at.out(c, buffers);
  Sums total{-kInfinity, 0};
  if (seen.none()) clear_row(out, c.value_width);
  const int64_t first = seen.begin / kCacheSplit;
  for (int64_t split = first; split * kCacheSplit < seen.end && !seen.none(); ++split) {
    const float* const from = at.partial(c, buffers, split);
    const Sums next{from[0], from[1]};
    if (split == first) {
      total = next;
      copy_row(from + 2, out, c.value_width);
    } else {
      join(total, out, next, from + 2, c.value_width);
    }
  }
  *at.lse(c, buffers) = finish(c, buffers, at.head, total, out);
}

}  // namespace

// q, k, v and the optional inputs in any order -> out, lse. Items are dealt to the parts in turn: short lengths leave
// the later splits empty.
void cached_attention(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const Cached*>(context);
  if (phase == 1) {
    const Range rows = share(c.batch * c.shared * c.group * c.queries, c.merge_parts, part);
    for (int64_t row = rows.begin; row < rows.end; ++row) join_apart(c, buffers, row);
    return;
  }
  const Room room(c, static_cast<float*>(buffers[c.workspace]) + part * c.part_workspace);
  const int64_t heads = c.batch * c.shared * c.tiles;
  for (int64_t i = part; i < heads * (c.apart ? c.splits : 1); i += c.parts) {
    const Item item(c, buffers, room, i % heads);
    if (c.apart)
      item.run_apart(i / heads);
    else
      item.run();
  }
}

}  // namespace harmonics::cpu::HM_ISA
