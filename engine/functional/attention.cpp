#include <cmath>
#include <limits>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

// Rotates pairs (i, i + D/2) by (offset + t) base^(-2i/D). Angles are f64 for accuracy at late positions.
Values rope(const AttributeMap& a, Inputs in) {
  expect_inputs("rope", in, 1, 1);
  const HTensor& x = in[0];
  const bool first = a.flag("positions_first");
  expect(x.rank() >= (first ? 3u : 2u) && x.shape().back() % 2 == 0, "rope",
         std::string("x is [..., positions, ") + (first ? "heads, " : "") + "width] with an even width, not " +
             text_of(x));
  const int64_t axis = static_cast<int64_t>(x.rank()) - 1, half = x.shape().back() / 2;
  const Shape table = first ? Shape{x.shape()[x.rank() - 3], 1, half} : Shape{x.shape()[x.rank() - 2], half};
  const HTensor position = iota(DType::F64, table, 0) + static_cast<double>(a.integer("offset", 0));
  const double decay = -std::log(a.number("base", 10000)) / static_cast<double>(half);
  const HTensor angle = position * exp(iota(DType::F64, table, first ? 2 : 1) * decay);
  const HTensor v = wide(x);
  const HTensor c = wide(cos(angle), v), turn = wide(sin(angle), v);
  const HTensor s = a.flag("inverse") ? -turn : turn;
  const HTensor left = slice_axis(v, axis, 0, half), right = slice_axis(v, axis, half, 2 * half);
  return {as_type_of(concat({left * c - right * s, right * c + left * s}, axis), x)};
}
Values rope_gradient(const AttributeMap& a, Inputs, Inputs, Inputs gradients) {
  AttributeMap back = a;
  return {one("rope", back.set("inverse", !a.flag("inverse")), {gradients[0]})};
}

// Sizes of an attention; groups of query heads share a key and value head.
struct Heads {
  int64_t batch, shared, group, queries, width, keys, value_width;
  double scale;
  bool causal;

  Heads(const char* name, const AttributeMap& a, const HTensor& q, const HTensor& k, const HTensor& v) {
    const Shape qs = q.shape(), ks = k.shape(), vs = v.shape();
    expect(qs.rank() == 4 && ks.rank() == 4 && vs.rank() == 4 && qs[0] == ks[0] && qs[0] == vs[0] && ks[1] == vs[1] &&
               ks[1] > 0 && qs[1] % ks[1] == 0 && qs[3] == ks[3] && ks[2] == vs[2],
           name,
           "q " + text_of(q) + ", k " + text_of(k) + " and v " + text_of(v) +
               " do not fit: q is [B, H, T, D], k and v [B, Hkv, S, D], and Hkv divides H");
    batch = qs[0];
    shared = ks[1];
    group = qs[1] / ks[1];
    queries = qs[2];
    width = qs[3];
    keys = ks[2];
    value_width = vs[3];
    scale = a.number("scale", 1 / std::sqrt(static_cast<double>(width)));
    causal = a.flag("causal");
  }
  // [B, H, T, ...] -> [B, Hkv, group, T, ...] and back.
  HTensor split(const HTensor& x) const {
    std::vector<int64_t> dims{batch, shared, group};
    for (int64_t d : x.shape().from(2)) dims.push_back(d);
    return reshape(x, Shape(dims));
  }
  HTensor join(const HTensor& x) const {
    std::vector<int64_t> dims{batch, shared * group};
    for (int64_t d : x.shape().from(3)) dims.push_back(d);
    return reshape(x, Shape(dims));
  }
  // Returns whether some queries see no key. The mask is aligned at the lower right corner: the last query sees all
  // keys.
  bool has_blind() const { return causal && queries > keys; }
  // Scaled and masked scores [B, Hkv, group, T, S].
  HTensor scores(const HTensor& q, const HTensor& k) const {
    const HTensor s = dot(split(q), k, {4}, {3}, {0, 1}, {0, 1}) * scale;
    if (!causal) return s;
    const Shape mask{queries, keys};
    const HTensor last_seen = iota(DType::I64, mask, 0) + static_cast<double>(keys - queries);
    const HTensor seen = less_equal(iota(DType::I64, mask, 1), last_seen);
    return select(seen, s, full(s.dtype(), s.shape(), -std::numeric_limits<double>::infinity()));
  }
  // Replaces the -inf of queries that see no key, so that exp(-inf - x) is 0 and not NaN.
  HTensor finite(const HTensor& x) const {
    return has_blind() ? select(equal(x, -std::numeric_limits<double>::infinity()), zeros_like(x), x) : x;
  }
  // Normalised by their own sum, since lse is rounded to the precision of the largest score. lse marks queries that see
  // no key.
  HTensor probabilities(const HTensor& scores, const HTensor& lse) const {
    const HTensor p = one("softmax", {}, {scores});
    if (!has_blind()) return p;
    return select(equal(column(split(lse)), -std::numeric_limits<double>::infinity()), zeros_like(p), p);
  }
};

// [B, T, H, D] -> [B, H, T, D] and back.
HTensor swapped(const HTensor& x) { return transpose(x, {0, 2, 1, 3}); }
AttributeMap heads_first(const AttributeMap& a) { return AttributeMap(a).set("positions_first", false); }

// A query that sees no key gives 0, with lse -inf.
Values attention(const AttributeMap& a, Inputs in) {
  expect_inputs("attention", in, 3, 3);
  if (a.flag("positions_first")) {
    for (const HTensor& x : in) expect(x.rank() == 4, "attention", "q, k and v have four axes, not " + text_of(x));
    const std::vector<HTensor> rows{swapped(in[0]), swapped(in[1]), swapped(in[2])};
    const Values result = attention(heads_first(a), rows);
    return {swapped(result[0]), result[1]};
  }
  const Heads h("attention", a, in[0], in[1], in[2]);
  const HTensor scores = h.scores(wide(in[0]), wide(in[1]));
  const HTensor largest = h.finite(stop_gradient(reduce_max(scores, {4})));
  const HTensor e = exp(scores - column(largest));
  const HTensor sum = reduce_sum(e, {4});
  const HTensor lse = log(sum) + largest;
  const HTensor divisor = h.has_blind() ? select(equal(sum, 0.0), full(sum.dtype(), sum.shape(), 1), sum) : sum;
  const HTensor out = dot(e, wide(in[2]), {4}, {2}, {0, 1}, {0, 1}) / column(divisor);
  return {as_type_of(h.join(out), in[0]), h.join(lse)};
}

// The gradient of lse adds probabilities times dlse to that of the scores.
Values through_lse(const Heads& h, Inputs in, const HTensor& lse, const HTensor& dlse) {
  const HTensor q = wide(in[0]), k = wide(in[1]);
  const HTensor ds = h.probabilities(h.scores(q, k), lse) * column(h.split(dlse));
  return {as_type_of(h.join(dot(ds, k, {4}, {2}, {0, 1}, {0, 1})) * h.scale, in[0]),
          as_type_of(dot(ds, h.split(q), {2, 3}, {2, 3}, {0, 1}, {0, 1}) * h.scale, in[1])};
}
Values attention_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  Values result = apply("attention_grad", a, {in[0], in[1], in[2], out[0], out[1], or_zero(gradients[0], out[0])});
  if (gradients[1]) {
    const bool first = a.flag("positions_first");
    std::vector<HTensor> rows(in.begin(), in.end());
    if (first)
      for (HTensor& x : rows) x = swapped(x);
    const Values more = through_lse(Heads("attention", a, rows[0], rows[1], rows[2]), rows, out[1], gradients[1]);
    for (size_t i = 0; i < more.size(); ++i) result[i] = result[i] + (first ? swapped(more[i]) : more[i]);
  }
  return result;
}
// softmax_grad uses sum(p dp), which equals dp if a query sees a single key, so that its gradients are exactly 0;
// sum(dout out) would leave a rounding error.
Values attention_grad(const AttributeMap& a, Inputs in) {
  expect_inputs("attention_grad", in, 6, 6);
  if (a.flag("positions_first")) {
    std::vector<HTensor> rows(in.begin(), in.end());
    for (size_t i : {0, 1, 2, 3, 5}) rows[i] = swapped(rows[i]);
    Values result = attention_grad(heads_first(a), rows);
    for (HTensor& x : result) x = swapped(x);
    return result;
  }
  const Heads h("attention_grad", a, in[0], in[1], in[2]);
  const HTensor q = wide(in[0]), k = wide(in[1]), v = wide(in[2]), dout = wide(in[5]);
  const HTensor p = h.probabilities(h.scores(q, k), in[4]);
  const HTensor dout_heads = h.split(dout);
  const HTensor dv = dot(p, dout_heads, {2, 3}, {2, 3}, {0, 1}, {0, 1});
  const HTensor dp = dot(dout_heads, v, {4}, {3}, {0, 1}, {0, 1});
  const HTensor ds = one("softmax_grad", {}, {p, dp}) * h.scale;
  const HTensor dq = h.join(dot(ds, k, {4}, {2}, {0, 1}, {0, 1}));
  const HTensor dk = dot(ds, h.split(q), {2, 3}, {2, 3}, {0, 1}, {0, 1});
  return {as_type_of(dq, in[0]), as_type_of(dk, in[1]), as_type_of(dv, in[2])};
}

}  // namespace

std::vector<Functional> attentions() {
  return {
      {"rope", "rotary positions: pairs (i, i + D/2) turned by an angle that grows with the position",
       "x [..., T, D] {base = 10000, offset = 0, inverse = false, positions_first = false: x [..., T, H, D]} -> y like "
       "x",
       rope, rope_gradient},
      {"attention",
       "softmax(q k' scale) v per head; causal: the last query sees every key; lse is log(sum(exp)) of a row",
       "q [B, H, T, D], k [B, Hkv, S, D], v [B, Hkv, S, D] {causal = false, scale = 1/sqrt(D), positions_first = "
       "false: [B, T, H, D]} -> out like q, lse [B, H, T]",
       attention, attention_gradient},
      {"attention_grad", "gradient of attention with its results out and lse",
       "q, k, v, out [B, H, T, D], lse [B, H, T], dout [B, H, T, D] {as attention} -> dq, dk, dv", attention_grad,
       nullptr},
  };
}

}  // namespace harmonics::engine::reference
