#include "../attention.hpp"

#include "gemm.hpp"
#include "kernels.hpp"
#include "softmax_power.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Causal mask of a block: query r sees the keys before r + 1 + offset, at most `keys`; the last query of all sees all
// keys. Lanes are queries, so a key visible to only some of them is masked.
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

// Prefetches the rows of the next head, which are in no cache, into the second level: one line per sum of the current
// head's products.
class NextHead {
 public:
  HM_INLINE void one() {
    if (left_ == 0 && !advance()) return;
    __builtin_prefetch(at_, 0, 2);
    at_ += step_;
    --left_;
  }
  // Prefetches nothing if that would evict the current head's data.
  void set(int64_t floats) {
    areas_ = left_ = 0;
    fits_ = floats * static_cast<int64_t>(sizeof(float)) <= 256 * 1024;
  }
  void add(const float* rows, int64_t step, int64_t n, int64_t width) {
    if (fits_ && n > 0) area_[areas_++] = {rows, step, n, (width + 15) / 16};
  }

 private:
  struct Area {
    const float* at;
    int64_t step, rows, lines;
  };
  bool advance() {
    if (areas_ == 0) return false;
    Area& a = area_[areas_ - 1];
    at_ = a.at;
    step_ = a.step;
    left_ = a.rows;
    a.at += 16;
    if (--a.lines == 0) --areas_;
    return true;
  }

  const float* at_ = nullptr;
  int64_t step_ = 0, left_ = 0;
  Area area_[8];
  int areas_ = 0;
  bool fits_ = false;
};
struct FetchNext {
  NextHead* next;
  HM_INLINE void one() { next->one(); }
};

void scale_row(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i += kWidth) store_some(x + i, load_some(x + i, lanes_at(i, n)) * factor, lanes_at(i, n));
}

// Rows of a head in x, which has `heads` heads per sample.
template <typename T>
HM_INLINE T* head_of(T* x, const HeadRows& at, int64_t head, int64_t heads) {
  return x + head / heads * at.batch + head % heads * at.head;
}

void copy_rows(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; j += kWidth)
      store_some(to + i * to_row + j, load_some(from + i * from_row + j, lanes_at(j, width)), lanes_at(j, width));
}
// The block's rows with stride `width`: in place, or copied to `room`.
const float* dense(const float* rows, int64_t stride, int64_t n, int64_t width, bool copies, float* room) {
  if (!copies) return rows;
  copy_rows(rows, stride, room, width, n, width);
  return room;
}

// Queries or keys handled together along the mask's staircase: rows of a tile, within a vector of queries.
constexpr int64_t kStep = kWidth < 8 ? kWidth : 8;
// scores[key][query] = k q for the keys visible to the block's queries, by vectors of queries.
void scores_of(const Staircase& at, Matrix keys, const float* by_column, int64_t width, float* scores, NextHead& next) {
  for (int64_t v = 0; v < at.rows; v += 2 * kWidth) {
    const int64_t both = at.seen(v + kWidth), one = at.seen(v + 2 * kWidth);
    const bool two = v + kWidth < at.rows;
    gemm_broadcast(both, two ? 2 * kWidth : kWidth, width, keys, by_column + v, kQueryBlock, scores + v, kQueryBlock,
                   false, FetchNext{&next});
    if (two) {
      const int64_t w = v + kWidth;
      gemm_broadcast(one - both, kWidth, width, {keys.at(both, 0), keys.row, keys.column}, by_column + w, kQueryBlock,
                     scores + both * kQueryBlock + w, kQueryBlock, false, FetchNext{&next});
    }
  }
}

// out[query] += sum of weights[key][query] values[key] over visible keys, eight queries at a time.
void join_values(const Staircase& at, const float* weights, const float* values, int64_t width, float* out,
                 int64_t out_row, bool add, NextHead& next) {
  for (int64_t r = 0; r < at.rows; r += kStep) {
    const int64_t rows = least(kStep, at.rows - r), depth = at.seen(r + rows);
    if (depth > 0)
      gemm_broadcast(rows, width, depth, {weights + r, 1, kQueryBlock}, values, width, out + r * out_row, out_row, add,
                     FetchNext{&next});
    else if (!add)
      for (int64_t i = 0; i < rows; ++i) clear(out + (r + i) * out_row, width);
  }
}

