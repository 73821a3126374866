// Attention without a score matrix: a thread per query, or per key, visits all others. Rotary positions.
#include <cmath>

#include "families.hpp"

namespace harmonics::opencl {
namespace {

constexpr int64_t kWidest = 256;  // elements of a head that a thread keeps

// Layout of a head's rows: heads before positions, or after them.
struct Rows {
  int64_t batch, heads, positions, width, of_head, of_position;
  Rows(const hx_type& x, bool positions_first)
      : batch(x.dims[0]),
        heads(x.dims[positions_first ? 2 : 1]),
        positions(x.dims[positions_first ? 1 : 2]),
        width(x.dims[3]) {
    of_head = positions_first ? width : positions * width;
    of_position = positions_first ? heads * width : width;
  }
};

struct Attention {
  Rows q, k, v;
  explicit Attention(const Site& site)
      : q(site.in(0), first(site)), k(site.in(1), first(site)), v(site.in(2), first(site)) {}
  static bool first(const Site& site) { return site.flag("positions_first"); }

  bool is_served(const Site& site) const {
    if (kernels::has_more_than_attention(site)) return declined("has no optional inputs, window or softcap");
    for (const uint32_t i : {1, 2, 3, 5})
      if (i < site.inputs() && site.in(i).dtype != site.in(0).dtype) return declined("attends within one type only");
    if (!is_float(site.in(0).dtype)) return declined("attends in floats only");
    if (std::max(q.width, v.width) > kWidest) return declined("keeps heads of 256 numbers at most");
    return true;
  }
  // Types and sizes of a thread's arrays. Common widths are compile-time constants; others are parameters, with larger
  // arrays.
  std::string head(const Site& site, uint32_t lse_dtype) const {
    const bool known = q.width % 16 == 0 && v.width == q.width;
    int64_t room = 16;
    while (room < std::max(q.width, v.width)) room *= 2;
    if (known) room = q.width;
    return std::string("#define T ") + type_name(site.in(0).dtype) + "\n#define ROOM " + std::to_string(room) +
           "\n#define WIDTH " + (known ? "ROOM" : "width") + "\n#define VALUES " + (known ? "ROOM" : "values") + "\n" +
           element_macros("X", site.in(0).dtype) + element_macros("LSE", lse_dtype) + kCommon;
  }
  void give(const Site& site, Launch& launch) const {
    const double scale = site.number("scale", 1 / std::sqrt(static_cast<double>(q.width)));
    if (site.in(0).dtype == HX_F64)
      launch.with(scale);
    else
      launch.with(static_cast<float>(scale));
    launch.with(static_cast<cl_uint>(site.flag("causal")));
    for (const int64_t n : {q.width, v.width}) launch.with(static_cast<cl_uint>(n));
    for (const int64_t n : {q.batch, q.heads, k.heads, q.positions, k.positions}) launch.with(static_cast<cl_uint>(n));
    for (const Rows* r : {&q, &k, &v})
      for (const int64_t n : {r->of_head, r->of_position}) launch.with(static_cast<cl_uint>(n));
  }

 private:
  // out has q's layout with the width of v: its strides are q's, scaled by width.
  static constexpr const char* kCommon = R"(
#define SIZES T scale, uint causal, uint width, uint values, uint batches, uint heads, uint shared, uint queries, \
    uint keys, uint q_head, uint q_row, uint k_head, uint k_row, uint v_head, uint v_row
#define Q_AT(b, h, t) ((b) * heads * queries * WIDTH + (h) * q_head + (t) * q_row)
#define K_AT(b, h, j) ((b) * shared * keys * WIDTH + (h) * k_head + (j) * k_row)
#define V_AT(b, h, j) ((b) * shared * keys * VALUES + (h) * v_head + (j) * v_row)
#define OUT_AT(b, h, t) (Q_AT(b, h, t) / WIDTH * VALUES)
#define SEEN(t) (causal ? (uint)max(0, (int)(keys + t + 1) - (int)queries) : keys)
#define QUERY                                                                              \
  const uint i = get_global_id(0);                                                         \
  if (i >= batches * heads * queries) return;                                              \
  const uint t = i % queries, h = i / queries % heads, batch = i / queries / heads, g = h / (heads / shared);
)";
};

const char* kForward = R"(
kernel void attend(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), SIZES) {
  QUERY
  const uint q_at = Q_AT(batch, h, t), out_at = OUT_AT(batch, h, t), seen = SEEN(t);
  T q[ROOM], sums[ROOM], largest = -INFINITY, total = 0;
  for (uint d = 0; d < WIDTH; ++d) q[d] = X_READ(0, q_at + d);
  for (uint d = 0; d < VALUES; ++d) sums[d] = 0;
  for (uint j = 0; j < seen; ++j) {
    const uint k_at = K_AT(batch, g, j), v_at = V_AT(batch, g, j);
    T score = 0;
    for (uint d = 0; d < WIDTH; ++d) score += q[d] * X_READ(1, k_at + d);
    score *= scale;
    if (score > largest) {
      const T less = exp(largest - score);
      total *= less;
      for (uint d = 0; d < VALUES; ++d) sums[d] *= less;
      largest = score;
    }
    const T e = exp(score - largest);
    total += e;
    for (uint d = 0; d < VALUES; ++d) sums[d] += e * X_READ(2, v_at + d);
  }
  for (uint d = 0; d < VALUES; ++d) X_WRITE(3, out_at + d, seen ? sums[d] / total : 0);
  LSE_WRITE(4, i, seen ? log(total) + largest : -INFINITY);
}
)";

