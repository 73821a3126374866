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
      scale_row(out + r * c.value_width, c.value_width, factor);
    }
    largest[r] = most;
    sums[r] += exponentiate(s, n, keys, scale, shift);
  }
}

}  // namespace

// q, k, v -> out, lse. `largest` and `sums` of a chunk's queries live in the workspace between blocks of keys.
void attention(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const AttentionContext*>(context);
  float* keys_by_column = static_cast<float*>(buffers[5]) + part * c.part_workspace;
  float* scores = keys_by_column + c.width * kKeyBlock;
  float* largest = scores + kQueryBlock * kKeyBlock;
  float* sums = largest + c.queries;
  const Range items = share(c.batch * c.shared * c.group * c.query_chunks, c.parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t head = item / c.query_chunks, chunk = item % c.query_chunks;
    const int64_t begin = c.queries * chunk / c.query_chunks, end = c.queries * (chunk + 1) / c.query_chunks;
    const float* q = static_cast<const float*>(buffers[0]) + head * c.queries * c.width;
    const float* k = static_cast<const float*>(buffers[1]) + head / c.group * c.keys * c.width;
    const float* v = static_cast<const float*>(buffers[2]) + head / c.group * c.keys * c.value_width;
    float* out = static_cast<float*>(buffers[3]) + head * c.queries * c.value_width;
    float* lse = static_cast<float*>(buffers[4]) + head * c.queries;
    for (int64_t i = begin; i < end; ++i) largest[i] = -kInfinity, sums[i] = 0;
    for (int64_t k0 = 0; k0 < c.keys; k0 += kKeyBlock) {
      const int64_t keys = least(kKeyBlock, c.keys - k0);
      if (k0 > 0 && visible(c, end - 1, k0, keys) == 0) break;
      transpose(k + k0 * c.width, c.width, keys_by_column, kKeyBlock, keys, c.width);
      for (int64_t q0 = begin; q0 < end; q0 += kQueryBlock) {
        const int64_t rows = least(kQueryBlock, end - q0);
        const int64_t seen = visible(c, q0 + rows - 1, k0, keys);  // by the block's last query
        if (k0 > 0 && seen == 0) continue;
        gemm_broadcast(rows, seen, c.width, {q + q0 * c.width, c.width, 1}, keys_by_column, kKeyBlock, scores,
                       kKeyBlock, false);
        join_scores(c, scores, q0, rows, k0, seen, largest + q0, sums + q0, out + q0 * c.value_width);
        gemm_broadcast(rows, c.value_width, seen, {scores, kKeyBlock, 1}, v + k0 * c.value_width, c.value_width,
                       out + q0 * c.value_width, c.value_width, k0 > 0);
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      // A query that sees no key gives 0, with lse -inf.
      const bool blind = sums[i] == 0;
      float* row = out + i * c.value_width;
      if (blind)
        for (int64_t j = 0; j < c.value_width; ++j) row[j] = 0;
      else
        scale_row(row, c.value_width, 1.0f / sums[i]);
      lse[i] = blind ? -kInfinity : largest[i] * kLog2 + vlog(splat(sums[i]))[0];
    }
  }
}

namespace {

// The parts of the gradient that one block of queries and one block of keys give.
struct GradientBlock {
  const AttentionContext& c;
  const float *q, *k, *v, *dout;  // of the head
  const float *lse, *delta;       // delta = sum(dout * out)
  float *dq, *dk, *dv;
  float *keys_by_column, *values_by_column, *p, *dp;

  void run(int64_t q0, int64_t rows, int64_t k0, int64_t keys, bool first_keys) {
    const float *queries = q + q0 * c.width, *d = dout + q0 * c.value_width;
    gemm_broadcast(rows, keys, c.width, {queries, c.width, 1}, keys_by_column, kKeyBlock, p, kKeyBlock, false);
    gemm_broadcast(rows, keys, c.value_width, {d, c.value_width, 1}, values_by_column, kKeyBlock, dp, kKeyBlock, false);
    for (int64_t r = 0; r < rows; ++r) {
      float *pr = p + r * kKeyBlock, *dr = dp + r * kKeyBlock;
      const int64_t n = lse[q0 + r] == -kInfinity ? 0 : visible(c, q0 + r, k0, keys);
      const vf scale = splat(c.scale * kLog2E), shift = splat(lse[q0 + r] * kLog2E);
      int64_t j = 0;
      for (; j < n; j += kWidth) {
        const int64_t w = lanes_at(j, n);
        const vf e = power(load_some(pr + j, w), scale, shift);
        store_some(pr + j, e, w);
        store_some(dr + j, e * (load_some(dr + j, w) - delta[q0 + r]) * c.scale, w);
      }
      for (j = n; j < keys; ++j) pr[j] = dr[j] = 0;
    }
    gemm_broadcast(keys, c.value_width, rows, {p, 1, kKeyBlock}, d, c.value_width, dv + k0 * c.value_width,
                   c.value_width, true);
    gemm_broadcast(keys, c.width, rows, {dp, 1, kKeyBlock}, queries, c.width, dk + k0 * c.width, c.width, true);
    gemm_broadcast(rows, c.width, keys, {dp, kKeyBlock, 1}, k + k0 * c.width, c.width, dq + q0 * c.width, c.width,
                   !first_keys);
  }
};

void products_of_rows(const float* a, const float* b, int64_t rows, int64_t n, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    vf sum{};
    for (int64_t i = 0; i < n; i += kWidth)
      sum += load_some(a + r * n + i, lanes_at(i, n)) * load_some(b + r * n + i, lanes_at(i, n));
    y[r] = sum_of(sum);
  }
}

}  // namespace