// out[key] += sum of weights[key][query] rows[query] over the queries that see the key.
void join_queries(const Staircase& at, const float* weights, const float* queries, int64_t row, int64_t width,
                  float* out, NextHead& ahead) {
  const int64_t full = at.full(), seen = at.seen();
  gemm_broadcast(full, width, at.rows, {weights, kQueryBlock, 1}, queries, row, out, width, true, FetchNext{&ahead});
  for (int64_t k = full; k < seen;) {
    const int64_t first = (k - at.offset) / kStep * kStep, next = least(seen, at.offset + first + kStep);
    gemm_broadcast(next - k, width, at.rows - first, {weights + k * kQueryBlock + first, kQueryBlock, 1},
                   queries + first * row, row, out + k * width, width, true, FetchNext{&ahead});
    k = next;
  }
}

// Calls body(key, mask) for the keys visible to the vector of queries from v on; the mask is all ones if all of them
// see the key.
template <typename Body>
HM_INLINE void for_keys(const Staircase& at, int64_t v, Body body) {
  const int64_t seen = at.seen(v + kWidth), all = least(seen, at.offset + v + 1);
  int64_t k = 0;
  for (; k < all; ++k) body(k, splat_int(-1));
  const vi query = lanes() + static_cast<int32_t>(v);
  for (; k < seen; ++k) body(k, query >= splat_int(static_cast<int32_t>(k - at.offset)));
}

// Adds a block of scores to its queries' running maximum (times log2(e)), sum and weighted values.
void join_scores(const AttentionContext& c, const Staircase& at, float* scores, bool first_block, float* largest,
                 float* sums, float* out, int64_t out_row, int64_t width) {
  const vf scale = splat(c.scale * kLog2E);
  for (int64_t v = 0; v < at.rows; v += kWidth) {
    float* const s = scores + v;
    vf here = splat(-kInfinity);
    // NaN scores are handled by the exponentials.
    for_keys(
        at, v, [&](int64_t k, vi mask) __attribute__((always_inline)) {
          here = vmax(choose(mask, load(s + k * kQueryBlock), splat(-kInfinity)), here);
        });
    const vf before = load(largest + v), scaled = choose(here == -kInfinity, here, here * scale);
    const vf most = choose(before > scaled, before, scaled), shift = choose(most == -kInfinity, vf{}, most);
    vf sum = load(sums + v);
    if (!first_block && any(before != most)) {
      const vf factor = choose(before == most, splat(1), power(before, splat(1), shift));
      sum *= factor;
      float by[kWidth];
      store(by, factor);
      for (int64_t r = v; r < least(v + kWidth, at.rows); ++r) scale_row(out + r * out_row, width, by[r - v]);
    }
    store(largest + v, most);
    vf more{};
    for_keys(
        at, v, [&](int64_t k, vi mask) __attribute__((always_inline)) {
          const vf e = choose(mask, power(load(s + k * kQueryBlock), scale, shift), vf{});
          store(s + k * kQueryBlock, e);
          more += e;
        });
    store(sums + v, sum + more);
  }
}

}  // namespace

// q, k, v -> out, lse. `largest` and `sums` of a chunk's queries are kept in the workspace between blocks of keys.
void attention(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const AttentionContext*>(context);
  const int64_t heads = c.shared * c.group;
  float* queries_by_column = static_cast<float*>(buffers[5]) + part * c.part_workspace;
  float* scores = queries_by_column + c.width * kQueryBlock;
  float* largest = scores + kQueryBlock * kKeyBlock;
  float* sums = largest + whole_blocks(c.queries);
  float* values_copy = sums + whole_blocks(c.queries);
  const Range items = share(c.batch * heads * c.query_chunks, c.parts, part);
  NextHead next;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t head = item / c.query_chunks, chunk = item % c.query_chunks;
    const int64_t begin = c.queries * chunk / c.query_chunks, end = c.queries * (chunk + 1) / c.query_chunks;
    const float* q = head_of(static_cast<const float*>(buffers[0]), c.q, head, heads);
    const float* k = head_of(static_cast<const float*>(buffers[1]), c.k, head / c.group, c.shared);
    const float* v = head_of(static_cast<const float*>(buffers[2]), c.v, head / c.group, c.shared);
    float* out = head_of(static_cast<float*>(buffers[3]), c.out, head, heads);
    float* lse = static_cast<float*>(buffers[4]) + head * c.queries;
    next.set(c.keys * (c.width + c.value_width) + c.queries * (c.width + c.value_width));
    if (const int64_t other = (item + 1) / c.query_chunks; item + 1 < items.end && other != head) {
      next.add(head_of(static_cast<const float*>(buffers[3]), c.out, other, heads), c.out.row, c.queries,
               c.value_width);
      next.add(head_of(static_cast<const float*>(buffers[2]), c.v, other / c.group, c.shared), c.v.row, c.keys,
               c.value_width);
      next.add(head_of(static_cast<const float*>(buffers[1]), c.k, other / c.group, c.shared), c.k.row, c.keys,
               c.width);
      next.add(head_of(static_cast<const float*>(buffers[0]), c.q, other, heads), c.q.row, c.queries, c.width);
    }
    for (int64_t i = 0; i < whole_blocks(end - begin); i += kWidth)
      store(largest + i, splat(-kInfinity)), store(sums + i, vf{});
    for (int64_t k0 = 0; k0 < c.keys; k0 += kKeyBlock) {
      const int64_t keys = least(kKeyBlock, c.keys - k0);
      if (k0 > 0 && Staircase(c, end - 1, 1, k0, keys).seen() == 0) break;
      const float* values = dense(v + k0 * c.v.row, c.v.row, keys, c.value_width, c.copies, values_copy);
      for (int64_t q0 = begin; q0 < end; q0 += kQueryBlock) {
        const Staircase at(c, q0, least(kQueryBlock, end - q0), k0, keys);
        if (k0 > 0 && at.seen() == 0) continue;
        transpose(q + q0 * c.q.row, c.q.row, queries_by_column, kQueryBlock, at.rows, c.width);
        scores_of(at, {k + k0 * c.k.row, c.k.row, 1}, queries_by_column, c.width, scores, next);
        join_scores(c, at, scores, k0 == 0, largest + q0 - begin, sums + q0 - begin, out + q0 * c.out.row, c.out.row,
                    c.value_width);
        join_values(at, scores, values, c.value_width, out + q0 * c.out.row, c.out.row, k0 > 0, next);
      }
    }
    for (int64_t i = begin; i < end; i += kWidth) {
      const int64_t n = lanes_at(i, end);
      const vf sum = load(sums + i - begin);
      const vi blind = sum == 0.0f;  // a query that sees no key gives 0, lse -inf
      store_some(lse + i, choose(blind, splat(-kInfinity), load(largest + i - begin) * kLog2 + vlog(sum)), n);
      float by[kWidth];
      store(by, choose(blind, vf{}, 1.0f / sum));
      for (int64_t r = 0; r < n; ++r) scale_row(out + (i + r) * c.out.row, c.value_width, by[r]);
    }
  }
}

namespace {

// Softmax statistics of a head's queries: p = 2^(scaled score - shift) share; the gradient of a scaled score is p (dp -
// delta).
struct SoftmaxRows {
  float *shift, *share, *delta;

  SoftmaxRows from(int64_t i) const { return {shift + i, share + i, delta + i}; }
};

// Workspace of a part of the gradient.
struct GradientRoom {
  float *queries_by_column, *douts_by_column, *p, *dp;
  float *keys, *dk, *dv;  // copies
  SoftmaxRows rows;       // of all heads of the item, each aligned to a whole block

  GradientRoom(const AttentionContext& c, float* at) {
    const auto take = [&](int64_t n) { return (at += n) - n; };
    queries_by_column = take(c.width * kQueryBlock);
    douts_by_column = take(c.value_width * kQueryBlock);
    p = take(kQueryBlock * kKeyBlock);
    dp = take(kQueryBlock * kKeyBlock);
    keys = take(c.copies ? kKeyBlock * c.width : 0);
    dk = take(c.copies ? kKeyBlock * c.width : 0);
    dv = take(c.copies ? kKeyBlock * c.value_width : 0);
    const int64_t rows_of_item = c.group * whole_blocks(c.queries);
    rows = {take(rows_of_item), take(rows_of_item), take(rows_of_item)};
  }
};

// Above this magnitude lse lacks digits of its logarithm: rounded to the size of the scores, its error would affect all
// probabilities of the row.
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

// One head's queries and one block of keys.
struct GradientBlock {
  const AttentionContext& c;
  const GradientRoom& room;
  const float *q, *dout;  // of the head
  SoftmaxRows rows;       // of the head
  float* dq;              // of the head
  Matrix values;          // of the block
  const float* keys;      // of the block
  float *dk, *dv;         // of the block
  NextHead& next;

