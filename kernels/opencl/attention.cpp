// Attention without a score matrix: one thread per query visits all keys; in the gradient, one per key visits all
// queries.
#include <cmath>
#include <limits>

#include "families.hpp"

namespace harmonics::opencl {
namespace {

constexpr int64_t kWidest = 256;  // limit of the head's width, which a thread keeps in registers
constexpr int64_t kMostOfPool = std::numeric_limits<uint32_t>::max();  // numbers of a pool of pages

// Layout of a head's rows: heads before or after positions.
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

  bool is_served(const Site& site, const std::vector<uint32_t>& alike) const {
    for (const uint32_t i : alike)
      if (site.in(i).dtype != site.in(0).dtype) return declined("attends within one type only");
    if (!is_float(site.in(0).dtype)) return declined("attends in floats only");
    if (std::max(q.width, v.width) > kWidest) return declined("keeps heads of 256 numbers at most");
    return true;
  }
  // Returns the types and sizes of a thread's arrays. Common widths are compile-time constants; other widths are
  // parameters and have larger arrays.
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
  // out has the layout of q with the width of v: its strides are those of q, scaled by the widths.
  static constexpr const char* kCommon = R"(
#define SIZES T scale, uint causal, uint width, uint values, uint batches, uint heads, uint shared, uint queries, \
    uint keys, uint q_head, uint q_row, uint k_head, uint k_row, uint v_head, uint v_row
#define Q_AT(b, h, t) ((b) * heads * queries * WIDTH + (h) * q_head + (t) * q_row)
#ifdef PAGE
#define K_AT(b, h, j) (PAGE(b, j) * shared * page * WIDTH + (h) * k_head + (uint)(j) % page * k_row)
#define V_AT(b, h, j) (PAGE(b, j) * shared * page * VALUES + (h) * v_head + (uint)(j) % page * v_row)
#else
#define K_AT(b, h, j) ((b) * shared * keys * WIDTH + (h) * k_head + (j) * k_row)
#define V_AT(b, h, j) ((b) * shared * keys * VALUES + (h) * v_head + (j) * v_row)
#endif
#define OUT_AT(b, h, t) (Q_AT(b, h, t) / WIDTH * VALUES)
#define SEEN(t) (causal ? (uint)max(0, (int)(keys + t + 1) - (int)queries) : keys)
#define QUERY                                                                              \
  const uint i = get_global_id(0);                                                         \
  if (i >= batches * heads * queries) return;                                              \
  const uint t = i % queries, h = i / queries % heads, batch = i / queries / heads, g = h / (heads / shared);
)";
};

// Stores the softmax statistics of each query: p = exp(score - shift) * share; the gradient of a score is
// p * (dp - own). shift is lse, share is 1 and own is sum(out * dout). Above NEAR, the rounding error of lse is too
// large, and the statistics are computed again from the scores.
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

// Computes scores in the order of summation of the query kernel, since other rounding would change the probability of
// large scores.
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

// Macros that read keys or values; for q8_0, blocks of an f16 scale and 32 signed bytes.
std::string cache_macros(const std::string& name, const hx_type& type) {
  if (type.dtype != HX_Q8_0) return element_macros(name, type.dtype);
  return "float " + name + R"(_q8(global const uchar* p, uint i) {
  global const uchar* block = p + (ulong)(i / 32) * 34;
  return vload_half(0, (global const half*)block) * (float)((global const char*)block)[2 + i % 32];
}
#define )" +
         name + "_READ(n, i) " + name + "_q8(AT(uchar, n), i)\n";
}
bool is_cache(const hx_type& x) { return is_float(x.dtype) || (x.dtype == HX_Q8_0 && x.dims[3] % 32 == 0); }

const char* kTakes = "takes lengths and pages i32, a mask of bool, a bias and sinks of floats";

// Attention with the optional inputs: lengths, mask, bias, sinks and pages. `page`: keys of a page; `pool`: pages;
// `entries`: pages of a batch item.
const char* kSequenceSizes = R"(
#define SEQUENCE_SIZES uint window, T cap, uint mask_item, uint mask_head, uint bias_item, uint bias_head, \
    uint entries, uint page, uint pool
#define RANGE                                                                                          \
  const int length = LENGTH, place = length - (int)queries + (int)t,                                    \
      first = window ? max(0, place - (int)window + 1) : 0, end = causal ? min(length, place + 1) : length;
)";

const char* kSequence = R"(
kernel void attend(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4) OPTIONAL, SIZES,
    SEQUENCE_SIZES) {
  QUERY
  const uint q_at = Q_AT(batch, h, t), out_at = OUT_AT(batch, h, t);
  RANGE
  T q[ROOM], sums[ROOM], largest = -INFINITY, total = 0;
  for (uint d = 0; d < WIDTH; ++d) q[d] = X_READ(0, q_at + d);
  for (uint d = 0; d < VALUES; ++d) sums[d] = 0;
  SINK
  for (int j = first; j < end; ++j) {
    const uint k_at = K_AT(batch, g, j), v_at = V_AT(batch, g, j);
    T score = 0;
    for (uint d = 0; d < WIDTH; ++d) score += q[d] * K_READ(1, k_at + d);
    score *= scale;
    if (cap > 0) score = tanh(score / cap) * cap;
    TERMS
    if (score == -INFINITY) continue;
    if (score > largest) {
      const T less = exp(largest - score);
      total *= less;
      for (uint d = 0; d < VALUES; ++d) sums[d] *= less;
      largest = score;
    }
    const T e = exp(score - largest);
    total += e;
    for (uint d = 0; d < VALUES; ++d) sums[d] += e * V_READ(2, v_at + d);
  }
  for (uint d = 0; d < VALUES; ++d) X_WRITE(3, out_at + d, total == 0 ? 0 : sums[d] / total);
  LSE_WRITE(4, i, total == 0 ? -INFINITY : log(total) + largest);
}
)";

// Stores the softmax statistics of each query: p = exp(score - shift) * share; the gradient of a score is
// p * (dp - own) * by. `by` is 0 for a query with a single visible key, whose probability is 1 for any score.
const char* kSequenceGradient = R"(
#define BUFFERS BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), BUFFER(6) OPTIONAL, SIZES, \
    SEQUENCE_SIZES
#define SCORE                                                                                     \
  const uint q_at = Q_AT(batch, h, t), out_at = OUT_AT(batch, h, t), k_at = K_AT(batch, g, j),    \
      v_at = V_AT(batch, g, j);                                                                   \
  T score = 0, dp = 0, slope = scale;                                                             \
  for (uint d = 0; d < WIDTH; ++d) score += X_READ(0, q_at + d) * X_READ(1, k_at + d);            \
  for (uint d = 0; d < VALUES; ++d) dp += X_READ(3, out_at + d) * X_READ(2, v_at + d);            \
  score *= scale;                                                                                 \
  if (cap > 0) {                                                                                  \
    const T bent = tanh(score / cap);                                                             \
    score = bent * cap;                                                                           \
    slope *= 1 - bent * bent;                                                                     \
  }                                                                                               \
  TERMS                                                                                           \
  if (score == -INFINITY) continue;
#define ROWS (batches * heads * queries)
#define STATISTIC(n, row) AT(T, 6)[(n) * ROWS + (row)]
#define ROW ((batch * heads + h) * queries + t)
#define PROBABILITY (exp(score - STATISTIC(1, ROW)) * STATISTIC(2, ROW))
#define OF_SCORE(p) ((p) * (dp - STATISTIC(0, ROW)) * STATISTIC(3, ROW))
kernel void queries_of(BUFFERS) {
  QUERY
  RANGE
  T largest = -INFINITY, total = 0, own = 0, dq[ROOM];
  uint seen = 0;
  SINK
  for (int j = first; j < end; ++j) {
    SCORE
    ++seen;
    if (score > largest) {
      const T less = exp(largest - score);
      own *= less, total *= less, largest = score;
    }
    const T e = exp(score - largest);
    own += e * dp, total += e;
  }
  STATISTIC(0, ROW) = total == 0 ? 0 : own / total;
  STATISTIC(1, ROW) = total == 0 ? 0 : largest;
  STATISTIC(2, ROW) = total == 0 ? 0 : 1 / total;
  STATISTIC(3, ROW) = HAS_SINKS ? 1 : seen != 1;
  for (uint d = 0; d < WIDTH; ++d) dq[d] = 0;
  for (int j = first; j < end; ++j) {
    SCORE
    const T ds = OF_SCORE(PROBABILITY) * slope;
    for (uint d = 0; d < WIDTH; ++d) dq[d] += ds * X_READ(1, k_at + d);
  }
  for (uint d = 0; d < WIDTH; ++d) X_WRITE(4, Q_AT(batch, h, t) + d, dq[d]);
}
kernel void keys_of(BUFFERS) {
  const uint i = get_global_id(0);
  if (i >= batches * shared * keys) return;
  const uint g = i / keys % shared, batch = i / keys / shared, group = heads / shared;
  const int j = i % keys;
  T dk[ROOM], dv[ROOM];
  for (uint d = 0; d < WIDTH; ++d) dk[d] = 0;
  for (uint d = 0; d < VALUES; ++d) dv[d] = 0;
  for (uint h = g * group; h < (g + 1) * group; ++h)
    for (uint t = 0; t < queries; ++t) {
      RANGE
      if (j < first || j >= end) continue;
      SCORE
      const T p = PROBABILITY, ds = OF_SCORE(p) * slope;
      for (uint d = 0; d < WIDTH; ++d) dk[d] += ds * X_READ(0, q_at + d);
      for (uint d = 0; d < VALUES; ++d) dv[d] += p * X_READ(3, out_at + d);
    }
  for (uint d = 0; d < WIDTH; ++d) X_WRITE(4, K_AT(batch, g, j) + d, dk[d]);
  for (uint d = 0; d < VALUES; ++d) X_WRITE(5, V_AT(batch, g, j) + d, dv[d]);
}
#ifdef B
kernel void bias_of(BUFFERS) {
  const uint i = get_global_id(0), tables = !bias_item ? 1 : bias_head ? batches * heads : batches;
  if (i >= tables * queries * keys) return;
  const uint t = i / keys % queries, sharing = batches * heads / tables, from = i / keys / queries * sharing;
  const int j = i % keys;
  T sum = 0;
  for (uint n = from; n < from + sharing; ++n) {
    const uint batch = n / heads, h = n % heads, g = h / (heads / shared);
    RANGE
    if (j < first || j >= end) continue;
    SCORE
    sum += OF_SCORE(PROBABILITY);
  }
  B_WRITE(4, i, sum);
}
#endif
#ifdef S
kernel void sinks_of(BUFFERS) {
  const uint h = get_global_id(0);
  if (h >= heads) return;
  T sum = 0;
  for (uint batch = 0; batch < batches; ++batch)
    for (uint t = 0; t < queries; ++t)
      sum -= exp(SINK_READ - STATISTIC(1, ROW)) * STATISTIC(2, ROW) * STATISTIC(0, ROW);
  S_WRITE(4, h, sum);
}
#endif
)";

