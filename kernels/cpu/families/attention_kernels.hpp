// The kernel of attention.
#pragma once

#include "attention_rows.hpp"
#include "gemm.hpp"
#include "softmax_power.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Rows of a tile along the staircase of the causal mask; at most a vector.
constexpr int64_t kStep = kWidth < 8 ? kWidth : 8;
// scores[key][query] = k q for the keys visible to the block's queries; vectorised over queries.
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
  if (at.full() == at.keys)
    return gemm_broadcast(at.rows, width, at.keys, {weights, 1, kQueryBlock}, values, width, out, out_row, add,
                          FetchNext{&next});
  for (int64_t r = 0; r < at.rows; r += kStep) {
    const int64_t rows = least(kStep, at.rows - r), depth = at.seen(r + rows);
    if (depth > 0)
      gemm_broadcast(rows, width, depth, {weights + r, 1, kQueryBlock}, values, width, out + r * out_row, out_row, add,
                     FetchNext{&next});
    else if (!add)
      for (int64_t i = 0; i < rows; ++i) clear(out + (r + i) * out_row, width);
  }
}

// Calls body(key, mask) for the keys visible to any query of the vector at v. The mask selects the queries that see the
// key.
template <typename Body>
HM_INLINE void for_keys(const Staircase& at, int64_t v, Body body) {
  const int64_t seen = at.seen(v + kWidth), all = least(seen, at.offset + v + 1);
  int64_t k = 0;
  for (; k < all; ++k) body(k, splat_int(-1));
  const vi query = lanes() + static_cast<int32_t>(v);
  for (; k < seen; ++k) body(k, query >= splat_int(static_cast<int32_t>(k - at.offset)));
}

// Online softmax: updates the running maximum (times log2(e)), the sum and the weighted values of the block's queries.
void join_scores(const AttentionContext& c, const Staircase& at, float* scores, bool first_block, float* largest,
                 float* sums, float* out, int64_t out_row, int64_t width) {
  const vf scale = splat(c.scale * kLog2E);
  for (int64_t v = 0; v < at.rows; v += kWidth) {
    float* const s = scores + v;
    // The exponentials propagate NaN scores. Four alternating maxima hide the latency of vmax.
    vf most_of[4] = {splat(-kInfinity), splat(-kInfinity), splat(-kInfinity), splat(-kInfinity)};
    for_keys(
        at, v, [&](int64_t k, vi mask) __attribute__((always_inline)) {
          const vf score = choose(mask, load(s + k * kQueryBlock), splat(-kInfinity));
          const vf next = most_of[3];
          most_of[3] = most_of[2], most_of[2] = most_of[1], most_of[1] = most_of[0];
          most_of[0] = vmax(score, next);
        });
    const vf here = vmax(vmax(most_of[0], most_of[1]), vmax(most_of[2], most_of[3]));
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

// q, k, v -> out, lse. The workspace keeps `largest` and `sums` of a chunk's queries between blocks of keys.
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
    next.set(c);
    // Also across the end of the part: the next part probably runs on this thread.
    if (const int64_t other = (item + 1) / c.query_chunks; other != head && other < c.batch * heads) {
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
      const vi blind = sum == 0.0f;  // no visible key: the result is 0, lse is -inf
      store_some(lse + i, choose(blind, splat(-kInfinity), load(largest + i - begin) * kLog2 + vlog(sum)), n);
      float by[kWidth];
      store(by, choose(blind, vf{}, 1.0f / sum));
      for (int64_t r = 0; r < n; ++r) scale_row(out + (i + r) * c.out.row, c.value_width, by[r]);
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA
