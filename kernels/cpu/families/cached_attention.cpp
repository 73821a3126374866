// Attention over a key-value cache, with masks, biases, sinks and pages.
#include "../cached_attention.hpp"

#include "../family.hpp"

#ifdef HM_ISA

#include "cached_rows.hpp"
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

// Running softmax state of a query: `sum` and the values are scaled by 2^-largest.
struct Sums {
  float largest, sum;
};

// Online softmax: replaces a query's scores [from, to) of a block by weights, and rescales `values` to the new maximum.
[[gnu::noinline]] void weigh(const Cached& c, const ScoreTerms& terms, float* scores, int64_t from, int64_t to,
                             bool fresh, Sums& sums, float* values) {
  const int64_t begin = from / kWidth * kWidth;
  const bool changed = c.softcap > 0 || terms.any(), whole = from == begin && to % kWidth == 0;
  const auto mask = [&](int64_t v) __attribute__((always_inline)) { return lanes_within(v, from, to); };
  vf here = splat(-kInfinity);  // the exponentials propagate NaN
  if (whole && !changed) {
    for (int64_t v = begin; v < to; v += kWidth) here = vmax(load(scores + v), here);
  } else {
    for (int64_t v = begin; v < to; v += kWidth) {
      vf x = load(scores + v);
      if (changed) {
        x = c.softcap > 0 ? vtanh(choose(mask(v), x, vf{}) * (c.scale / c.softcap)) * c.softcap : x * c.scale;
        x = terms.apply(x, v, lanes_at(v, to));
        store(scores + v, x);
      }
      here = vmax(choose(mask(v), x, splat(-kInfinity)), here);
    }
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
  const auto weights = [&](int64_t v) __attribute__((always_inline)) {
    return power(load(scores + v), splat(scale), splat(shift));
  };
  const auto keep = [&](int64_t v, vf e) __attribute__((always_inline)) {
    store(scores + v, e);
    more += e;
  };
  if (whole)
    for (int64_t v = begin; v < to; v += kWidth) keep(v, weights(v));
  else
    for (int64_t v = begin; v < to; v += kWidth) keep(v, choose(mask(v), weights(v), vf{}));
  sums = {largest, sum + sum_of(more)};
}

// Merges the sums of the next split into those of the previous splits.
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
  float *q, *scores, *values;     // by query row of the item
  float *k_copy, *v_copy;         // of a block
  float *largest, *sums;          // by query row, for the current split
  float *all_largest, *all_sums;  // by query row, for the previous splits
  int8_t* packed_q = nullptr;     // for AMX tiles
  float* q_units = nullptr;

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
    if (!c.k_tiles) return;
    packed_q = reinterpret_cast<int8_t*>(take(packed_query_bytes(rows, c.width) / 4));
    q_units = take(query_sets(rows) * kTileQueries);
  }
};

// Rows of floats with a leading dimension.
struct Dense {
  const float* at;
  int64_t stride;
};
// Packs rows [from, to) of a cache contiguously into `copy`, as floats.
Dense copied(const Rows& rows, int64_t from, int64_t to, int64_t width, float* copy) {
  Ahead ahead(rows, from, to);
  ahead.fetch(16);
  rows.each(from, to, [&](const char* row, int64_t first, int64_t n) {
    for (int64_t i = first - from; i < first - from + n; ++i, row += rows.stride()) {
      float* const at = copy + i * width;
      ahead.fetch(1);
      if (rows.type() == CacheType::f16)
        widen_f16(reinterpret_cast<const uint16_t*>(row), at, width);
      else if (rows.type() == CacheType::bf16)
        widen_bf16(reinterpret_cast<const uint16_t*>(row), at, width);
      else if (rows.type() == CacheType::q8_0)
        widen_q8_0(row, at, width);
      else
        copy_row(reinterpret_cast<const float*>(row), at, width);
    }
  });
  return {copy, width};
}
Dense floats_at(const char* rows, const Rows& of) { return {reinterpret_cast<const float*>(rows), of.stride() / 4}; }

