// The gradient of attention, by blocks of keys and queries. Keys and values are transposed once per block of keys;
// scores are recomputed block by block.
#ifdef HM_ISA

#include "attention_rows.hpp"
#include "gemm.hpp"
#include "softmax_power.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kBlock = kGradientBlock;
constexpr int64_t kTileRows = 8;  // queries per tile of scores, and per step along the mask's staircase

// Softmax statistics of a head's queries: p = 2^(scaled score - shift) * share; the gradient of a score is
// p * (by * dp - less).
struct SoftmaxRows {
  float *shift, *share, *less, *by;

  SoftmaxRows from(int64_t i) const { return {shift + i, share + i, less + i, by + i}; }
};

// Workspace of a part.
struct GradientRoom {
  float *keys_by_column, *values_by_column;  // [width][kBlock]
  float *p, *dp;                             // [query][key]
  float *dk, *dv;                            // contiguous results of a block
  float *queries, *douts, *dq, *keys;        // contiguous rows of all heads of the item; keys: of a block
  SoftmaxRows rows;                          // of all heads of the item, each padded to whole blocks

  GradientRoom(const AttentionContext& c, float* at) {
    const auto take = [&](int64_t n) { return (at += n) - n; };
    keys_by_column = take(c.width * kBlock);
    values_by_column = take(c.value_width * kBlock);
    p = take(kBlock * kBlock);
    dp = take(kBlock * kBlock);
    dk = take(c.copies ? kBlock * c.width : 0);
    dv = take(c.copies ? kBlock * c.value_width : 0);
    const int64_t dense_rows = c.dense_rows ? c.group * c.queries : 0;
    queries = take(dense_rows * c.width);
    douts = take(dense_rows * c.value_width);
    dq = take(dense_rows * c.width);
    keys = take(c.dense_rows ? kBlock * c.width : 0);
    const int64_t rows_of_item = c.group * whole_blocks(c.queries);
    rows = {take(rows_of_item), take(rows_of_item), take(rows_of_item), take(rows_of_item)};
  }
};

// Above this magnitude the rounding error of lse would affect all probabilities of the row, so the statistics are
// computed again from the scores.
constexpr float kNear = 32;

bool is_far(const float* lse, int64_t queries) {
  vi far{};
  for (int64_t i = 0; i < queries; i += kWidth) {
    const vf x = load_some(lse + i, lanes_at(i, queries));
    far |= (vabs(x) > kNear) & (x != -kInfinity);
  }
  return any(far);
}

void rows_from_lse(const float* lse, int64_t queries, const SoftmaxRows& rows) {
  for (int64_t i = 0; i < queries; i += kWidth) {
    const vf x = load_some(lse + i, lanes_at(i, queries));
    store(rows.shift + i, choose(x == -kInfinity, splat(kInfinity), x * kLog2E));
    store(rows.share + i, splat(1));
  }
}

// ---- products of queries and transposed keys; end(query, key, sum) receives a vector of keys