  // A query with a single key gives it probability 1 for any score.
  vi is_alone(int64_t query) const {
    if (c.keys == 1) return splat_int(-1);
    const int64_t lane = c.causal ? c.queries - c.keys - query : -1;
    return lanes() == splat_int(lane < 0 || lane >= kWidth ? -1 : static_cast<int32_t>(lane));
  }

  // p = exp(scores - lse), dp = p (dp - delta) scale.
  void weigh(const Staircase& at, int64_t q0) const {
    for (int64_t v = 0; v < at.rows; v += kWidth) {
      const vf share = load(rows.share + q0 + v);
      if (any(share != 1.0f))
        weigh_vector(
            at, q0, v, [&](vf e) __attribute__((always_inline)) { return e * share; });
      else
        weigh_vector(
            at, q0, v, [](vf e) __attribute__((always_inline)) { return e; });
    }
  }
  template <typename Share>
  HM_INLINE void weigh_vector(const Staircase& at, int64_t q0, int64_t v, Share shared) const {
    const SoftmaxRows r = rows.from(q0 + v);
    const vf scale = splat(c.scale * kLog2E), shift = load(r.shift), less = load(r.delta);
    const vf by = choose(is_alone(q0 + v), vf{}, splat(c.scale));
    float *const p = room.p + v, *const dp = room.dp + v;
    for_keys(
        at, v, [&](int64_t k, vi mask) __attribute__((always_inline)) {
          const vf e = choose(mask, shared(power(load(p + k * kQueryBlock), scale, shift)), vf{});
          store(p + k * kQueryBlock, e);
          store(dp + k * kQueryBlock, choose(mask, e * (load(dp + k * kQueryBlock) - less) * by, vf{}));
        });
  }

  // Computes the scores into room.p, and the gradients of the probabilities into room.dp.
  void multiply(const Staircase& at, int64_t q0) const {
    transpose(q + q0 * c.q.row, c.q.row, room.queries_by_column, kQueryBlock, at.rows, c.width);
    transpose(dout + q0 * c.out.row, c.out.row, room.douts_by_column, kQueryBlock, at.rows, c.value_width);
    scores_of(at, {keys, c.width, 1}, room.queries_by_column, c.width, room.p, next);
    scores_of(at, values, room.douts_by_column, c.value_width, room.dp, next);
  }

  // Adds the block to the rows' maximum (shift), sum (share) and sum of p dp (delta).
  void measure(const Staircase& at, int64_t q0, bool first_block) const {
    const SoftmaxRows r = rows.from(q0);
    if (first_block)
      for (int64_t v = 0; v < at.rows; v += kWidth)
        store(r.shift + v, splat(-kInfinity)), store(r.share + v, vf{}), store(r.delta + v, vf{});
    multiply(at, q0);
    join_scores(c, at, room.p, first_block, r.shift, r.share, r.delta, 1, 1);
    for (int64_t v = 0; v < at.rows; v += kWidth) {
      const float *const p = room.p + v, *const dp = room.dp + v;
      vf sum = load(r.delta + v);
      for_keys(
          at, v, [&](int64_t k, vi mask) __attribute__((always_inline)) {
            sum += choose(mask, load(p + k * kQueryBlock) * load(dp + k * kQueryBlock), vf{});
          });
      store(r.delta + v, sum);
    }
  }

  void run(const Staircase& at, int64_t q0, bool first_block) const {
    const float *queries = q + q0 * c.q.row, *d = dout + q0 * c.out.row;
    multiply(at, q0);
    weigh(at, q0);
    join_queries(at, room.p, d, c.out.row, c.value_width, dv, next);
    join_queries(at, room.dp, queries, c.q.row, c.width, dk, next);
    join_values(at, room.dp, keys, c.width, dq + q0 * c.q.row, c.q.row, !first_block, next);
  }
};

void products_of_rows(const float* a, const float* b, int64_t stride, int64_t rows, int64_t n, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    vf sum{};
    for (int64_t i = 0; i < n; i += kWidth)
      sum += load_some(a + r * stride + i, lanes_at(i, n)) * load_some(b + r * stride + i, lanes_at(i, n));
    y[r] = sum_of(sum);
  }
}

