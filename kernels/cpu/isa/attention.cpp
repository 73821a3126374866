#include "../attention.hpp"

#include "gemm.hpp"
#include "kernels.hpp"
#include "transpose.hpp"
#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// How many of the keys [first_key, first_key + keys) query `query` sees. The last query sees all keys.
HM_INLINE int64_t visible(const AttentionContext& c, int64_t query, int64_t first_key, int64_t keys) {
  if (!c.causal) return keys;
  const int64_t n = query + 1 + c.keys - c.queries - first_key;
  return n < 0 ? 0 : least(n, keys);
}

void scale_row(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i += kWidth) store_some(x + i, load_some(x + i, lanes_at(i, n)) * factor, lanes_at(i, n));
}

// A head's rows of x, which has `heads` heads a sample.
template <typename T>
HM_INLINE T* head_of(T* x, const HeadRows& at, int64_t head, int64_t heads) {
  return x + head / heads * at.batch + head % heads * at.head;
}

void copy_rows(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; j += kWidth)
      store_some(to + i * to_row + j, load_some(from + i * from_row + j, lanes_at(j, width)), lanes_at(j, width));
}
// The block's rows one after the other: themselves, or a copy in `room`.
const float* dense(const float* rows, int64_t stride, int64_t n, int64_t width, bool copies, float* room) {
  if (!copies) return rows;
  copy_rows(rows, stride, room, width, n, width);
  return room;
}

constexpr float kLog2E = 1.44269504088896341f, kLog2 = 0.69314718055994531f;

// Scores that are not numbers are left to the exponentials.
float largest_of(const float* x, int64_t n) {
  vf a = splat(-kInfinity), b = a;
  int64_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) a = vmax(load(x + i), a), b = vmax(load(x + i + kWidth), b);
  for (; i < n; i += kWidth) a = vmax(first(load_some(x + i, lanes_at(i, n)), lanes_at(i, n), a), a);
  return max_of(vmax(a, b));
}

// p = 2^(scale s - shift), 0 where that is not a normal number.
HM_INLINE vf power(vf s, vf scale, vf shift) {
  const vf t = fma(s, scale, -shift);
  return choose(t < -126.0f, vf{}, exp2_within(vmin(splat(127.0f), vmax(splat(-126.0f), t))));
}

// The first n scores in place by power(), 0 up to `all`; returns their sum.
float exponentiate(float* s, int64_t n, int64_t all, float scale, float shift) {
  const vf by = splat(scale), less = splat(shift);
  vf sum{};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const vf e = power(load(s + i), by, less);
    store(s + i, e);
    sum += e;
  }
  if (i < n) {
    const vf e = first(power(load_part(s + i, n - i), by, less), n - i, vf{});
    store_part(s + i, e, n - i);
    sum += e;
  }
  for (i = n; i < all; ++i) s[i] = 0;
  return sum_of(sum);
}

// One block of scores for rows [q0, q0 + rows): joined into the running largest score (times log2(e)), sum and weighted
// values.
void join_scores(const AttentionContext& c, float* scores, int64_t q0, int64_t rows, int64_t k0, int64_t keys,
                 float* largest, float* sums, float* out) {
  const float scale = c.scale * kLog2E;
  for (int64_t r = 0; r < rows; ++r) {
    float* s = scores + r * kKeyBlock;
    const int64_t n = visible(c, q0 + r, k0, keys);
    const float here = n ? largest_of(s, n) * scale : -kInfinity;
    const float most = largest[r] > here ? largest[r] : here;
    const float shift = most == -kInfinity ? 0.0f : most;
    if (k0 > 0 && largest[r] != most) {
      const float factor = power(splat(largest[r]), splat(1), splat(shift))[0];
      sums[r] *= factor;
      scale_row(out + r * c.out.row, c.value_width, factor);
    }
    largest[r] = most;
    sums[r] += exponentiate(s, n, keys, scale, shift);
  }
}

}  // namespace