template <int kRows, int kVectors, typename End>
HM_INLINE void product_tile(const float* a, int64_t a_row, const float* b, int64_t depth, NextHead& next, End end) {
  vf sum[kRows][kVectors] = {};
  for (int64_t d = 0; d < depth; ++d) {
    next.one();
    vf column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = load(b + d * kBlock + v * kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const vf x = splat(a[i * a_row + d]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] = fma(x, column[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) end(i, v * kWidth, sum[i][v]);
}

// kRows queries times the first `keys` keys.
template <int kRows, typename End>
HM_INLINE void product_rows(int64_t keys, const float* a, int64_t a_row, const float* b, int64_t depth, NextHead& next,
                            End end) {
  int64_t k = 0;
  const auto tiles = [&]<int kTile, int kVectors>() __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int r = 0; r < kRows; r += kTile)
      product_tile<kTile, kVectors>(
          a + r * a_row, a_row, b + k, depth,
          next, [&](int i, int64_t v, vf sum) __attribute__((always_inline)) { end(r + i, k + v, sum); });
  };
  constexpr int kHalf = kRows < 4 ? kRows : 4;
  if constexpr (kWidth == 16) {
    switch ((keys + kWidth - 1) / kWidth) {
      case 0:
        break;
      case 1:
        tiles.template operator()<kRows, 1>();
        break;
      case 2:
        tiles.template operator()<kRows, 2>();
        break;
      case 3:
        tiles.template operator()<kRows, 3>();
        break;
      default:
        tiles.template operator()<kHalf, 4>();
        break;
    }
  } else {
    for (; k < keys; k += 2 * kWidth) tiles.template operator()<kHalf, 2>();
  }
}

template <typename End>
[[gnu::noinline]] void block_products(const Staircase& at, const float* a, int64_t a_row, const float* b, int64_t depth,
                                      NextHead& next, End end) {
  int64_t r = 0;
  for (; r + kTileRows <= at.rows; r += kTileRows)
    product_rows<kTileRows>(
        at.seen(r + kTileRows), a + r * a_row, a_row, b, depth,
        next, [&](int i, int64_t key, vf sum) __attribute__((always_inline)) { end(r + i, key, sum); });
  for (; r < at.rows; ++r)
    product_rows<1>(
        at.seen(), a + r * a_row, a_row, b, depth,
        next, [&](int i, int64_t key, vf sum) __attribute__((always_inline)) { end(r + i, key, sum); });
}

// Returns the mask of the lanes, keys from `key`, that are visible to query r of the block.
HM_INLINE vi seen_lanes(const Staircase& at, int64_t r, int64_t key) {
  return lanes() <= splat_int(static_cast<int32_t>(r + at.offset - key));
}

// ---- sums over queries and over keys

// out[key] = or += sum of weights[query][key] * rows[query] over the queries that see the key.
void join_queries(const Staircase& at, const float* weights, const float* rows, int64_t row, int64_t width, float* out,
                  int64_t out_row, bool add, NextHead& ahead) {
  const int64_t full = at.full(), seen = at.seen();
  gemm_broadcast(full, width, at.rows, {weights, 1, kBlock}, rows, row, out, out_row, add, FetchNext{&ahead});
  for (int64_t k = full; k < seen;) {
    const int64_t first = (k - at.offset) / kTileRows * kTileRows, next = least(seen, at.offset + first + kTileRows);
    gemm_broadcast(next - k, width, at.rows - first, {weights + first * kBlock + k, 1, kBlock}, rows + first * row, row,
                   out + k * out_row, out_row, add, FetchNext{&ahead});
    k = next;
  }
}

// out[query] = or += sum of weights[query][key] * keys[key] over the visible keys.
void join_keys(const Staircase& at, const float* weights, const float* keys, int64_t row, int64_t width, float* out,
               int64_t out_row, bool add, NextHead& ahead) {
  if (at.full() == at.keys)
    return gemm_broadcast(at.rows, width, at.keys, {weights, kBlock, 1}, keys, row, out, out_row, add,
                          FetchNext{&ahead});
  for (int64_t r = 0; r < at.rows; r += kTileRows) {
    const int64_t rows = least(kTileRows, at.rows - r), depth = at.seen(r + rows);
    if (depth > 0)
      gemm_broadcast(rows, width, depth, {weights + r * kBlock, kBlock, 1}, keys, row, out + r * out_row, out_row, add,
                     FetchNext{&ahead});
    else if (!add)
      for (int64_t i = 0; i < rows; ++i) clear(out + (r + i) * out_row, width);
  }
}

// The queries of one head and one block of keys.
struct GradientBlock {
  const AttentionContext& c;
  const GradientRoom& room;
  const float *q, *dout;  // of the head
  float* dq;
  int64_t q_row, dout_row;
  SoftmaxRows rows;
  const float* keys;  // of the block
  int64_t key_row;
  float *dk, *dv;  // of the block
  int64_t dk_row, dv_row;
  NextHead& next;

  void run(const Staircase& at, int64_t q0, bool first_keys, bool first_queries) const {
    const float *queries = q + q0 * q_row, *douts = dout + q0 * dout_row;
    if (at.full() < at.keys)
      weigh<true>(at, rows.from(q0), queries, douts);
    else
      weigh<false>(at, rows.from(q0), queries, douts);
    join_queries(at, room.p, douts, dout_row, c.value_width, dv, dv_row, !first_queries, next);
    join_queries(at, room.dp, queries, q_row, c.width, dk, dk_row, !first_queries, next);
    join_keys(at, room.dp, keys, key_row, c.width, dq + q0 * q_row, q_row, !first_keys, next);
  }

  // Fills p with probabilities and dp with the gradients of scores.
  template <bool kMasked>
  void weigh(const Staircase& at, const SoftmaxRows& r, const float* queries, const float* douts) const {
    float *const p = room.p, *const dp = room.dp;
    const vf scale = splat(c.scale * kLog2E);
    block_products(
        at, queries, q_row, room.keys_by_column, c.width,
        next, [=](int64_t i, int64_t key, vf sum) __attribute__((always_inline)) {
          const vf e = power(sum, scale, splat(r.shift[i]));
          store(p + i * kBlock + key, kMasked ? choose(seen_lanes(at, i, key), e, vf{}) : e);
        });
    for (int64_t i = 0; i < at.rows; ++i)
      if (r.share[i] != 1.0f) scale_row(p + i * kBlock, at.seen(i + 1), r.share[i]);
    block_products(
        at, douts, dout_row, room.values_by_column, c.value_width,
        next, [=](int64_t i, int64_t key, vf sum) __attribute__((always_inline)) {
          const vf dscore = load(p + i * kBlock + key) * fma(sum, splat(r.by[i]), splat(-r.less[i]));
          store(dp + i * kBlock + key, kMasked ? choose(seen_lanes(at, i, key), dscore, vf{}) : dscore);
        });
  }

  // Online softmax: updates the maximum (shift, times log2(e)), the sum (share) and the sum of p dp (less) of the rows.
  void measure(const Staircase& at, int64_t q0, bool first_keys) const {
    const SoftmaxRows r = rows.from(q0);
    const auto keep = [](float* to) {
      return [to](int64_t i, int64_t key, vf sum) __attribute__((always_inline)) { store(to + i * kBlock + key, sum); };
    };
    block_products(at, q + q0 * q_row, q_row, room.keys_by_column, c.width, next, keep(room.p));
    block_products(at, dout + q0 * dout_row, dout_row, room.values_by_column, c.value_width, next, keep(room.dp));
    for (int64_t i = 0; i < at.rows; ++i) {
      if (first_keys) r.shift[i] = -kInfinity, r.share[i] = r.less[i] = 0;
      measure_row(room.p + i * kBlock, room.dp + i * kBlock, at.seen(i + 1), r.from(i));
    }
  }
  void measure_row(const float* scores, const float* douts, int64_t keys, const SoftmaxRows& row) const {
    vf here = splat(-kInfinity);  // the exponentials propagate NaN
    for (int64_t v = 0; v < keys; v += kWidth) here = vmax(first(load(scores + v), keys - v, splat(-kInfinity)), here);
    const float scale = c.scale * kLog2E, top = max_of(here), scaled = top == -kInfinity ? top : top * scale;
    const float most = *row.shift > scaled ? *row.shift : scaled, shift = most == -kInfinity ? 0.0f : most;
    if (*row.shift != most) {
      const float factor = power(splat(*row.shift), splat(1), splat(shift))[0];
      *row.share *= factor;
      *row.less *= factor;
      *row.shift = most;
    }
    vf sum{}, products{};
    for (int64_t v = 0; v < keys; v += kWidth) {
      const vf e = first(power(load(scores + v), splat(scale), splat(shift)), keys - v, vf{});
      sum += e;
      products += first(e * load(douts + v), keys - v, vf{});
    }
    *row.share += sum_of(sum);
    *row.less += sum_of(products);
  }
};

// y[row] = a[row] b[row]
void products_of_rows(const float* a, const float* b, int64_t stride, int64_t rows, int64_t n, float* y) {
  const auto product = [&](int64_t r) __attribute__((always_inline)) {
    vf sum{};
    for (int64_t i = 0; i < n; i += kWidth)
      sum = fma(load_some(a + r * stride + i, lanes_at(i, n)), load_some(b + r * stride + i, lanes_at(i, n)), sum);
    return sum;
  };
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    _mm_storeu_ps(y + r, sums_of(product(r), product(r + 1), product(r + 2), product(r + 3)));
  for (; r < rows; ++r) y[r] = sum_of(product(r));
}

// Normalises the statistics after the last call of measure().
void end_measure(const SoftmaxRows& rows, int64_t queries) {
  for (int64_t i = 0; i < queries; ++i) {
    const float sum = rows.share[i], share = sum == 0 ? 0.0f : 1.0f / sum;
    if (sum == 0) rows.shift[i] = kInfinity;
    rows.share[i] = share;
    rows.less[i] *= share;
  }
}

// The gradients of one key and value head, and of all query heads that share it.
struct GradientItem {
  const AttentionContext& c;
  void* const* buffers;
  int64_t item;
  const GradientRoom& room;
  NextHead& next;

  const float* in(uint32_t i) const { return static_cast<const float*>(buffers[i]); }
  float* out(uint32_t i) const { return static_cast<float*>(buffers[i]); }
  int64_t heads() const { return c.shared * c.group; }
  int64_t query_head(int64_t g) const { return item * c.group + g; }
  const float* lse(int64_t g) const { return in(4) + query_head(g) * c.queries; }
  SoftmaxRows rows(int64_t g) const { return room.rows.from(g * whole_blocks(c.queries)); }
  const float* queries(int64_t g) const {
    return c.dense_rows ? room.queries + g * c.queries * c.width : head_of(in(0), c.q, query_head(g), heads());
  }
  const float* douts(int64_t g) const {
    return c.dense_rows ? room.douts + g * c.queries * c.value_width : head_of(in(5), c.out, query_head(g), heads());
  }
  float* dq(int64_t g) const {
    return c.dense_rows ? room.dq + g * c.queries * c.width : head_of(out(6), c.q, query_head(g), heads());
  }
  int64_t queries_at(int64_t q0) const { return least(kBlock, c.queries - q0); }

  // Transposes n rows of keys or values; lanes beyond the last key are zeros.
  void by_column(const float* from, int64_t row, int64_t n, int64_t width, float* to) const {
    if (n < kBlock) clear(to, width * kBlock);
    transpose(from, row, to, kBlock, n, width);
  }

  // Calls f(block, staircase, g, q0) for the blocks of queries that see any of the n keys from k0; for k0 = 0, for all
  // blocks. In descending order, since the last queries see all keys.
  template <typename F>
  void for_blocks(int64_t k0, int64_t n, float* dk, float* dv, F f) const {
    const float* const keys = head_of(in(1), c.k, item, c.shared) + k0 * c.k.row;
    by_column(keys, c.k.row, n, c.width, room.keys_by_column);
    by_column(head_of(in(2), c.v, item, c.shared) + k0 * c.v.row, c.v.row, n, c.value_width, room.values_by_column);
    const float* const key_rows = dense(keys, c.k.row, n, c.width, c.dense_rows, room.keys);
    for (int64_t g = 0; g < c.group; ++g) {
      const GradientBlock block{c,
                                room,
                                queries(g),
                                douts(g),
                                dq(g),
                                c.dense_rows ? c.width : c.q.row,
                                c.dense_rows ? c.value_width : c.out.row,
                                rows(g),
                                key_rows,
                                c.dense_rows ? c.width : c.k.row,
                                dk,
                                dv,
                                c.copies ? c.width : c.k.row,
                                c.copies ? c.value_width : c.v.row,
                                next};
      for (int64_t q0 = (c.queries - 1) / kBlock * kBlock; q0 >= 0; q0 -= kBlock) {
        const Staircase at(c, q0, queries_at(q0), k0, n);
        if (k0 == 0 || at.seen() > 0) f(block, at, g, q0);
      }
    }
  }

  void begin() const {
    bool far = false;
    for (int64_t g = 0; g < c.group; ++g) {
      const int64_t head = query_head(g);
      products_of_rows(head_of(in(5), c.out, head, heads()), head_of(in(3), c.out, head, heads()), c.out.row, c.queries,
                       c.value_width, rows(g).less);
      if (c.dense_rows) {
        copy_rows(head_of(in(0), c.q, head, heads()), c.q.row, room.queries + g * c.queries * c.width, c.width,
                  c.queries, c.width);
        copy_rows(head_of(in(5), c.out, head, heads()), c.out.row, room.douts + g * c.queries * c.value_width,
                  c.value_width, c.queries, c.value_width);
      }
      rows_from_lse(lse(g), c.queries, rows(g));
      far = far || is_far(lse(g), c.queries);
    }
    if (far) measure();
    for (int64_t g = 0; g < c.group; ++g) {
      const SoftmaxRows r = rows(g);
      for (int64_t i = 0; i < c.queries; i += kWidth) {
        const vf by = choose(is_alone(i), vf{}, splat(c.scale));
        store(r.by + i, by);
        store(r.less + i, load(r.less + i) * by);
      }
    }
  }
  // Lanes of queries with a single visible key. Its probability is 1 for any score, so the score has no gradient.
  vi is_alone(int64_t query) const {
    if (c.keys == 1) return splat_int(-1);
    const int64_t lane = c.causal ? c.queries - c.keys - query : -1;
    return lanes() == splat_int(lane < 0 || lane >= kWidth ? -1 : static_cast<int32_t>(lane));
  }

  // Computes the statistics from the scores for blocks of queries with a large lse.
  void measure() const {
    for (int64_t k0 = 0; k0 < c.keys; k0 += kBlock)
      for_blocks(k0, least(kBlock, c.keys - k0), nullptr, nullptr,
                 [&](const GradientBlock& block, const Staircase& at, int64_t g, int64_t q0) {
                   if (is_far(lse(g) + q0, at.rows)) block.measure(at, q0, k0 == 0);
                 });
    for (int64_t g = 0; g < c.group; ++g)
      for (int64_t q0 = 0; q0 < c.queries; q0 += kBlock)
        if (is_far(lse(g) + q0, queries_at(q0))) end_measure(rows(g).from(q0), queries_at(q0));
  }

  void run() const {
    float* const dk = head_of(out(7), c.k, item, c.shared);
    float* const dv = head_of(out(8), c.v, item, c.shared);
    begin();
    for (int64_t k0 = 0; k0 < c.keys; k0 += kBlock) {
      const int64_t n = least(kBlock, c.keys - k0);
      float* const block_dk = c.copies ? room.dk : dk + k0 * c.k.row;
      float* const block_dv = c.copies ? room.dv : dv + k0 * c.v.row;
      bool first = true;
      for_blocks(k0, n, block_dk, block_dv, [&](const GradientBlock& block, const Staircase& at, int64_t, int64_t q0) {
        block.run(at, q0, k0 == 0, first);
        first = false;
      });
      if (first) {  // no query sees the block
        clear(block_dk, n * c.width);
        clear(block_dv, n * c.value_width);
      }
      if (!c.copies) continue;
      copy_rows(block_dk, c.width, dk + k0 * c.k.row, c.k.row, n, c.width);
      copy_rows(block_dv, c.value_width, dv + k0 * c.v.row, c.v.row, n, c.value_width);
    }
    for (int64_t g = 0; g < c.group && c.dense_rows; ++g)
      copy_rows(dq(g), c.width, head_of(out(6), c.q, query_head(g), heads()), c.q.row, c.queries, c.width);
  }
};

}  // namespace