// Computes scores[query][key], in the order of summation of few_scores.
void scores_of(int64_t queries, int64_t keys, int64_t width, const float* q, const Dense& k, float* scores) {
#if defined(__AVX512F__)
  Ahead none;
  few_scores<FloatRows>(queries, keys, width, q, reinterpret_cast<const char*>(k.at), k.stride * 4, scores, none);
#else
  gemm_inner(queries, keys, width, q, width, k.at, k.stride, scores, kCacheBlock, false);
#endif
}

// A tile of queries of one key and value head, for all query heads that share it.
class Item {
 public:
  Item(const Cached& c, void* const* buffers, const Room& room, int64_t batch, int64_t head, int64_t tile)
      : c_(c),
        buffers_(buffers),
        room_(room),
        k_(c.pages, buffers, buffers[1], c.k_type, c.k, batch, head, c.width),
        v_(c.pages, buffers, buffers[2], c.v_type, c.v, batch, head, c.value_width),
        batch_(batch),
        head_(head),
        first_(tile * c.tile),
        queries_(least(c.tile, c.queries - first_)),
        length_(length_of(c, buffers, batch_)) {
    const float* q = static_cast<const float*>(buffers[0]);
    for (int64_t t = 0; t < queries_; ++t)
      for (int64_t g = 0; g < c.group; ++g) {
        const Query at = query(t, g);
        copy_row(q + batch_ * c.q.batch + at.head * c.q.head + at.position * c.q.row,
                 room.q + (t * c.group + g) * c.width, c.width);
      }
    if (c.k_tiles) c.k_tiles->pack_queries(room.q, queries_ * c.group, c.width, room.packed_q, room.q_units);
  }

  // Computes and merges all splits of the queries in order.
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

  // Computes one split and stores its sums for the second phase.
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