// Call after the last measured block.
void end_measure(const SoftmaxRows& rows, int64_t queries) {
  for (int64_t i = 0; i < queries; i += kWidth) {
    const vf largest = load(rows.shift + i), sum = load(rows.share + i);
    const vi blind = sum == 0.0f;
    const vf share = choose(blind, vf{}, 1.0f / sum);
    store(rows.shift + i, choose(blind, splat(kInfinity), largest));
    store(rows.share + i, share);
    store(rows.delta + i, load(rows.delta + i) * share);
  }
}

// Gradients of one key and value head, from all query heads that share it.
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
  int64_t queries_at(int64_t q0) const { return least(kQueryBlock, c.queries - q0); }
  const float* keys_at(int64_t k0, int64_t n) const {
    return dense(head_of(in(1), c.k, item, c.shared) + k0 * c.k.row, c.k.row, n, c.width, c.copies, room.keys);
  }

  // Calls f(block, staircase, q0) for queries that see some of the n keys from k0 on; for the first keys, for all
  // queries.
  template <typename F>
  void for_blocks(int64_t k0, int64_t n, const float* keys, float* dk, float* dv, F f) const {
    const float* values = head_of(in(2), c.v, item, c.shared) + k0 * c.v.row;
    for (int64_t g = 0; g < c.group; ++g) {
      const int64_t head = query_head(g);
      const GradientBlock block{c,
                                room,
                                head_of(in(0), c.q, head, heads()),
                                head_of(in(5), c.out, head, heads()),
                                rows(g),
                                head_of(out(6), c.q, head, heads()),
                                {values, c.v.row, 1},
                                keys,
                                dk,
                                dv,
                                next};
      for (int64_t q0 = 0; q0 < c.queries; q0 += kQueryBlock) {
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
                       c.value_width, rows(g).delta);
      rows_from_lse(lse(g), c.queries, rows(g));
      far = far || is_far(lse(g), c.queries);
    }
    if (far) measure();
  }

  // Measures all scores once more, for blocks of queries with a large lse.
  void measure() const {
    for (int64_t k0 = 0; k0 < c.keys; k0 += kKeyBlock) {
      const int64_t n = least(kKeyBlock, c.keys - k0);
      for_blocks(k0, n, keys_at(k0, n), nullptr, nullptr,
                 [&](const GradientBlock& block, const Staircase& at, int64_t g, int64_t q0) {
                   if (is_far(lse(g) + q0, at.rows)) block.measure(at, q0, k0 == 0);
                 });
    }
    for (int64_t g = 0; g < c.group; ++g)
      for (int64_t q0 = 0; q0 < c.queries; q0 += kQueryBlock)
        if (is_far(lse(g) + q0, queries_at(q0))) end_measure(rows(g).from(q0), queries_at(q0));
  }

  void run() const {
    float* const dk = head_of(out(7), c.k, item, c.shared);
    float* const dv = head_of(out(8), c.v, item, c.shared);
    begin();
    for (int64_t k0 = 0; k0 < c.keys; k0 += kKeyBlock) {
      const int64_t n = least(kKeyBlock, c.keys - k0);
      float* const block_dk = c.copies ? room.dk : dk + k0 * c.width;
      float* const block_dv = c.copies ? room.dv : dv + k0 * c.value_width;
      clear(block_dk, n * c.width);
      clear(block_dv, n * c.value_width);
      for_blocks(
          k0, n, keys_at(k0, n), block_dk, block_dv,
          [&](const GradientBlock& block, const Staircase& at, int64_t, int64_t q0) { block.run(at, q0, k0 == 0); });
      if (!c.copies) continue;
      copy_rows(block_dk, c.width, dk + k0 * c.k.row, c.k.row, n, c.width);
      copy_rows(block_dv, c.value_width, dv + k0 * c.v.row, c.v.row, n, c.value_width);
    }
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
    next.set(2 * (c.keys + c.queries) * (c.width + c.value_width));
    const auto add = [&](uint32_t i, const HeadRows& at, int64_t head, int64_t of, int64_t rows, int64_t width) {
      next.add(head_of(static_cast<const float*>(buffers[i]), at, head, of), at.row, rows, width);
    };
    if (other < items.end && c.group == 1) {
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