// Stores per query what keys need: p = exp(score - shift) share, and the gradient of a score, p (dp - own). These are
// lse, 1 and sum(out dout). An lse beyond NEAR lacks digits of its logarithm, so the scores are visited once more.
const char* kQueries = R"(
#define NEAR 32
kernel void queries_of(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), BUFFER(6), BUFFER(7), SIZES) {
  QUERY
  const uint q_at = Q_AT(batch, h, t), out_at = OUT_AT(batch, h, t), seen = SEEN(t);
  T q[ROOM], dq[ROOM], dout[ROOM], own = 0, shift = LSE_READ(4, i), share = 1;
  for (uint d = 0; d < WIDTH; ++d) q[d] = X_READ(0, q_at + d), dq[d] = 0;
  for (uint d = 0; d < VALUES; ++d) {
    dout[d] = X_READ(5, out_at + d);
    own += dout[d] * X_READ(3, out_at + d);
  }
  if (seen && fabs(shift) > NEAR) {
    own = 0, share = 0, shift = -INFINITY;
    for (uint j = 0; j < seen; ++j) {
      const uint k_at = K_AT(batch, g, j), v_at = V_AT(batch, g, j);
      T score = 0, dp = 0;
      for (uint d = 0; d < WIDTH; ++d) score += q[d] * X_READ(1, k_at + d);
      for (uint d = 0; d < VALUES; ++d) dp += dout[d] * X_READ(2, v_at + d);
      score *= scale;
      if (score > shift) {
        const T less = exp(shift - score);
        own *= less, share *= less, shift = score;
      }
      const T e = exp(score - shift);
      own += e * dp, share += e;
    }
    own /= share, share = 1 / share;
  }
  const T by = seen == 1 ? 0 : scale;
  for (uint j = 0; j < seen; ++j) {
    const uint k_at = K_AT(batch, g, j), v_at = V_AT(batch, g, j);
    T score = 0, dp = 0;
    for (uint d = 0; d < WIDTH; ++d) score += q[d] * X_READ(1, k_at + d);
    for (uint d = 0; d < VALUES; ++d) dp += dout[d] * X_READ(2, v_at + d);
    score *= scale;
    const T ds = exp(score - shift) * share * (dp - own) * by;
    for (uint d = 0; d < WIDTH; ++d) dq[d] += ds * X_READ(1, k_at + d);
  }
  for (uint d = 0; d < WIDTH; ++d) X_WRITE(6, q_at + d, dq[d]);
  const uint rows = batches * heads * queries;
  AT(T, 7)[i] = own;
  AT(T, 7)[rows + i] = shift;
  AT(T, 7)[2 * rows + i] = share;
}
)";

// Sums scores in the order of the query kernel: other rounding would change the probability of large scores.
const char* kKeys = R"(
kernel void keys_of(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), BUFFER(6), SIZES) {
  const uint i = get_global_id(0);
  if (i >= batches * shared * keys) return;
  const uint j = i % keys, g = i / keys % shared, batch = i / keys / shared, group = heads / shared;
  const uint k_at = K_AT(batch, g, j), v_at = V_AT(batch, g, j), rows = batches * heads * queries;
  T k[ROOM], dk[ROOM], dv[ROOM];
  for (uint d = 0; d < WIDTH; ++d) k[d] = X_READ(1, k_at + d), dk[d] = 0;
  for (uint d = 0; d < VALUES; ++d) dv[d] = 0;
  for (uint h = g * group; h < (g + 1) * group; ++h)
    for (uint t = 0; t < queries; ++t) {
      const uint seen = SEEN(t);
      if (j >= seen) continue;
      const uint q_at = Q_AT(batch, h, t), out_at = OUT_AT(batch, h, t), row = (batch * heads + h) * queries + t;
      T score = 0, dp = 0;
      for (uint d = 0; d < WIDTH; ++d) score += X_READ(0, q_at + d) * k[d];
      for (uint d = 0; d < VALUES; ++d) dp += X_READ(3, out_at + d) * X_READ(2, v_at + d);
      score *= scale;
      const T p = exp(score - AT(T, 6)[rows + row]) * AT(T, 6)[2 * rows + row];
      const T ds = p * (dp - AT(T, 6)[row]) * (seen == 1 ? 0 : scale);
      for (uint d = 0; d < WIDTH; ++d) dk[d] += ds * X_READ(0, q_at + d);
      for (uint d = 0; d < VALUES; ++d) dv[d] += p * X_READ(3, out_at + d);
    }
  for (uint d = 0; d < WIDTH; ++d) X_WRITE(4, k_at + d, dk[d]);
  for (uint d = 0; d < VALUES; ++d) X_WRITE(5, v_at + d, dv[d]);
}
)";

}  // namespace

bool plan_attention(const Site& site, hx_kernel& out) {
  const Attention a(site);
  if (!a.is_served(site)) return false;
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), a.head(site, site.out(1).dtype) + kForward, "attend",
                                              std::vector<uint32_t>{0, 1, 2, 3, 4});
  a.give(site, launch);
  launch.over(a.q.batch * a.q.heads * a.q.positions);
  answer(out, std::move(work), "attention");
  return true;
}

bool plan_attention_grad(const Site& site, hx_kernel& out) {
  const Attention a(site);
  if (!a.is_served(site)) return false;
  const std::string head = a.head(site, site.in(4).dtype);
  const int64_t queries = a.q.batch * a.q.heads * a.q.positions;
  Work work;
  Launch& first = work.launches.emplace_back(site.machine(), head + kQueries, "queries_of",
                                             std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, site.workspace()});
  a.give(site, first);
  first.over(queries);
  Launch& second = work.launches.emplace_back(site.machine(), head + kKeys, "keys_of",
                                              std::vector<uint32_t>{0, 1, 2, 5, 7, 8, site.workspace()});
  a.give(site, second);
  second.over(a.k.batch * a.k.heads * a.k.positions);
  answer(out, std::move(work), "attention").workspace =
      static_cast<uint64_t>(3 * queries) * (site.in(0).dtype == HX_F64 ? 8 : 4);
  return true;
}

// Angles are computed on the host in f64, for accuracy at late positions, and on devices without f64.
bool plan_rope(const Site& site, hx_kernel& out) {
  if (kernels::has_more_than_rope(site)) return declined("turns all pairs (i, i + D/2), from offset on");
  const hx_type& x = site.in(0);
  const uint32_t skipped = site.flag("positions_first") ? 1 : 0;
  if (!is_float(x.dtype) || x.rank < 2 + skipped || x.dims[x.rank - 1] % 2)
    return declined("rotates floats of an even width only");
  const int64_t half = x.dims[x.rank - 1] / 2, positions = x.dims[x.rank - 2 - skipped],
                repeats = skipped ? x.dims[x.rank - 2] : 1, pairs = count(x) / 2;
  const double decay = -std::log(site.number("base", 10000)) / static_cast<double>(half),
               turn = site.flag("inverse") ? -1 : 1;
  std::vector<double> table;
  for (int64_t i = 0; i < positions * half; ++i) {
    const double angle =
        static_cast<double>(site.integer("offset") + i / half) * std::exp(static_cast<double>(i % half) * decay);
    table.push_back(std::cos(angle));
    table.push_back(turn * std::sin(angle));
  }
  Work work;
  const bool wide = x.dtype == HX_F64;
  const std::vector<float> narrow(table.begin(), table.end());
  const Constant& turns =
      work.constants.emplace_back(site.machine(), wide ? static_cast<const void*>(table.data()) : narrow.data(),
                                  table.size() * (wide ? sizeof(double) : sizeof(float)));
  const std::string body = std::string("#define T ") + type_name(x.dtype) + "\n" + element_macros("X", x.dtype) + R"(
kernel void turn(BUFFER(0), BUFFER(1), global const T* turns, uint pairs, uint half_width, uint positions,
    uint repeats) {
  const uint i = get_global_id(0);
  if (i >= pairs) return;
  const uint row = i / half_width, p = i % half_width, left = row * 2 * half_width + p, right = left + half_width,
      at = row / repeats % positions * half_width + p;
  const T a = X_READ(0, left), b = X_READ(0, right), c = turns[2 * at], s = turns[2 * at + 1];
  X_WRITE(1, left, a * c - b * s);
  X_WRITE(1, right, b * c + a * s);
}
)";
  Launch& launch = work.launches.emplace_back(site.machine(), body, "turn", std::vector<uint32_t>{0, 1});
  launch.with(turns.memory());
  for (const int64_t n : {pairs, half, positions, repeats}) launch.with(static_cast<cl_uint>(n));
  launch.over(pairs);
  answer(out, std::move(work), "rope").in_place = 1;
  return true;
}

}  // namespace harmonics::opencl