// Returns the input with this name in a list of optional inputs, which begin at `first`; 0: none.
uint32_t input_named(const std::string& list, const std::string& wanted, uint32_t first) {
  for (size_t at = 0; at < list.size(); ++first) {
    const size_t comma = std::min(list.find(',', at), list.size());
    if (list.compare(at, comma - at, wanted) == 0) return first;
    at = comma + 1;
  }
  return 0;
}

// Buffers of the optional inputs, numbered from `base`, and the source text that reads them.
class OptionalText {
 public:
  explicit OptionalText(uint32_t first) : base(first) {}
  uint32_t base;
  std::string buffers, length = "(int)keys", sink, terms, macros, pages;
  std::vector<uint32_t> places;
  std::vector<std::string> names;
  int64_t strides[4] = {};  // strides of batch items and heads, for the mask and the bias
  int64_t entries = 0, page = 0, pool = 0;

  // Returns false for an input of an unknown name or type. With pages, sets the keys of `a` to those of a table.
  bool take(const Site& site, uint32_t input, Attention& a) {
    const std::string list = site.text("operands");
    if (const uint32_t table = input_named(list, "pages", input)) {
      if (table >= site.inputs()) return false;
      entries = site.in(table).dims[1], page = a.k.positions, pool = a.k.batch;
      a.k.positions = a.v.positions = entries * page;
    }
    for (size_t at = 0; at < list.size(); ++input) {
      const size_t comma = std::min(list.find(',', at), list.size());
      const std::string& name = names.emplace_back(list.substr(at, comma - at));
      if (input >= site.inputs() || !take(name, site.in(input), a)) return false;
      places.push_back(input);
      at = comma + 1;
    }
    return input == site.inputs();
  }
  std::string text(const Site& site, const Attention& a, uint32_t lse_dtype) const {
    return pages + a.head(site, lse_dtype) + cache_macros("K", site.in(1)) + cache_macros("V", site.in(2)) + macros +
           "#define OPTIONAL " + buffers + "\n#define LENGTH " + length + "\n#define SINK " +
           (sink.empty() ? "" : "largest = " + sink + ", total = 1;") + "\n#define SINK_READ " +
           (sink.empty() ? "0" : sink) + "\n#define HAS_SINKS " + (sink.empty() ? "0" : "1") + "\n#define TERMS " +
           terms + "\n" + kSequenceSizes;
  }
  void give(const Site& site, const Attention& a, Launch& launch) const {
    a.give(site, launch);
    launch.with(static_cast<cl_uint>(site.number("window")));
    launch.with_number(site.in(0).dtype, site.number("softcap"));
    for (const int64_t stride : strides) launch.with(static_cast<cl_uint>(stride));
    for (const int64_t size : {entries, page, pool}) launch.with(static_cast<cl_uint>(size));
  }

 private:
  bool take(const std::string& name, const hx_type& type, const Attention& a) {
    const std::string n = std::to_string(base + places.size());
    buffers += ", BUFFER(" + n + ")";
    if (name == "lengths") {
      if (type.dtype != HX_I32) return false;
      length = "clamp(AT(int, " + n + ")[batch], 0, (int)keys)";
      return true;
    }
    if (name == "pages") {
      if (type.dtype != HX_I32) return false;
      pages =
          "#define PAGE(b, j) (uint)clamp(AT(int, " + n + ")[(b) * entries + (uint)(j) / page], 0, (int)pool - 1)\n";
      return true;
    }
    if (name == "sinks") {
      macros += element_macros("S", type.dtype);
      sink = "S_READ(" + n + ", h)";
      return is_float(type.dtype);
    }
    const bool is_mask = name == "mask";
    if ((!is_mask && name != "bias") || (is_mask ? type.dtype != HX_BOOL : !is_float(type.dtype))) return false;
    const int64_t table = a.q.positions * a.k.positions, heads = type.rank == 4 ? type.dims[1] : 0;
    int64_t* const to = strides + (is_mask ? 0 : 2);
    to[0] = heads * table;
    to[1] = heads > 1 ? table : 0;
    const std::string from = name + "_item * batch + " + name + "_head * h + t * keys + j";
    if (is_mask) {
      terms = "if (!AT(uchar, " + n + ")[" + from + "]) continue; " + terms;
    } else {
      macros += element_macros("B", type.dtype);
      terms += "score += B_READ(" + n + ", " + from + ");";
    }
    return true;
  }
};

bool plan_sequence(const Site& site, Attention a, hx_kernel& out) {
  OptionalText more(5);
  if (!more.take(site, 3, a)) return declined(kTakes);
  if (more.entries && std::max(count(site.in(1)), count(site.in(2))) > kMostOfPool)
    return declined("attends over pools of fewer than 2^32 numbers");
  std::vector<uint32_t> buffers{0, 1, 2, site.inputs(), site.inputs() + 1};
  buffers.insert(buffers.end(), more.places.begin(), more.places.end());
  Work work;
  Launch& launch =
      work.launches.emplace_back(site.machine(), more.text(site, a, site.out(1).dtype) + kSequence, "attend", buffers);
  more.give(site, a, launch);
  launch.over(a.q.batch * a.q.heads * a.q.positions);
  answer(out, std::move(work), "attention");
  return true;
}

bool plan_sequence_grad(const Site& site, Attention a, hx_kernel& out) {
  OptionalText more(7);
  if (!more.take(site, 6, a)) return declined(kTakes);
  if (more.entries) return declined("has no gradient over pages");
  const std::string text = more.text(site, a, site.in(4).dtype) + kSequenceGradient;
  const uint32_t dq = site.inputs();
  Work work;
  const auto launch = [&](const char* name, uint32_t to, uint32_t second, int64_t threads) -> Launch& {
    std::vector<uint32_t> buffers{0, 1, 2, 5, to, second, site.workspace()};
    buffers.insert(buffers.end(), more.places.begin(), more.places.end());
    Launch& made = work.launches.emplace_back(site.machine(), text, name, buffers);
    more.give(site, a, made);
    made.over(threads);
    return made;
  };
  const int64_t queries = a.q.batch * a.q.heads * a.q.positions;
  launch("queries_of", dq, dq, queries);
  launch("keys_of", dq + 1, dq + 2, a.k.batch * a.k.heads * a.k.positions);
  uint32_t next = dq + 3;
  for (const std::string& name : more.names) {
    if (name == "sinks") launch("sinks_of", next, next, a.q.heads), ++next;
    if (name == "bias") launch("bias_of", next, next, count(site.out(next - dq))), ++next;
  }
  if (next != site.workspace()) return declined(kTakes);
  answer(out, std::move(work), "attention").workspace =
      static_cast<uint64_t>(4 * queries) * (site.in(0).dtype == HX_F64 ? 8 : 4);
  return true;
}

}  // namespace

bool plan_attention(const Site& site, hx_kernel& out) {
  if (site.inputs() > 3 && site.text("operands").empty()) return declined("takes optional inputs by name");
  if (!is_cache(site.in(1)) || !is_cache(site.in(2)))
    return declined("attends over floats, and over q8_0 whose heads are whole blocks of 32");
  const Attention a(site);
  return a.is_served(site, {}) && plan_sequence(site, a, out);
}

bool plan_attention_grad(const Site& site, hx_kernel& out) {
  const Attention a(site);
  if (!a.is_served(site, {1, 2, 3, 5})) return false;
  if (kernels::has_more_than_attention(site)) return plan_sequence_grad(site, a, out);
  if (site.inputs() != 6) return declined("takes optional inputs by name");
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

HM_PLANS(attention, {"attention", plan_attention}, {"attention_grad", plan_attention_grad})

}  // namespace harmonics::opencl