// q, k, v -> out, lse. `largest` and `sums` of a chunk's queries live in the workspace between blocks of keys.
void attention(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const AttentionContext*>(context);
  const int64_t heads = c.shared * c.group;
  float* keys_by_column = static_cast<float*>(buffers[5]) + part * c.part_workspace;
  float* scores = keys_by_column + c.width * kKeyBlock;
  float* largest = scores + kQueryBlock * kKeyBlock;
  float* sums = largest + c.queries;
  float* values_copy = sums + c.queries;
  const Range items = share(c.batch * heads * c.query_chunks, c.parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t head = item / c.query_chunks, chunk = item % c.query_chunks;
    const int64_t begin = c.queries * chunk / c.query_chunks, end = c.queries * (chunk + 1) / c.query_chunks;
    const float* q = head_of(static_cast<const float*>(buffers[0]), c.q, head, heads);
    const float* k = head_of(static_cast<const float*>(buffers[1]), c.k, head / c.group, c.shared);
    const float* v = head_of(static_cast<const float*>(buffers[2]), c.v, head / c.group, c.shared);
    float* out = head_of(static_cast<float*>(buffers[3]), c.out, head, heads);
    float* lse = static_cast<float*>(buffers[4]) + head * c.queries;
    for (int64_t i = begin; i < end; ++i) largest[i] = -kInfinity, sums[i] = 0;
    for (int64_t k0 = 0; k0 < c.keys; k0 += kKeyBlock) {
      const int64_t keys = least(kKeyBlock, c.keys - k0);
      if (k0 > 0 && visible(c, end - 1, k0, keys) == 0) break;
      transpose(k + k0 * c.k.row, c.k.row, keys_by_column, kKeyBlock, keys, c.width);
      const float* values = dense(v + k0 * c.v.row, c.v.row, keys, c.value_width, c.copies, values_copy);
      for (int64_t q0 = begin; q0 < end; q0 += kQueryBlock) {
        const int64_t rows = least(kQueryBlock, end - q0);
        const int64_t seen = visible(c, q0 + rows - 1, k0, keys);  // by the block's last query
        if (k0 > 0 && seen == 0) continue;
        gemm_broadcast(rows, seen, c.width, {q + q0 * c.q.row, c.q.row, 1}, keys_by_column, kKeyBlock, scores, kKeyBlock, false);
        join_scores(c, scores, q0, rows, k0, seen, largest + q0, sums + q0, out + q0 * c.out.row);
        gemm_broadcast(rows, c.value_width, seen, {scores, kKeyBlock, 1}, values, c.value_width,
                       out + q0 * c.out.row, c.out.row, k0 > 0);
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      // A query that sees no key gives 0, with lse -inf.
      const bool blind = sums[i] == 0;
      float* row = out + i * c.out.row;
      if (blind)
        for (int64_t j = 0; j < c.value_width; ++j) row[j] = 0;
      else
        scale_row(row, c.value_width, 1.0f / sums[i]);
      lse[i] = blind ? -kInfinity : largest[i] * kLog2 + vlog(splat(sums[i]))[0];
    }
  }
}

namespace {

// What a part of the gradient works in.
struct GradientRoom {
  float *keys_by_column, *values_by_column, *p, *dp, *delta;  // delta = sum(dout * out), of all heads of the item
  float *keys, *dk, *dv;                                      // copies

  GradientRoom(const AttentionContext& c, float* at) {
    const auto take = [&](int64_t n) { return (at += n) - n; };
    keys_by_column = take(c.width * kKeyBlock);
    values_by_column = take(c.value_width * kKeyBlock);
    p = take(kQueryBlock * kKeyBlock);
    dp = take(kQueryBlock * kKeyBlock);
    delta = take(c.group * c.queries);
    keys = take(c.copies ? kKeyBlock * c.width : 0);
    dk = take(c.copies ? kKeyBlock * c.width : 0);
    dv = take(c.copies ? kKeyBlock * c.value_width : 0);
  }
};

// One head's queries against one block of keys.
struct GradientBlock {
  const AttentionContext& c;
  const GradientRoom& room;
  const float *q, *dout;     // of the head
  const float *lse, *delta;  // of the head
  float* dq;                 // of the head
  const float* keys;         // of the block
  float *dk, *dv;            // of the block

  // p = exp(scores - lse), dp = p (dp - delta) scale.
  void weigh(int64_t q0, int64_t rows, int64_t k0, int64_t seen) const {
    for (int64_t r = 0; r < rows; ++r) {
      float *p = room.p + r * kKeyBlock, *dp = room.dp + r * kKeyBlock;
      const int64_t n = lse[q0 + r] == -kInfinity ? 0 : visible(c, q0 + r, k0, seen);
      const vf scale = splat(c.scale * kLog2E), shift = splat(lse[q0 + r] * kLog2E);
      int64_t j = 0;
      for (; j < n; j += kWidth) {
        const int64_t w = lanes_at(j, n);
        const vf e = power(load_some(p + j, w), scale, shift);
        store_some(p + j, e, w);
        store_some(dp + j, e * (load_some(dp + j, w) - delta[q0 + r]) * c.scale, w);
      }
      for (j = n; j < seen; ++j) p[j] = dp[j] = 0;
    }
  }

  void run(int64_t q0, int64_t rows, int64_t k0, int64_t seen) const {
    const float *queries = q + q0 * c.q.row, *d = dout + q0 * c.out.row;
    gemm_broadcast(rows, seen, c.width, {queries, c.q.row, 1}, room.keys_by_column, kKeyBlock, room.p, kKeyBlock, false);
    gemm_broadcast(rows, seen, c.value_width, {d, c.out.row, 1}, room.values_by_column, kKeyBlock, room.dp,
                   kKeyBlock, false);
    weigh(q0, rows, k0, seen);
    gemm_broadcast(seen, c.value_width, rows, {room.p, 1, kKeyBlock}, d, c.out.row, dv, c.value_width, true);
    gemm_broadcast(seen, c.width, rows, {room.dp, 1, kKeyBlock}, queries, c.q.row, dk, c.width, true);
    gemm_broadcast(rows, c.width, seen, {room.dp, kKeyBlock, 1}, keys, c.width, dq + q0 * c.q.row, c.q.row, k0 > 0);
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

// The slopes of one key and value head from all query heads that share it.
void gradient_of_item(const AttentionContext& c, void* const* buffers, int64_t item, const GradientRoom& room) {
  const int64_t heads = c.shared * c.group, first = item * c.group;
  const auto in = [&](uint32_t i) { return static_cast<const float*>(buffers[i]); };
  const float *k = head_of(in(1), c.k, item, c.shared), *v = head_of(in(2), c.v, item, c.shared);
  float* dk = head_of(static_cast<float*>(buffers[7]), c.k, item, c.shared);
  float* dv = head_of(static_cast<float*>(buffers[8]), c.v, item, c.shared);
  for (int64_t g = 0; g < c.group; ++g)
    products_of_rows(head_of(in(5), c.out, first + g, heads), head_of(in(3), c.out, first + g, heads), c.out.row,
                     c.queries, c.value_width, room.delta + g * c.queries);
  for (int64_t k0 = 0; k0 < c.keys; k0 += kKeyBlock) {
    const int64_t keys = least(kKeyBlock, c.keys - k0);
    const float* block_keys = dense(k + k0 * c.k.row, c.k.row, keys, c.width, c.copies, room.keys);
    transpose(block_keys, c.width, room.keys_by_column, kKeyBlock, keys, c.width);
    transpose(v + k0 * c.v.row, c.v.row, room.values_by_column, kKeyBlock, keys, c.value_width);
    float* block_dk = c.copies ? room.dk : dk + k0 * c.width;
    float* block_dv = c.copies ? room.dv : dv + k0 * c.value_width;
    clear(block_dk, keys * c.width);
    clear(block_dv, keys * c.value_width);
    for (int64_t g = 0; g < c.group; ++g) {
      const GradientBlock block{c,
                                room,
                                head_of(in(0), c.q, first + g, heads),
                                head_of(in(5), c.out, first + g, heads),
                                in(4) + (first + g) * c.queries,
                                room.delta + g * c.queries,
                                head_of(static_cast<float*>(buffers[6]), c.q, first + g, heads),
                                block_keys,
                                block_dk,
                                block_dv};
      for (int64_t q0 = 0; q0 < c.queries; q0 += kQueryBlock) {
        const int64_t rows = least(kQueryBlock, c.queries - q0), seen = visible(c, q0 + rows - 1, k0, keys);
        if (seen > 0) block.run(q0, rows, k0, seen);
        for (int64_t r = 0; r < rows && seen == 0 && k0 == 0; ++r) clear(block.dq + (q0 + r) * c.q.row, c.width);
      }
    }
    if (!c.copies) continue;
    copy_rows(block_dk, c.width, dk + k0 * c.k.row, c.k.row, keys, c.width);
    copy_rows(block_dv, c.value_width, dv + k0 * c.v.row, c.v.row, keys, c.value_width);
  }
}

}  // namespace

// q, k, v, out, lse, dout -> dq, dk, dv. An item is one key and value head with all query heads that share it.
void attention_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const AttentionContext*>(context);
  const GradientRoom room(c, static_cast<float*>(buffers[9]) + part * c.part_workspace);
  const Range items = share(c.batch * c.shared, c.parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) gradient_of_item(c, buffers, item, room);
}

}  // namespace harmonics::cpu::HM_ISA