  // Sums a split into the room. Sets `fresh` for queries that see none of its keys; returns false if all queries are.
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
    scores_of_block(all, first);
    if (c_.v_tiles) {
      add_tiles(first, end, all, fresh);
      return true;
    }
    const Dense copy = c_.copy_v ? copied(v_, all.begin, all.end, c_.value_width, room_.v_copy) : Dense{};
    Ahead ahead(k_, end, least(end + kCacheBlock, seen(queries_ - 1).end));
    for (int64_t t = 0; t < queries_;) {
      const Seen here = seen(t).within(first, end);
      int64_t next = t + 1;  // multiplies queries that see the same keys together
      while (next < queries_ && fresh[next] == fresh[t] && same(seen(next).within(first, end), here)) ++next;
      if (!here.none()) multiply(t, next, first, here, fresh[t], copy, all.begin, ahead);
      for (; t < next; ++t) fresh[t] = fresh[t] && here.none();
    }
    return true;
  }

  // Computes the scores of the keys visible to any query. `first`: the key of column 0 of the block.
  void scores_of_block(const Seen& all, int64_t first) const {
    const int64_t rows = queries_ * c_.group;
    float* const scores = room_.scores - first;
    if (c_.k_tiles) {
      const char *keys[kCacheBlock], *values[kCacheBlock];
      list_rows(k_, all.begin, all.end, keys);
      const RowsAhead ahead{values, c_.few ? list_rows(v_, all.begin, all.end, values) : 0, v_.bytes()};
      c_.k_tiles->scores({room_.packed_q, room_.q_units, rows, c_.width, keys, all.end - all.begin, scores + all.begin,
                          kCacheBlock, ahead});
      return;
    }
    if (c_.copy_k) {
      scores_of(rows, all.end - all.begin, c_.width, room_.q, copied(k_, all.begin, all.end, c_.width, room_.k_copy),
                scores + all.begin);
      return;
    }
    Ahead ahead(v_, all.begin, all.end);
    k_.each(all.begin, all.end, [&](const char* k, int64_t key, int64_t n) {
      if (!c_.few) return scores_of(rows, n, c_.width, room_.q, floats_at(k, k_), scores + key);
      with_type(
          c_.k_type, [&]<typename Cache>(Cache) __attribute__((always_inline)) {
            few_scores<Cache>(rows, n, c_.width, room_.q, k, k_.stride(), scores + key, ahead);
          });
    });
  }
  // Lists the addresses of rows [from, to); returns their number.
  static int64_t list_rows(const Rows& rows, int64_t from, int64_t to, const char** places) {
    rows.each(from, to, [&](const char* row, int64_t first, int64_t n) {
      for (int64_t i = 0; i < n; ++i) places[first - from + i] = row + i * rows.stride();
    });
    return to > from ? to - from : 0;
  }
  // Adds the values of a block to all queries by AMX tiles; `all`: the keys visible to any query.
  void add_tiles(int64_t first, int64_t end, const Seen& all, bool* fresh) const {
    const char *values[kCacheBlock], *next[kCacheBlock];
    TiledQuery queries[kMostTile];
    for (int64_t t = 0; t < queries_; ++t) {
      const Seen here = seen(t).within(first, end);
      queries[t] = {here.begin - first, here.end - first, fresh[t]};
      if (here.none()) {
        queries[t] = {0, 0, fresh[t]};
        continue;
      }
      const int64_t begin = queries[t].from / kWidth * kWidth, last = (queries[t].to + kWidth - 1) / kWidth * kWidth;
      for (int64_t g = 0; g < c_.group; ++g) {
        float* const weights = room_.scores + (t * c_.group + g) * kCacheBlock;
        weigh_row(t, g, first, here, fresh[t]);
        clear_row(weights, begin);
        clear_row(weights + last, kCacheBlock - last);
      }
      fresh[t] = false;
    }
    list_rows(v_, all.begin, all.end, values);
    const int64_t ahead = c_.few ? list_rows(k_, end, least(end + kCacheBlock, seen(queries_ - 1).end), next) : 0;
    c_.v_tiles->values({room_.scores, queries, c_.group, queries_ * c_.group, c_.value_width, values, all.begin - first,
                        all.end - first, room_.values, RowsAhead{next, ahead, k_.bytes()}});
  }
  // Replaces the scores of a query by softmax weights.
  void weigh_row(int64_t t, int64_t g, int64_t first, const Seen& at, bool fresh) const {
    const int64_t i = t * c_.group + g;
    Sums sums{room_.largest[i], room_.sums[i]};
    const Query row = query(t, g);
    const ScoreTerms terms = ScoreTerms::of(c_, buffers_, batch_, row.head, row.position, first);
    weigh(c_, terms, room_.scores + i * kCacheBlock, at.begin - first, at.end - first, fresh, sums,
          room_.values + i * c_.value_width);
    room_.largest[i] = sums.largest;
    room_.sums[i] = sums.sum;
  }
  static bool same(const Seen& a, const Seen& b) { return a.begin == b.begin && a.end == b.end; }

  // `copy`: the values from key `copied_from`, if they are copied.
  void multiply(int64_t t, int64_t next, int64_t first, const Seen& at, bool fresh, const Dense& copy,
                int64_t copied_from, Ahead& ahead) const {
    for (int64_t i = t * c_.group; i < next * c_.group; ++i) weigh_row(i / c_.group, i % c_.group, first, at, fresh);
    const int64_t begin = t * c_.group, rows = (next - t) * c_.group, width = c_.value_width;
    const float* const weights = room_.scores + begin * kCacheBlock - first;  // address of the weight of key 0
    float* const values = room_.values + begin * width;
    const auto add_values = [&](const Dense& v, int64_t key, int64_t n) {
      gemm_broadcast(rows, width, n, {weights + key, kCacheBlock, 1}, v.at, v.stride, values, width,
                     !fresh || key > at.begin);
    };
    if (c_.copy_v)
      return add_values({copy.at + (at.begin - copied_from) * copy.stride, copy.stride}, at.begin, at.end - at.begin);
    v_.each(at.begin, at.end, [&](const char* v, int64_t key, int64_t n) {
      if (!c_.few) return add_values(floats_at(v, v_), key, n);
      with_type(
          c_.v_type, [&]<typename Cache>(Cache) __attribute__((always_inline)) {
            few_values<Cache>(rows, n, width, weights + key, v, v_.stride(), !fresh || key > at.begin, values, ahead);
          });
    });
  }

  const Cached& c_;
  void* const* buffers_;
  const Room& room_;
  Rows k_, v_;
  int64_t batch_, head_, first_, queries_, length_;
};

