// The gradient of attention with lengths, window, soft cap, mask, bias and sinks.
#include "../cached_attention.hpp"

#include "../family.hpp"

#ifdef HM_ISA

#include "gemm.hpp"
#include "score_terms.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

using Gradient = SequenceGradientContext;

// Softmax statistics of each query: p = 2^(score * log2(e) - shift) * share; the gradient of a score is
// p * (dp - delta) * by. `by` is 0 for a query with a single visible key, whose probability is 1 for any score; else 1.
struct Statistics {
  float *shift, *share, *delta, *by;

  Statistics(const Gradient& c, void* const* buffers) {
    const int64_t rows = c.batch * c.shared * c.group * c.queries;
    shift = static_cast<float*>(buffers[c.workspace]);
    share = shift + rows;
    delta = share + rows;
    by = delta + rows;
  }
};

// A block of queries of one head.
class QueryBlock {
 public:
  QueryBlock(const Gradient& c, void* const* buffers, float* room, int64_t batch, int64_t head, int64_t first)
      : c_(c),
        buffers_(buffers),
        all_(c, buffers),
        p_(room),
        dp_(room + kQueryBlock * kKeyBlock),
        batch_(batch),
        head_(head),
        first_(first),
        rows_(least(kQueryBlock, c.queries - first)),
        length_(length_of(c, buffers, batch)) {}

  // Returns the keys within [from, to) that are visible to any of the queries.
  Seen seen(int64_t from, int64_t to) const {
    Seen all{to, from};
    for (int64_t t = 0; t < rows_; ++t) {
      const Seen here = seen_by(c_, length_, first_ + t).within(from, to);
      if (!here.none()) all = {least(all.begin, here.begin), most_of(all.end, here.end)};
    }
    return all;
  }
  template <typename F>
  void for_keys(F f) const {
    for (int64_t key = 0; key < c_.keys; key += kKeyBlock) {
      const Seen keys = seen(key, least(key + kKeyBlock, c_.keys));
      if (!keys.none()) f(keys);
    }
  }

  // Computes the statistics.
  void measure() const {
    float largest[kQueryBlock], sum[kQueryBlock], inner[kQueryBlock], count[kQueryBlock];
    for (int64_t t = 0; t < rows_; ++t) largest[t] = -kInfinity, sum[t] = inner[t] = count[t] = 0;
    for_keys([&](Seen keys) {
      multiply(keys);
      for (int64_t t = 0; t < rows_; ++t) measure_row(t, keys, largest[t], sum[t], inner[t], count[t]);
    });
    for (int64_t t = 0; t < rows_; ++t) {
      if (c_.sinks != kNoBuffer) {
        const float more = sink(), top = largest[t] > more ? largest[t] : more, less = power_of(largest[t], top);
        sum[t] = sum[t] * less + power_of(more, top);
        inner[t] *= less;
        largest[t] = top;
      }
      const float part = sum[t] == 0 ? 0.0f : 1.0f / sum[t];  // no gradient without visible keys
      all_.shift[row(t)] = largest[t] == -kInfinity ? 0.0f : largest[t];
      all_.share[row(t)] = part;
      all_.delta[row(t)] = inner[t] * part;
      all_.by[row(t)] = c_.sinks == kNoBuffer && count[t] == 1 ? 0.0f : 1.0f;
    }
  }

  // Accumulates into dk and dv, and writes dq.
  void run() const {
    float* const dq = static_cast<float*>(buffers_[c_.dq]) + at(c_.q, head_, first_);
    bool begun = false;
    for_keys([&](Seen keys) {
      multiply(keys);
      for (int64_t t = 0; t < rows_; ++t) weigh(t, keys);
      const int64_t n = keys.end - keys.begin;
      const Matrix by_key{p_, 1, kKeyBlock}, scores{dp_, 1, kKeyBlock};
      float* const dk = static_cast<float*>(buffers_[c_.dq + 1]) + at(c_.k, shared(), keys.begin);
      float* const dv = static_cast<float*>(buffers_[c_.dq + 2]) + at(c_.v, shared(), keys.begin);
      gemm_broadcast(n, c_.value_width, rows_, by_key, dout(), c_.out.row, dv, c_.v.row, true);
      gemm_broadcast(n, c_.width, rows_, scores, q(), c_.q.row, dk, c_.k.row, true);
      gemm_broadcast(rows_, c_.width, n, {dp_, kKeyBlock, 1}, k(keys.begin), c_.k.row, dq, c_.q.row, begun);
      begun = true;
    });
    for (int64_t t = 0; t < rows_ && !begun; ++t) clear(dq + t * c_.q.row, c_.width);
  }

  // Adds the gradients of the scores to the rows [T, S] of a bias.
  void add_to_bias(float* rows) const {
    for_keys([&](Seen keys) {
      multiply(keys);
      for (int64_t t = 0; t < rows_; ++t) {
        float* const to = rows + (first_ + t) * c_.keys + keys.begin;
        each(
            t, keys, [&](int64_t v, int64_t n, vi mask, vf x, vf) __attribute__((always_inline)) {
              store_some(to + v, load_some(to + v, n) + gradient_of(t, v, mask, probability(t, x)), n);
            });
      }
    });
  }

  static void clear(float* x, int64_t n) {
    for (int64_t i = 0; i < n; i += kWidth) store_some(x + i, vf{}, lanes_at(i, n));
  }
  HM_INLINE static float power_of(float x, float shift) { return power(splat(x), splat(1), splat(shift))[0]; }

 private:
  int64_t shared() const { return head_ / c_.group; }
  int64_t row(int64_t t) const { return (batch_ * c_.shared * c_.group + head_) * c_.queries + first_ + t; }
  int64_t at(const HeadRows& rows, int64_t head, int64_t position) const {
    return batch_ * rows.batch + head * rows.head + position * rows.row;
  }
  const float* in(uint32_t i) const { return static_cast<const float*>(buffers_[i]); }
  const float* q() const { return in(0) + at(c_.q, head_, first_); }
  const float* k(int64_t key) const { return in(1) + at(c_.k, shared(), key); }
  const float* v(int64_t key) const { return in(2) + at(c_.v, shared(), key); }
  const float* dout() const { return in(5) + at(c_.out, head_, first_); }
  float sink() const { return in(c_.sinks)[head_] * kLog2E; }

  // p_ = products of queries and keys; dp_ = products of dout and values.
  void multiply(Seen keys) const {
    const int64_t n = keys.end - keys.begin;
    gemm_inner(rows_, n, c_.width, q(), c_.q.row, k(keys.begin), c_.k.row, p_, kKeyBlock, false);
    gemm_inner(rows_, n, c_.value_width, dout(), c_.out.row, v(keys.begin), c_.v.row, dp_, kKeyBlock, false);
  }
  // Calls f(lane, number of lanes, mask of visible lanes, scores, derivative of the scores by the products).
  template <typename F>
  HM_INLINE void each(int64_t t, Seen keys, F f) const {
    const Seen own = seen_by(c_, length_, first_ + t).within(keys.begin, keys.end);
    const ScoreTerms terms = ScoreTerms::of(c_, buffers_, batch_, head_, first_ + t, keys.begin);
    const int64_t n = keys.end - keys.begin;
    for (int64_t v = 0; v < n; v += kWidth) {
      const vi mask = lanes_within(v, own.begin - keys.begin, own.end - keys.begin);
      vf x = choose(mask, load(p_ + t * kKeyBlock + v), vf{}), derivative = splat(c_.scale);
      if (c_.softcap > 0) {
        const vf bent = vtanh(x * (c_.scale / c_.softcap));
        x = bent * c_.softcap;
        derivative *= 1.0f - bent * bent;
      } else {
        x *= c_.scale;
      }
      f(v, lanes_at(v, n), mask, choose(mask, terms.apply(x, v, lanes_at(v, n)), splat(-kInfinity)), derivative);
    }
  }
  HM_INLINE vf probability(int64_t t, vf x) const {
    return power(x, splat(kLog2E), splat(all_.shift[row(t)])) * all_.share[row(t)];
  }
  HM_INLINE vf gradient_of(int64_t t, int64_t v, vi mask, vf p) const {
    const int64_t i = row(t);
    return choose(mask, p * (load(dp_ + t * kKeyBlock + v) - all_.delta[i]) * all_.by[i], vf{});
  }

  HM_INLINE void measure_row(int64_t t, Seen keys, float& largest, float& sum, float& inner, float& count) const {
    float* const scores = p_ + t * kKeyBlock;
    vf top = splat(-kInfinity);
    each(
        t, keys, [&](int64_t v, int64_t, vi, vf x, vf) __attribute__((always_inline)) {
          store(scores + v, x);
          top = vmax(x, top);
        });
    const float here = max_of(top), scaled = here == -kInfinity ? here : here * kLog2E;
    const float most = largest > scaled ? largest : scaled, shift = most == -kInfinity ? 0.0f : most;
    const float less = power_of(largest, shift);
    vf more{}, products{}, seen{};
    for (int64_t v = 0; v < keys.end - keys.begin; v += kWidth) {
      const vf x = load(scores + v), e = power(x, splat(kLog2E), splat(shift));
      more += e;
      seen += choose(x > -kInfinity, splat(1), vf{});
      products += choose(x > -kInfinity, e * load(dp_ + t * kKeyBlock + v), vf{});
    }
    largest = most;
    sum = sum * less + sum_of(more);
    inner = inner * less + sum_of(products);
    count += sum_of(seen);
  }
  // Replaces p_ by probabilities, and dp_ by the gradients of the products of queries and keys.
  HM_INLINE void weigh(int64_t t, Seen keys) const {
    each(
        t, keys, [&](int64_t v, int64_t, vi mask, vf x, vf derivative) __attribute__((always_inline)) {
          const vf p = probability(t, x);
          store(dp_ + t * kKeyBlock + v, gradient_of(t, v, mask, p) * derivative);
          store(p_ + t * kKeyBlock + v, p);
        });
  }

  const Gradient& c_;
  void* const* buffers_;
  Statistics all_;
  float *p_, *dp_;  // [kQueryBlock][kKeyBlock]
  int64_t batch_, head_, first_, rows_, length_;
};

// Computes the gradients of one key and value head from all query heads that share it.
void run_item(const Gradient& c, void* const* buffers, float* room, int64_t item) {
  const int64_t batch = item / c.shared, head = item % c.shared;
  for (int64_t key = 0; key < c.keys; ++key) {
    QueryBlock::clear(static_cast<float*>(buffers[c.dq + 1]) + batch * c.k.batch + head * c.k.head + key * c.k.row,
                      c.width);
    QueryBlock::clear(static_cast<float*>(buffers[c.dq + 2]) + batch * c.v.batch + head * c.v.head + key * c.v.row,
                      c.value_width);
  }
  for (int64_t g = 0; g < c.group; ++g)
    for (int64_t first = 0; first < c.queries; first += kQueryBlock) {
      const QueryBlock block(c, buffers, room, batch, head * c.group + g, first);
      block.measure();
      block.run();
    }
}

// Computes a block of rows of one bias matrix from all batch items and heads that share it.
void run_bias(const Gradient& c, void* const* buffers, float* room, int64_t item) {
  const int64_t blocks = whole_blocks(c.queries) / kQueryBlock, table = item / blocks;
  const int64_t first = item % blocks * kQueryBlock, heads = c.shared * c.group;
  float* const rows = static_cast<float*>(buffers[c.dbias]) + table * c.queries * c.keys;
  QueryBlock::clear(rows + first * c.keys, least(kQueryBlock, c.queries - first) * c.keys);
  const int64_t sharing = c.batch * heads / c.bias_tables;
  for (int64_t i = table * sharing; i < (table + 1) * sharing; ++i)
    QueryBlock(c, buffers, room, i / heads, i % heads, first).add_to_bias(rows);
}

void run_sinks(const Gradient& c, void* const* buffers) {
  const Statistics all(c, buffers);
  const int64_t heads = c.shared * c.group;
  for (int64_t head = 0; head < heads; ++head) {
    const float sink = static_cast<const float*>(buffers[c.sinks])[head] * kLog2E;
    double sum = 0;
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t t = 0; t < c.queries; ++t) {
        const int64_t row = (b * heads + head) * c.queries + t;
        sum -= static_cast<double>(QueryBlock::power_of(sink, all.shift[row]) * all.share[row] * all.delta[row]);
      }
    static_cast<float*>(buffers[c.dsinks])[head] = static_cast<float>(sum);
  }
}

}  // namespace

void sequence_gradient(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const Gradient*>(context);
  float* const room = static_cast<float*>(buffers[c.workspace]) + 4 * c.batch * c.shared * c.group * c.queries +
                      part * c.part_workspace;
  if (phase == 0) {
    const Range items = share(c.batch * c.shared, c.parts, part);
    for (int64_t item = items.begin; item < items.end; ++item) run_item(c, buffers, room, item);
    return;
  }
  if (part == 0 && c.dsinks != kNoBuffer) run_sinks(c, buffers);
  if (c.dbias == kNoBuffer) return;
  const Range items = share(c.bias_tables * whole_blocks(c.queries) / kQueryBlock, c.bias_parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) run_bias(c, buffers, room, item);
}

}  // namespace harmonics::cpu::HM_ISA

#else

namespace harmonics::cpu {

bool plan_sequence_gradient(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<SequenceGradientContext>();
  std::vector<std::string> names;
  if (site.inputs() < 6 || !take_sequence(site, 6, *c, names)) return false;
  for (uint32_t i = 0; i < 6; ++i)
    if (!is_f32(site.in(i))) return false;
  c->dq = site.inputs();
  c->dbias = c->dsinks = kNoBuffer;
  uint32_t next = c->dq + 3;
  for (const std::string& name : names)
    if (name == "bias" || name == "sinks") (name == "bias" ? c->dbias : c->dsinks) = next++;
  if (next != site.workspace()) return false;
  c->workspace = next;
  const int64_t items = c->batch * c->shared, rows = items * c->group * c->queries;
  c->bias_tables = !c->bias.batch ? 1 : c->bias.head ? items * c->group : c->batch;
  const double pairs = static_cast<double>(rows) * static_cast<double>(c->keys);
  const double product = 0.1 * static_cast<double>(c->width + c->value_width) / 2;
  c->parts = parts_for(pairs * (3 + 3.5 * product), items);
  c->bias_parts = c->dbias == kNoBuffer
                      ? 1
                      : parts_for(pairs * (1 + product), c->bias_tables * whole_blocks(c->queries) / kQueryBlock);
  c->part_workspace = 2 * kQueryBlock * kKeyBlock;
  const uint64_t workspace =
      static_cast<uint64_t>(4 * rows + c->part_workspace * std::max(c->parts, c->bias_parts)) * sizeof(float);
  std::vector<uint32_t> parts{c->parts};
  if (next > c->dq + 3) parts.push_back(c->bias_parts);
  answer(out, std::move(c), chosen::sequence_gradient(), "sequence attention", parts).workspace = workspace;
  return true;
}

}  // namespace harmonics::cpu

#endif