// q, k, v, out, lse, dout -> dq, dk, dv. An item is one key and value head with all query heads that share it.
void attention_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const AttentionContext*>(context);
  const GradientRoom room(c, static_cast<float*>(buffers[9]) + part * c.part_workspace);
  const Range items = share(c.batch * c.shared, c.parts, part);
  NextHead next;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t other = item + 1, query_head = other * c.group, heads = c.shared * c.group;
    next.set(c);
    const auto add = [&](uint32_t i, const HeadRows& at, int64_t head, int64_t of, int64_t rows, int64_t width) {
      next.add(head_of(static_cast<const float*>(buffers[i]), at, head, of), at.row, rows, width, i >= 6);
    };
    // The next part most likely runs on this thread as well.
    if (other < c.batch * c.shared && c.group == 1) {
      add(8, c.v, other, c.shared, c.keys, c.value_width);
      add(7, c.k, other, c.shared, c.keys, c.width);
      add(6, c.q, query_head, heads, c.queries, c.width);
      add(2, c.v, other, c.shared, c.keys, c.value_width);
      add(1, c.k, other, c.shared, c.keys, c.width);
      add(0, c.q, query_head, heads, c.queries, c.width);
      add(3, c.out, query_head, heads, c.queries, c.value_width);
      add(5, c.out, query_head, heads, c.queries, c.value_width);
    }
    GradientItem{c, buffers, item, room, next}.run();
  }
}

}  // namespace harmonics::cpu::HM_ISA

#endif