// Divides the work of a call, whose lengths are known only at run time. A group is a tile of queries, or one split of a
// tile; it has an item for each key and value head, and the items have the same number of keys. The weight of an item
// is its number of key blocks.
class Groups {
 public:
  Groups(const Cached& c, void* const* buffers) : c_(c), buffers_(buffers) {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t g = 0; g < of_item(); ++g) total_ += c.shared * blocks(b, g);
  }

  // Calls f(batch, head, tile, split) for the items that begin in the part's share of the total weight. Items are
  // ordered by batch item, group and head.
  template <typename F>
  void each(uint32_t part, F f) const {
    const Range range = share(total_, c_.parts, part);
    int64_t at = 0;
    for (int64_t b = 0; b < c_.batch && at < range.end; ++b)
      for (int64_t g = 0; g < of_item() && at < range.end; ++g) {
        const int64_t weight = blocks(b, g), end = at + c_.shared * weight;
        if (weight > 0 && end > range.begin) {
          const int64_t skipped = at < range.begin ? (range.begin - at + weight - 1) / weight : 0;
          for (int64_t head = skipped; head < c_.shared && at + head * weight < range.end; ++head)
            f(b, head, g % c_.tiles, g / c_.tiles);
        }
        at = end;
      }
  }

 private:
  int64_t of_item() const { return c_.tiles * (c_.apart ? c_.splits : 1); }
  int64_t blocks(int64_t b, int64_t g) const {
    const int64_t length = length_of(c_, buffers_, b), first = g % c_.tiles * c_.tile;
    const Seen all{seen_by(c_, length, first).begin, seen_by(c_, length, least(first + c_.tile, c_.queries) - 1).end};
    if (!c_.apart) return 1 + (all.none() ? 0 : (all.end - all.begin) / kCacheBlock);
    const Seen here = all.within(g / c_.tiles * kCacheSplit, (g / c_.tiles + 1) * kCacheSplit);
    return here.none() ? 0 : 1 + (here.end - here.begin) / kCacheBlock;
  }

  const Cached& c_;
  void* const* buffers_;
  int64_t total_ = 0;
};

// Merges the splits of a query in order.
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

// q, k, v and the optional inputs in any order -> out, lse.
void cached_attention(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const Cached*>(context);
  if (phase == 1) {
    const Range rows = share(c.batch * c.shared * c.group * c.queries, c.merge_parts, part);
    for (int64_t row = rows.begin; row < rows.end; ++row) join_apart(c, buffers, row);
    return;
  }
  const EightBitTiles* const tiles = c.k_tiles ? c.k_tiles : c.v_tiles;
  const Room room(c, static_cast<float*>(buffers[c.workspace]) + part * c.part_workspace);
  Groups(c, buffers).each(part, [&](int64_t batch, int64_t head, int64_t tile, int64_t split) {
    const Item item(c, buffers, room, batch, head, tile);
    if (c.apart)
      item.run_apart(split);
    else
      item.run();
  });
  if (tiles) tiles->end();
}

}  // namespace harmonics::cpu::HM_ISA

#else