// q, k, v, out, lse, dout -> dq, dk, dv. An item is one key and value head with all query heads that share it.
void attention_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const AttentionContext*>(context);
  float* workspace = static_cast<float*>(buffers[9]) + part * c.part_workspace;
  float* keys_by_column = workspace;
  float* values_by_column = keys_by_column + c.width * kKeyBlock;
  float* p = values_by_column + c.value_width * kKeyBlock;
  float* dp = p + kQueryBlock * kKeyBlock;
  float* delta = dp + kQueryBlock * kKeyBlock;
  const auto in = [&](uint32_t i) { return static_cast<const float*>(buffers[i]); };
  const Range items = share(c.batch * c.shared, c.parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) {
    float* dk = static_cast<float*>(buffers[7]) + item * c.keys * c.width;
    float* dv = static_cast<float*>(buffers[8]) + item * c.keys * c.value_width;
    clear(dk, c.keys * c.width);
    clear(dv, c.keys * c.value_width);
    const float *k = in(1) + item * c.keys * c.width, *v = in(2) + item * c.keys * c.value_width;
    for (int64_t head = item * c.group; head < (item + 1) * c.group; ++head) {
      const int64_t value_offset = head * c.queries * c.value_width;
      const float* dout = in(5) + value_offset;
      products_of_rows(dout, in(3) + value_offset, c.queries, c.value_width, delta);
      GradientBlock block{c,
                          in(0) + head * c.queries * c.width,
                          k,
                          v,
                          dout,
                          in(4) + head * c.queries,
                          delta,
                          static_cast<float*>(buffers[6]) + head * c.queries * c.width,
                          dk,
                          dv,
                          keys_by_column,
                          values_by_column,
                          p,
                          dp};
      for (int64_t k0 = 0; k0 < c.keys; k0 += kKeyBlock) {
        const int64_t keys = least(kKeyBlock, c.keys - k0);
        transpose(k + k0 * c.width, c.width, keys_by_column, kKeyBlock, keys, c.width);
        transpose(v + k0 * c.value_width, c.value_width, values_by_column, kKeyBlock, keys, c.value_width);
        for (int64_t q0 = 0; q0 < c.queries; q0 += kQueryBlock) {
          const int64_t rows = least(kQueryBlock, c.queries - q0), seen = visible(c, q0 + rows - 1, k0, keys);
          if (seen > 0)
            block.run(q0, rows, k0, seen, k0 == 0);
          else if (k0 == 0)
            clear(block.dq + q0 * c.width, rows * c.width);
        }
      }
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA
