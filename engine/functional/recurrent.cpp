// LSTM and GRU. One product over all positions computes the contribution of the input to the gates; a scan over the
// positions computes the rest.
//
// Gates are in the order of PyTorch: i f g o, and r z n. A scan returns their values for its gradient (for the GRU also
// q, the contribution of the state to n). The bodies are loops over the positions, on the first axis.
#include "engine/functional/reference.hpp"
#include "engine/program/scan.hpp"

#include <harmonics/quantity.hpp>

namespace harmonics::engine::reference {
namespace {

// The sizes and the direction of a scan.
struct Scan {
  int64_t batch, positions, width;
  bool reverse;

  Scan(const AttributeMap& a, const HTensor& per_position, int64_t width)
      : batch(per_position.shape()[0]), positions(per_position.shape()[1]), width(width), reverse(a.flag("reverse")) {}
  HTensor part(const HTensor& gates, int64_t i) const { return slice_axis(gates, 1, i * width, (i + 1) * width); }
  // Runs a body over [batch, positions, n] tensors. Returns the carries, then tensors of that shape.
  Values over(const ScanBody& body, const Values& carries, const Values& constants, const Values& sequences,
              bool from_end) const {
    Values xs;
    for (const HTensor& x : sequences) xs.push_back(transpose(x, {1, 0, 2}));
    Values results = scan(body, carries, constants, xs, from_end);
    for (size_t i = carries.size(); i < results.size(); ++i) results[i] = transpose(results[i], {1, 0, 2});
    return results;
  }
  // Returns the state before each position.
  HTensor before(const HTensor& states, const HTensor& initial) const {
    const HTensor first = reshape(initial, {batch, 1, width});
    if (positions == 1) return first;
    return reverse ? concat({slice_axis(states, 1, 1, positions), first}, 1)
                   : concat({first, slice_axis(states, 1, 0, positions - 1)}, 1);
  }
};

void expect_sequence(const char* name, const HTensor& x) {
  expect(x.rank() == 3 && x.shape()[1] > 0, name, "x is [batch, positions, features], not " + text_of(x));
}

// The last axis of x and the first axes of weight and bias contain `gates` parts of the state's width.
Scan scan_of(const char* name, const AttributeMap& a, const HTensor& x, const HTensor& weight, int64_t gates) {
  expect_sequence(name, x);
  const int64_t width = weight.rank() == 2 ? weight.shape()[1] : 0;
  expect(width > 0 && weight.shape() == Shape{gates * width, width} && x.shape()[2] == gates * width, name,
         "x " + text_of(x) + " and weight " + text_of(weight) + " do not fit: with a state of H numbers x is [N, T, " +
             std::to_string(gates) + " H] and the weight [" + std::to_string(gates) + " H, H]");
  return Scan(a, x, width);
}
void expect_state(const char* name, const Scan& s, const HTensor& state, const char* what) {
  expect(state.shape() == Shape{s.batch, s.width}, name,
         std::string(what) + " " + text_of(state) + " does not fit: it needs shape " + Shape{s.batch, s.width}.str());
}
AttributeMap direction(const AttributeMap& a) { return AttributeMap().set("reverse", a.flag("reverse")); }

// x, weight, h0, c0 -> y, c, gates
Values lstm_scan(const AttributeMap& a, Inputs in) {
  const Scan s = scan_of("lstm_scan", a, in[0], in[1], 4);
  expect_state("lstm_scan", s, in[2], "h0");
  expect_state("lstm_scan", s, in[3], "c0");
  const auto step = [&](const Values& v) {  // h, c, weight, x
    const HTensor before = v[3] + dot(v[0], v[2], {1}, {1});
    const HTensor i = logistic(s.part(before, 0)), f = logistic(s.part(before, 1)), g = tanh(s.part(before, 2)),
                  o = logistic(s.part(before, 3));
    const HTensor c = f * v[1] + i * g, h = o * tanh(c);
    return Values{h, c, h, c, concat({i, f, g, o}, 1)};
  };
  const Values r = s.over(step, {wide(in[2]), wide(in[3])}, {wide(in[1])}, {wide(in[0])}, s.reverse);
  return {as_type_of(r[2], in[0]), r[3], r[4]};
}

// weight, c, gates, c0, dy, [dc, [dgates]] -> dx, dh0, dc0
Values lstm_scan_grad(const AttributeMap& a, Inputs in) {
  const Scan s = scan_of("lstm_scan_grad", a, in[2], in[0], 4);
  const auto step = [&](const Values& v) {  // dh, dc, weight, gates, c, previous c, dy, [dc, [dgates]]
    const HTensor i = s.part(v[3], 0), f = s.part(v[3], 1), g = s.part(v[3], 2), o = s.part(v[3], 3);
    const auto add_given = [&](const HTensor& d, int64_t part) { return v.size() > 8 ? d + s.part(v[8], part) : d; };
    const HTensor dhere = v[6] + v[0], squashed = tanh(v[4]);
    HTensor dcell = dhere * o * (1.0 - square(squashed)) + v[1];
    if (v.size() > 7) dcell = dcell + v[7];
    const HTensor di = add_given(dcell * g, 0), df = add_given(dcell * v[5], 1), dg = add_given(dcell * i, 2),
                  dout = add_given(dhere * squashed, 3);
    const HTensor before =
        concat({di * (i * (1.0 - i)), df * (f * (1.0 - f)), dg * (1.0 - square(g)), dout * (o * (1.0 - o))}, 1);
    return Values{dot(before, v[2], {1}, {0}), dcell * f, before};
  };
  const HTensor c0 = wide(in[3]), none = zeros_like(c0);
  Values sequences{in[2], in[1], s.before(in[1], c0), wide(in[4])};
  sequences.insert(sequences.end(), in.begin() + 5, in.end());
  const Values r = s.over(step, {none, none}, {wide(in[0])}, sequences, !s.reverse);
  return {as_type_of(r[2], in[4]), as_type_of(r[0], in[4]), as_type_of(r[1], in[3])};
}

// Returns the gradient of the weight as one product over all positions.
HTensor weight_gradient(const HTensor& dgates, const HTensor& before, const HTensor& weight) {
  return as_type_of(dot(dgates, as_type_of(before, dgates), {0, 1}, {0, 1}), weight);
}

Values lstm_scan_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  const Scan s = scan_of("lstm_scan", a, in[0], in[1], 4);
  Values inputs{in[1], out[1], out[2], in[3], or_zero(gradients[0], out[0])};
  if (gradients[1] || gradients[2]) inputs.push_back(or_zero(gradients[1], out[1]));
  if (gradients[2]) inputs.push_back(gradients[2]);
  const Values d = apply("lstm_scan_grad", direction(a), inputs);
  return {d[0], weight_gradient(d[0], s.before(out[0], as_type_of(in[2], out[0])), in[1]), as_type_of(d[1], in[2]),
          d[2]};
}

// x, weight, bias, h0 -> y, gates
Values gru_scan(const AttributeMap& a, Inputs in) {
  const Scan s = scan_of("gru_scan", a, in[0], in[1], 3);
  expect(in[2].shape() == Shape{3 * s.width}, "gru_scan",
         "bias " + text_of(in[2]) + " does not fit: it needs shape " + Shape{3 * s.width}.str());
  expect_state("gru_scan", s, in[3], "h0");
  const auto step = [&](const Values& v) {  // h, weight, bias, x
    const HTensor past = dot(v[0], v[1], {1}, {1}) + v[2];
    const HTensor r = logistic(s.part(v[3], 0) + s.part(past, 0)), z = logistic(s.part(v[3], 1) + s.part(past, 1)),
                  q = s.part(past, 2), n = tanh(s.part(v[3], 2) + r * q);
    const HTensor h = n + z * (v[0] - n);
    return Values{h, h, concat({r, z, n, q}, 1)};
  };
  const Values r = s.over(step, {wide(in[3])}, {wide(in[1]), wide(in[2])}, {wide(in[0])}, s.reverse);
  return {as_type_of(r[1], in[0]), r[2]};
}

// weight, y, gates, h0, dy, [dgates] -> dx, dpast (of weight h + bias), dh0
Values gru_scan_grad(const AttributeMap& a, Inputs in) {
  expect_sequence("gru_scan_grad", in[1]);
  const Scan s(a, in[1], in[1].shape()[2]);
  expect(in[0].shape() == Shape{3 * s.width, s.width} && in[2].shape() == Shape{s.batch, s.positions, 4 * s.width},
         "gru_scan_grad",
         "weight " + text_of(in[0]) + ", y " + text_of(in[1]) + " and gates " + text_of(in[2]) + " do not fit");
  const auto step = [&](const Values& v) {  // dh, weight, gates, previous h, dy, [dgates]
    const HTensor r = s.part(v[2], 0), z = s.part(v[2], 1), n = s.part(v[2], 2), q = s.part(v[2], 3);
    const auto add_given = [&](const HTensor& d, int64_t part) { return v.size() > 5 ? d + s.part(v[5], part) : d; };
    const HTensor dhere = v[4] + v[0];
    const HTensor dn = add_given(dhere * (1.0 - z), 2) * (1.0 - square(n));
    const HTensor dz = add_given(dhere * (v[3] - n), 1) * (z * (1.0 - z));
    const HTensor dr = add_given(dn * q, 0) * (r * (1.0 - r)), dq = add_given(dn * r, 3);
    const HTensor dpast = concat({dr, dz, dq}, 1);
    return Values{dhere * z + dot(dpast, v[1], {1}, {0}), concat({dr, dz, dn}, 1), dpast};
  };
  const HTensor h0 = wide(in[3]);
  Values sequences{in[2], s.before(wide(in[1]), h0), wide(in[4])};
  sequences.insert(sequences.end(), in.begin() + 5, in.end());
  const Values r = s.over(step, {zeros_like(h0)}, {wide(in[0])}, sequences, !s.reverse);
  return {as_type_of(r[1], in[4]), as_type_of(r[2], in[4]), as_type_of(r[0], in[3])};
}

Values gru_scan_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  const Scan s = scan_of("gru_scan", a, in[0], in[1], 3);
  Values inputs{in[1], out[0], out[1], in[3], or_zero(gradients[0], out[0])};
  if (gradients[1]) inputs.push_back(gradients[1]);
  const Values d = apply("gru_scan_grad", direction(a), inputs);
  return {d[0], weight_gradient(d[1], s.before(out[0], as_type_of(in[3], out[0])), in[1]),
          as_type_of(reduce_sum(d[1], {0, 1}), in[2]), d[2]};
}

void expect_counts(const char* name, Inputs in, size_t states) {
  expect(in.size() == 3 || in.size() == 5 || in.size() == 5 + states, name,
         "takes x, two weights, optionally two biases, and with biases optionally the initial state; got " +
             quantity(in.size(), "input"));
  expect_sequence(name, in[0]);
  expect(in[2].rank() == 2, name, "the state's weight is a matrix, not " + text_of(in[2]));
}
HTensor no_state(Inputs in) { return full(in[0].dtype(), {in[0].shape()[0], in[2].shape()[1]}, 0); }

// x, w_ih, w_hh, [b_ih, b_hh, [h0, c0]] -> y, c
Values lstm(const AttributeMap& a, Inputs in) {
  expect_counts("lstm", in, 2);
  const HTensor gates = in.size() > 3 ? linear(in[0], in[1], in[3] + in[4]) : linear(in[0], in[1]);
  const HTensor h0 = in.size() > 5 ? in[5] : no_state(in), c0 = in.size() > 5 ? in[6] : no_state(in);
  const Values scanned = apply("lstm_scan", direction(a), {gates, in[2], h0, c0});
  return {scanned[0], scanned[1]};
}

// x, w_ih, w_hh, [b_ih, b_hh, [h0]] -> y
Values gru(const AttributeMap& a, Inputs in) {
  expect_counts("gru", in, 1);
  const HTensor gates = in.size() > 3 ? linear(in[0], in[1], in[3]) : linear(in[0], in[1]);
  const HTensor bias = in.size() > 3 ? in[4] : full(in[0].dtype(), {in[2].shape()[0]}, 0);
  return {apply("gru_scan", direction(a), {gates, in[2], bias, in.size() > 5 ? in[5] : no_state(in)})[0]};
}

}  // namespace

std::vector<Functional> recurrences() {
  return {
      {"lstm", "long short-term memory over the positions; gate order i, f, g, o",
       "x [N, T, in], w_ih [4H, in], w_hh [4H, H], b_ih [4H]?, b_hh [4H]?, h0 [N, H]?, c0 [N, H]? {reverse = false} "
       "-> "
       "y [N, T, H], c [N, T, H]",
       lstm, nullptr},
      {"lstm_scan", "the recurrent part of lstm",
       "x [N, T, 4H], w_hh [4H, H], h0 [N, H], c0 [N, H] {reverse = false} -> y [N, T, H], c [N, T, H], gates [N, T, "
       "4H]",
       lstm_scan, lstm_scan_gradient},
      {"lstm_scan_grad", "gradient of lstm_scan, except for the weight",
       "w_hh [4H, H], c [N, T, H], gates [N, T, 4H], c0 [N, H], dy [N, T, H], dc [N, T, H]?, dgates [N, T, 4H]? "
       "{reverse = false} -> dx [N, T, 4H], dh0 [N, H], dc0 [N, H]",
       lstm_scan_grad, nullptr},
      {"gru", "gated recurrent units over the positions; gate order r, z, n; r multiplies the product with w_hh",
       "x [N, T, in], w_ih [3H, in], w_hh [3H, H], b_ih [3H]?, b_hh [3H]?, h0 [N, H]? {reverse = false} -> "
       "y [N, T, H]",
       gru, nullptr},
      {"gru_scan", "the recurrent part of gru",
       "x [N, T, 3H], w_hh [3H, H], b_hh [3H], h0 [N, H] {reverse = false} -> y [N, T, H], gates [N, T, 4H]", gru_scan,
       gru_scan_gradient},
      {"gru_scan_grad", "gradient of gru_scan, except for the weight and the bias",
       "w_hh [3H, H], y [N, T, H], gates [N, T, 4H], h0 [N, H], dy [N, T, H], dgates [N, T, 4H]? {reverse = false} "
       "-> "
       "dx [N, T, 3H], dpast [N, T, 3H], dh0 [N, H]",
       gru_scan_grad, nullptr},
  };
}

}  // namespace harmonics::engine::reference