namespace harmonics::cpu {
namespace {

CacheType cache_type(const hx_type& x) {
  switch (x.dtype) {
    case HX_F16:
      return CacheType::f16;
    case HX_BF16:
      return CacheType::bf16;
    case HX_Q8_0:
      return CacheType::q8_0;
    default:
      return CacheType::f32;
  }
}
bool is_cache(const hx_type& x) { return is_f32(x) || kernels::is_half(x.dtype) || x.dtype == HX_Q8_0; }

}  // namespace

bool plan_cached_attention(const Site& site, hx_kernel& out) {
  constexpr double kMostApart = 32 << 20;  // limit of the splits' partial sums, bytes
  const hx_type &q = site.in(0), &k = site.in(1), &v = site.in(2);
  auto c = std::make_unique<CachedAttentionContext>();
  std::vector<std::string> names;
  if (site.inputs() < 3 || !take_sequence(site, 3, *c, names)) return false;
  if (!is_f32(q) || !is_f32(site.out(0)) || !is_f32(site.out(1)) || !is_cache(k) || !is_cache(v)) return false;
  c->tile = std::clamp<int64_t>(kMostTile / c->group, 1, c->queries);
  c->tiles = (c->queries + c->tile - 1) / c->tile;
  c->splits = (c->keys + kCacheSplit - 1) / kCacheSplit;
  c->k_type = cache_type(k);
  c->v_type = cache_type(v);
  const int64_t rows = c->tile * c->group;
  c->few = rows <= kFewRows;
  // Small groups leave most of a tile empty. The choice must not depend on the number of queries, which may not change
  // the bits of a result.
  const auto tiles_of = [&](CacheType type, int64_t width) {
    constexpr int64_t kLeastGroup = 5;
    const bool suits = type == CacheType::q8_0 && width <= kMostTiledWidth && c->group >= kLeastGroup;
    return suits ? eight_bit_tiles() : nullptr;
  };
  c->k_tiles = tiles_of(c->k_type, c->width);
  c->v_tiles = tiles_of(c->v_type, c->value_width);
  c->copy_k = !c->few && !c->k_tiles && (!is_f32(k) || c->k.row != c->width);
  c->copy_v = !c->few && !c->v_tiles && (!is_f32(v) || c->v.row != c->value_width);
  c->out_buffer = site.inputs();
  c->lse = site.inputs() + 1;
  c->workspace = site.workspace();
  const int64_t items = c->batch * c->shared * c->tiles, all_rows = c->batch * c->shared * c->group * c->queries;
  const double partials = static_cast<double>(all_rows * c->splits) * static_cast<double>(partial_floats(*c)) * 4;
  const double pairs = static_cast<double>(all_rows) * static_cast<double>(c->keys);
  const double per_pair = 1.0 + 0.1 * static_cast<double>(c->width + c->value_width) / 2;
  // More than kUsualParts for a few tokens only, because the partial sums of a long prompt would double its memory.
  // Splits balance the load if batch items differ in length.
  const bool differ = c->batch > 1 && c->lengths != kNoBuffer;
  const bool wants_more = items < kUsualParts || (c->tiles == 1 && (differ || items < wanted_parts(pairs * per_pair)));
  c->apart = wants_more && c->splits > 1 && partials <= kMostApart;
  c->parts = parts_for(pairs * per_pair, items * (c->apart ? c->splits : 1));
  c->merge_parts = parts_for(partials * 0.1, all_rows);
  const auto whole = [](int64_t floats) { return (floats + 15) & ~int64_t{15}; };
  c->part_workspace =
      whole(rows * c->width) + whole(rows * kCacheBlock) + whole(rows * c->value_width) + 4 * whole(rows);
  if (c->copy_k) c->part_workspace += whole(kCacheBlock * c->width);
  if (c->copy_v) c->part_workspace += whole(kCacheBlock * c->value_width);
  if (c->k_tiles) c->part_workspace += packed_query_bytes(rows, c->width) / 4 + whole(query_sets(rows) * kTileQueries);
  const uint64_t workspace =
      static_cast<uint64_t>(c->part_workspace) * c->parts * 4 + (c->apart ? static_cast<uint64_t>(partials) : 0);
  std::vector<uint32_t> parts{c->parts};
  if (c->apart) parts.push_back(c->merge_parts);
  answer(out, std::move(c), chosen::cached_attention(), "cached attention", parts).workspace = workspace;
  return true;
}

}  // namespace harmonics::cpu

#endif
