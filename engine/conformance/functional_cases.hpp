// Calls of every functional with random odd shapes, for conformance tests and checks of implementations.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine::conformance {

// An input: shape and distribution.
struct Operand {
  enum Kind {
    number,    // of the tested float type, away from 0 (kinks)
    positive,  // like number, above 0
    fraction,  // like number, between 0 and 1
    random,    // f32 in [0, 1), not differentiated
    rate,      // f32 scalar, not differentiated
    index,     // `dtype` in [0, limit)
    step,      // the i64 scalar 3
  };
  Kind kind = number;
  Shape shape;
  DType dtype = DType::I64;
  int64_t limit = 0;
  bool statistic = false;  // mean, rstd, lse and the like: f32 if the tested type is 16-bit
};

struct FunctionalCase {
  std::string functional;
  AttributeMap attributes;
  std::vector<Operand> inputs;

  std::string str() const {
    std::string s = functional + attributes.str();
    for (const Operand& o : inputs) s += " " + o.shape.str();
    return s;
  }
};

inline HTensor make_operand(const Operand& operand, DType dtype, std::mt19937_64& generator) {
  const int64_t n = operand.shape.count();
  if (operand.kind == Operand::step) return HTensor::from<int64_t>({}, {3});
  if (operand.kind == Operand::index) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<int64_t>(generator() % operand.limit));
    return cast(HTensor::from(operand.shape, values), operand.dtype);
  }
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    const double u = static_cast<double>(generator() >> 40) / (1 << 24),
                 v = static_cast<double>(generator() >> 40) / (1 << 24);
    const double size = 0.05 + 1.9 * u;
    switch (operand.kind) {
      case Operand::positive:
        values.push_back(size);
        break;
      case Operand::fraction:
        values.push_back(size / 2);
        break;
      case Operand::random:
        values.push_back(u);
        break;
      case Operand::rate:
        values.push_back(0.0625);
        break;
      default:
        values.push_back(v < 0.5 ? -size : size);
    }
  }
  const bool half = dtype == DType::F16 || dtype == DType::BF16;
  const bool single = operand.kind == Operand::random || operand.kind == Operand::rate || (operand.statistic && half);
  return cast(HTensor::from(operand.shape, values), single ? DType::F32 : dtype);
}

// Computes the results of the forward call that a gradient takes, which are not random: kernels may use either form.
using Completion = void (*)(const AttributeMap&, std::vector<HTensor>& in);
inline const std::map<std::string, Completion>& completions() {
  static const std::map<std::string, Completion> all{
      {"softmax_cross_entropy_grad",
       [](const AttributeMap&, std::vector<HTensor>& in) {
         in[2] = apply("softmax_cross_entropy", {}, {in[0], in[1]}).at(1);
       }},
      {"attention_grad", [](const AttributeMap& attributes, std::vector<HTensor>& in) {
         std::vector<HTensor> given(in.begin(), in.begin() + 3);
         given.insert(given.end(), in.begin() + 6, in.end());
         const std::vector<HTensor> forward = apply("attention", attributes, given);
         in[3] = forward.at(0);
         in[4] = forward.at(1);
       }}};
  return all;
}

inline std::vector<HTensor> make_operands(const FunctionalCase& c, DType dtype, std::mt19937_64& generator) {
  std::vector<HTensor> in;
  for (const Operand& operand : c.inputs) in.push_back(make_operand(operand, dtype, generator));
  if (const auto complete = completions().find(c.functional); complete != completions().end())
    complete->second(c.attributes, in);
  return in;
}

// Reproducible small odd sizes.
class Sizes {
 public:
  explicit Sizes(uint64_t seed) : generator_(seed) {}
  int64_t odd() { return 1 + 2 * static_cast<int64_t>(generator_() % 3); }  // 1, 3, 5
  int64_t some() { return 2 + static_cast<int64_t>(generator_() % 4); }     // 2 .. 5
  bool coin() { return generator_() % 2 == 0; }

 private:
  std::mt19937_64 generator_;
};

inline Operand numbers(const Shape& shape) { return {Operand::number, shape}; }
inline Operand statistics(const Shape& shape) { return {Operand::number, shape, DType::F32, 0, true}; }
inline Operand spreads(const Shape& shape) { return {Operand::positive, shape, DType::F32, 0, true}; }
inline Operand fractions(const Shape& shape) { return {Operand::fraction, shape, DType::F32, 0, true}; }
inline Operand positives(const Shape& shape) { return {Operand::positive, shape}; }
inline Operand randoms(const Shape& shape) { return {Operand::random, shape}; }
inline Operand rate() { return {Operand::rate, {}}; }
inline Operand indices(const Shape& shape, int64_t limit, DType dtype) { return {Operand::index, shape, dtype, limit}; }

inline Shape joined(const Shape& a, const Shape& b) {
  Shape s = a;
  for (int64_t d : b) s.push_back(d);
  return s;
}

using Cases = std::vector<FunctionalCase>;

inline void add_activation_cases(Cases& cases, Sizes& sizes) {
  const Operand x = numbers({sizes.odd(), sizes.some(), sizes.odd()});
  for (const char* name : {"relu", "leaky_relu", "gelu", "silu", "elu", "softplus", "softmax", "log_softmax"})
    cases.push_back({name, {}, {x}});
  cases.push_back({"gelu", AttributeMap().set("approximate", std::string("tanh")), {x}});
  cases.push_back({"gelu_grad", {}, {x, x}});
  cases.push_back({"gelu_grad", AttributeMap().set("approximate", std::string("tanh")), {x, x}});
  cases.push_back({"leaky_relu", AttributeMap().set("slope", 0.3), {x}});
  cases.push_back({"elu", AttributeMap().set("alpha", 0.7), {x}});
  for (const char* name : {"selu", "celu", "hardtanh", "hardsigmoid", "hardswish", "mish"})
    cases.push_back({name, {}, {x}});
  cases.push_back({"celu", AttributeMap().set("alpha", 0.7), {x}});
  cases.push_back({"hardtanh", AttributeMap().set("low", -0.5).set("high", 1.25), {x}});
  cases.push_back({"prelu", {}, {x, numbers({1})}});
  for (int64_t axis = 0; axis < 3; ++axis)
    cases.push_back({"prelu", AttributeMap().set("axis", axis), {x, numbers({x.shape[static_cast<uint32_t>(axis)]})}});
  cases.push_back({"softmax_grad", {}, {x, x}});
  cases.push_back({"log_softmax_grad", {}, {x, x}});
}

inline void add_linear_cases(Cases& cases, Sizes& sizes) {
  const int64_t in = sizes.some(), out = sizes.odd();
  for (const char* activation : {"", "relu", "tanh", "logistic", "gelu"})
    cases.push_back({"linear",
                     AttributeMap().set("activation", std::string(activation)),
                     {numbers({sizes.odd(), sizes.odd(), in}), numbers({out, in}), numbers({out})}});
  cases.push_back({"linear", {}, {numbers({sizes.some(), in}), numbers({out, in})}});
  cases.push_back({"linear", {}, {numbers({in}), numbers({out, in}), numbers({out})}});
  const AttributeMap transposed = AttributeMap().set("transposed", true);
  cases.push_back({"linear", transposed, {numbers({sizes.some(), in}), numbers({in, out}), numbers({out})}});
  cases.push_back({"linear", AttributeMap(transposed).set("activation", "gelu"), {numbers({in}), numbers({in, out})}});
  const auto axes = [](std::vector<int64_t> lhs, std::vector<int64_t> rhs, std::vector<int64_t> batch) {
    return AttributeMap()
        .set("lhs_contract", std::move(lhs))
        .set("rhs_contract", std::move(rhs))
        .set("lhs_batch", batch)
        .set("rhs_batch", batch);
  };
  const Operand keep{Operand::index, {}, DType::Bool, 2};
  cases.push_back({"dot_add", axes({1}, {0}, {}), {numbers({3, out}), numbers({3, in}), numbers({in, out})}});
  cases.push_back({"dot_add", axes({0}, {0}, {}), {numbers({in, out}), numbers({7, in}), numbers({7, out}), keep}});
  cases.push_back({"dot_add", axes({2}, {1}, {0}), {numbers({2, 3, out}), numbers({2, 3, in}), numbers({2, in, out})}});
  for (const int64_t which : {0, 1}) {
    cases.push_back({"dot_sum", axes({0}, {0}, {}).set("sum", which), {numbers({7, in}), numbers({7, out})}});
    cases.push_back(
        {"dot_sum", axes({1, 0}, {1, 0}, {}).set("sum", which), {numbers({3, 7, in}), numbers({3, 7, out})}});
    cases.push_back({"dot_sum", axes({1}, {0}, {}).set("sum", which), {numbers({in, 5}), numbers({5, out})}});
  }
  for (const char* mode : {"", "all", "active"})
    cases.push_back({"sgd_outer",
                     AttributeMap().set("input_gradient", std::string(mode)),
                     {numbers({in, out}), numbers({3, in}), numbers({3, out}), rate()}});
  const AttributeMap scale = AttributeMap().set("scale", 0.0625);
  cases.push_back({"linear",
                   AttributeMap(scale).set("activation", "tanh"),
                   {indices({3, in}, 256, DType::U8), numbers({out, in}), numbers({out})}});
  cases.push_back(
      {"linear", AttributeMap(scale).set("transposed", true), {indices({in}, 256, DType::U8), numbers({in, out})}});
  cases.push_back(
      {"sgd_outer", scale, {numbers({in, out}), indices({5, in}, 256, DType::U8), numbers({5, out}), rate()}});
}

inline void add_fused_cases(Cases& cases, Sizes& sizes) {
  const int64_t rows = 7 * sizes.odd(), columns = sizes.some();
  for (const char* reduction : {"reduce_sum", "reduce_max"})
    for (int64_t axis : {0, 1})
      for (const std::vector<int64_t>& outputs : {std::vector<int64_t>{3}, std::vector<int64_t>{2, 3}})
        cases.push_back({"fused_reduce",
                         AttributeMap()
                             .set("chain", std::string("sub(0,1):f32 mul(2,2):f32"))
                             .set("outputs", outputs)
                             .set("shape", std::vector<int64_t>{rows, columns})
                             .set("reduction", std::string(reduction))
                             .set("axes", std::vector<int64_t>{axis}),
                         {numbers({rows, columns}), numbers({columns})}});
}

inline void add_norm_cases(Cases& cases, Sizes& sizes) {
  const Shape lead{sizes.odd(), sizes.some()}, row{3 + sizes.odd()}, tile{sizes.some(), sizes.some()};
  for (const Shape& own : {row, tile}) {
    const AttributeMap axes = AttributeMap().set("norm_axes", int64_t{own.rank()});
    AttributeMap with_epsilon = axes;
    with_epsilon.set("epsilon", 1e-3);
    const Operand x = numbers(joined(lead, own)), p = numbers(own);
    cases.push_back({"layer_norm", with_epsilon, {x, p, p}});
    cases.push_back({"layer_norm_grad", axes, {x, p, statistics(lead), spreads(lead), x}});
  }
  const Operand x = numbers(joined(lead, row)), gain = numbers(row);
  cases.push_back({"rms_norm", AttributeMap().set("epsilon", 1e-4), {x, gain}});
  cases.push_back({"rms_norm_grad", {}, {x, gain, spreads(lead), x}});
  const int64_t channels = sizes.odd();
  for (const Shape& image :
       {Shape{3 + sizes.odd(), channels}, Shape{sizes.some(), channels, sizes.odd(), sizes.some()}}) {
    const Operand pixels = numbers(image), c = numbers({channels});
    cases.push_back({"batch_norm", AttributeMap().set("epsilon", 1e-3), {pixels, c, c}});
    cases.push_back({"batch_norm_grad", {}, {pixels, c, statistics({channels}), spreads({channels}), pixels}});
    for (int64_t groups : {int64_t{1}, channels}) {
      const AttributeMap a = AttributeMap().set("groups", groups);
      AttributeMap with_epsilon = a;
      const Operand few = statistics({image[0], groups}), spread = spreads(few.shape);
      const Operand more = numbers({image[0], 2 * channels, 5}), own = numbers({2 * channels});
      cases.push_back({"group_norm", with_epsilon.set("epsilon", 1e-3), {more, own, own}});
      cases.push_back({"group_norm_grad", a, {more, own, few, spread, more}});
      if (image.rank() == 4) cases.push_back({"group_norm_grad", a, {pixels, c, few, spread, pixels}});
    }
  }
}

inline void add_loss_cases(Cases& cases, Sizes& sizes) {
  const int64_t classes = 1 + sizes.some();
  for (const Shape& lead : {Shape{sizes.odd()}, Shape{sizes.odd(), sizes.some()}}) {
    const Operand logits = numbers(joined(lead, {classes})), each = statistics(lead);
    for (DType dtype : {DType::U8, DType::I32, DType::I64}) {
      const Operand labels = indices(lead, classes, dtype);
      cases.push_back({"softmax_cross_entropy", {}, {logits, labels}});
      cases.push_back({"softmax_cross_entropy_grad", {}, {logits, labels, each, each}});
      cases.push_back({"nll", {}, {logits, labels}});
      cases.push_back({"multi_margin", {}, {logits, labels}});
      cases.push_back({"multi_margin", AttributeMap().set("margin", 0.8).set("power", int64_t{2}), {logits, labels}});
      cases.push_back({"one_hot", AttributeMap().set("classes", classes).set("dtype", int64_t{HX_F64}), {labels}});
    }
    for (const char* name : {"sigmoid_cross_entropy", "mse", "mae", "kl_div", "hinge"})
      cases.push_back({name, {}, {logits, logits}});
    const Operand probabilities{Operand::fraction, logits.shape};
    cases.push_back({"binary_cross_entropy", {}, {probabilities, probabilities}});
    cases.push_back({"huber", AttributeMap().set("delta", 0.6), {logits, logits}});
    cases.push_back({"kl_div", {}, {logits, positives(logits.shape)}});
    cases.push_back({"hinge", AttributeMap().set("margin", 0.4).set("power", int64_t{2}), {logits, logits}});
    cases.push_back({"sigmoid_cross_entropy_grad", {}, {logits, logits, logits}});
  }
}

// A random window over `axes` spatial axes: attributes of conv and pooling.
struct Window {
  std::vector<int64_t> kernel, strides, low, high, dilation, input, output;

  Window(Sizes& sizes, int64_t axes, bool dilated) {
    for (int64_t i = 0; i < axes; ++i) {
      kernel.push_back(1 + static_cast<int64_t>(sizes.coin()) + static_cast<int64_t>(sizes.coin()));
      strides.push_back(sizes.coin() ? 1 : 2);
      dilation.push_back(dilated && sizes.coin() ? 2 : 1);
      const int64_t reach = (kernel.back() - 1) * dilation.back() + 1;
      low.push_back(reach > 1 && sizes.coin() ? 1 : 0);
      high.push_back(reach > 1 && sizes.coin() ? 1 : 0);
      input.push_back(reach + static_cast<int64_t>(sizes.coin()) + static_cast<int64_t>(sizes.coin()));
      output.push_back((input.back() + low.back() + high.back() - reach) / strides.back() + 1);
    }
  }
  AttributeMap attributes() const {
    return AttributeMap()
        .set("strides", strides)
        .set("padding_low", low)
        .set("padding_high", high)
        .set("dilation", dilation);
  }
  Shape in(int64_t n, int64_t c) const { return joined({n, c}, Shape(input)); }
  Shape out(int64_t n, int64_t c) const { return joined({n, c}, Shape(output)); }
};

inline void add_conv_cases(Cases& cases, Sizes& sizes) {
  for (int64_t axes : {1, 2, 3}) {
    const Window w(sizes, axes, true);
    const int64_t groups = axes == 2 && sizes.coin() ? 2 : 1, n = sizes.odd() > 1 ? 2 : 1;
    const int64_t channels = axes == 3 ? 1 : sizes.odd(), outputs = groups * 2;
    const Operand x = numbers(w.in(n, channels * groups)), y = numbers(w.out(n, outputs));
    const Operand weight = numbers(joined({outputs, channels}, Shape(w.kernel)));
    AttributeMap attributes = w.attributes();
    attributes.set("groups", groups);
    AttributeMap active = attributes, for_input = attributes, for_weight = attributes;
    cases.push_back({"conv", attributes, {x, weight}});
    for (const char* activation : {"relu", "tanh", "logistic", "gelu"})
      cases.push_back({"conv", active.set("activation", std::string(activation)), {x, weight, numbers({outputs})}});
    cases.push_back({"conv_grad_input", for_input.set("input_shape", x.shape.vector()), {weight, y}});
    cases.push_back({"conv_grad_weight", for_weight.set("weight_shape", weight.shape.vector()), {x, y}});
  }
}

inline void add_conv_pool_cases(Cases& cases, Sizes& sizes) {
  for (int64_t axes : {1, 2}) {
    const Window w(sizes, axes, true);
    std::vector<int64_t> pool, pooled;
    for (int64_t size : w.output) {
      pool.push_back(size > 1 ? 2 : 1);
      pooled.push_back(size / pool.back());
    }
    const int64_t n = sizes.odd() > 1 ? 2 : 1, channels = sizes.odd(), outputs = 2;
    const Operand x = numbers(w.in(n, channels)), weight = numbers(joined({outputs, channels}, Shape(w.kernel)));
    const Shape y = joined({n, outputs}, Shape(pooled));
    const Operand at = indices(y, Shape(w.output).count(), DType::I32);
    AttributeMap attributes = w.attributes(), for_input = attributes, for_weight = attributes;
    attributes.set("pool_kernel", pool).set("pool_strides", pool);
    cases.push_back({"conv_max_pool", attributes, {x, weight}});
    attributes.set("activation", std::string("relu"));
    cases.push_back({"conv_max_pool", attributes, {x, weight, numbers({outputs})}});
    for_input.set("input_shape", x.shape.vector());
    for_weight.set("weight_shape", weight.shape.vector());
    cases.push_back({"conv_max_pool_grad_input", for_input, {weight, at, numbers(y)}});
    cases.push_back({"conv_max_pool_grad_weight", for_weight, {x, at, numbers(y)}});
  }
}

inline void add_pool_cases(Cases& cases, Sizes& sizes) {
  for (int64_t axes : {1, 2, 3}) {
    const Window w(sizes, axes, true);
    const int64_t n = sizes.odd() > 1 ? 2 : 1, channels = sizes.coin() ? 1 : 3;
    const Operand x = numbers(w.in(n, channels)), y = numbers(w.out(n, channels));
    AttributeMap attributes = w.attributes();
    attributes.set("kernel", w.kernel);
    cases.push_back({"max_pool", attributes, {x}});
    std::vector<int64_t> window{1, 1}, strides{1, 1}, low{0, 0}, high{0, 0}, dilation{1, 1};
    const auto append = [](std::vector<int64_t>& to, const std::vector<int64_t>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(window, w.kernel), append(strides, w.strides), append(low, w.low), append(high, w.high),
        append(dilation, w.dilation);
    cases.push_back({"reduce_window_grad",
                     AttributeMap()
                         .set("window", window)
                         .set("strides", strides)
                         .set("padding_low", low)
                         .set("padding_high", high)
                         .set("dilation", dilation),
                     {x, y, y}});
    const AttributeMap shape = AttributeMap().set("input_shape", x.shape.vector());
    cases.push_back({"max_pool_grad", shape, {indices(y.shape, Shape(w.input).count(), DType::I32), y}});
    for (bool include : {false, true}) {
      attributes.set("count_include_pad", include);
      AttributeMap grad = attributes;
      cases.push_back({"avg_pool", attributes, {x}});
      cases.push_back({"avg_pool_grad", grad.set("input_shape", x.shape.vector()), {y}});
    }
  }
}

inline void add_lookup_cases(Cases& cases, Sizes& sizes) {
  const int64_t rows = sizes.some(), width = sizes.odd();
  for (DType dtype : {DType::U8, DType::I32, DType::I64}) {
    const Operand ids = indices({sizes.odd(), sizes.some()}, rows, dtype);
    cases.push_back({"embedding", {}, {numbers({rows, width}), ids}});
    cases.push_back({"embedding_grad", AttributeMap().set("rows", rows), {ids, numbers(joined(ids.shape, {width}))}});
  }
  const Shape s{sizes.odd(), sizes.some(), sizes.odd()};
  const AttributeMap dropped = AttributeMap().set("rate", 0.375);
  cases.push_back({"dropout", dropped, {numbers(s), randoms(s)}});
  cases.push_back({"dropout_grad", dropped, {randoms(s), numbers(s)}});
}

inline void add_attention_cases(Cases& cases, Sizes& sizes) {
  const int64_t batch = sizes.coin() ? 1 : 2, shared = sizes.coin() ? 1 : 2, group = sizes.coin() ? 1 : 3;
  const int64_t width = sizes.some(), t = sizes.some();
  const Operand turned = numbers({batch, shared, t, 2 * sizes.odd()});
  cases.push_back({"rope", {}, {turned}});
  cases.push_back({"rope", AttributeMap().set("base", 50.0).set("offset", int64_t{7}).set("inverse", true), {turned}});
  cases.push_back({"rope", AttributeMap().set("positions_first", true), {turned}});
  for (int64_t more : {-1, 0, 2})  // queries without keys, square, keys from earlier positions
    for (bool causal : {false, true}) {
      AttributeMap a = AttributeMap().set("causal", causal);
      if (more == 2) a.set("scale", 0.4);
      const Shape rows{batch, shared * group, t};
      const Operand q = numbers(joined(rows, {width})), k = numbers({batch, shared, t + more, width});
      cases.push_back({"attention", a, {q, k, k}});
      cases.push_back({"attention_grad", a, {q, k, k, q, statistics(rows), q}});
      a.set("positions_first", true);
      const Operand qt = numbers({batch, t, shared * group, width}), kt = numbers({batch, t + more, shared, width});
      cases.push_back({"attention", a, {qt, kt, kt}});
      cases.push_back({"attention_grad", a, {qt, kt, kt, qt, statistics(rows), qt}});
    }
}

inline void add_rotary_cases(Cases& cases, Sizes& sizes) {
  const int64_t batch = 2, heads = sizes.odd(), t = sizes.some(), half = 1 + sizes.odd();
  const Operand x = numbers({batch, heads, t, 2 * half}), rows = numbers({batch, t, heads, 2 * half});
  const Operand shared = indices({t}, 50, DType::I32), own = indices({batch, t}, 50, DType::I32);
  const AttributeMap at = AttributeMap().set("operands", std::string("positions"));
  const AttributeMap both = AttributeMap().set("operands", std::string("positions,frequencies"));
  cases.push_back({"rope", at, {x, shared}});
  cases.push_back({"rope", AttributeMap(at).set("inverse", true), {x, own}});
  cases.push_back({"rope", AttributeMap(at).set("positions_first", true).set("base", 50.0), {rows, own}});
  cases.push_back({"rope", both, {x, own, randoms({half})}});
  cases.push_back({"rope", AttributeMap().set("operands", std::string("frequencies")), {x, randoms({half})}});
  for (const char* pairing : {"half", "interleaved"}) {
    const AttributeMap paired = AttributeMap().set("pairing", std::string(pairing));
    cases.push_back({"rope", paired, {x}});
    cases.push_back({"rope", AttributeMap(paired).set("rotary_dims", 2 * half - 2).set("offset", int64_t{3}), {x}});
    AttributeMap all = both;
    all.set("pairing", std::string(pairing)).set("rotary_dims", int64_t{2}).set("positions_first", true);
    cases.push_back({"rope", all, {rows, own, randoms({1})}});
  }
}

inline void add_sequence_cases(Cases& cases, Sizes& sizes) {
  const int64_t batch = 2, shared = sizes.coin() ? 1 : 2, group = sizes.coin() ? 1 : 3, heads = shared * group;
  const int64_t width = sizes.some(), t = sizes.some();
  for (const int64_t keys : {t + 3, t - 1})
    for (const bool causal : {false, true})
      for (const char* given : {"", "lengths", "mask", "lengths,bias", "lengths,mask,bias,sinks", "sinks"}) {
        const std::string names = given;
        AttributeMap a = AttributeMap().set("causal", causal).set("softcap", causal ? 1.5 : 0.0);
        if (keys > t || names.empty()) a.set("window", int64_t{2});
        if (!names.empty()) a.set("operands", names);
        std::vector<Operand> more;
        const bool wide = sizes.coin(), whole = sizes.coin();
        const Shape by_score = whole ? Shape{t, keys} : Shape{batch, wide ? heads : 1, t, keys};
        if (names.find("lengths") != names.npos) more.push_back(indices({batch}, keys + 2, DType::I32));
        if (names.find("mask") != names.npos) more.push_back({Operand::index, by_score, DType::Bool, 2});
        if (names.find("bias") != names.npos) more.push_back(numbers(by_score));
        if (names.find("sinks") != names.npos) more.push_back(numbers({heads}));
        const bool first = sizes.coin();
        a.set("positions_first", first);
        const Operand q = numbers(first ? Shape{batch, t, heads, width} : Shape{batch, heads, t, width});
        const Operand k = numbers(first ? Shape{batch, keys, shared, width} : Shape{batch, shared, keys, width});
        std::vector<Operand> forward{q, k, k}, backward{q, k, k, q, statistics({batch, heads, t}), q};
        for (std::vector<Operand>* inputs : {&forward, &backward})
          inputs->insert(inputs->end(), more.begin(), more.end());
        cases.push_back({"attention", a, forward});
        cases.push_back({"attention_grad", a, backward});
      }
  constexpr int64_t kPool = 5, kEntries = 3;
  for (const char* given : {"pages", "lengths,pages", "pages,sinks,lengths,bias"}) {
    const std::string names = given;
    const int64_t page = sizes.some(), queries = sizes.coin() ? 1 : t;
    const bool first = sizes.coin();
    AttributeMap a = AttributeMap().set("operands", names).set("positions_first", first).set("causal", sizes.coin());
    const Operand q = numbers(first ? Shape{batch, queries, heads, width} : Shape{batch, heads, queries, width});
    const Operand pool = numbers(first ? Shape{kPool, page, shared, width} : Shape{kPool, shared, page, width});
    const Operand pages = indices({batch, kEntries}, kPool, DType::I32);
    const Operand lengths = indices({batch}, kEntries * page + 2, DType::I32);
    std::vector<Operand> in{q, pool, pool};
    if (names == "lengths,pages") in.push_back(lengths);
    in.push_back(pages);
    if (names.find("sinks") != names.npos)
      in.insert(in.end(), {numbers({heads}), lengths, numbers({batch, 1, queries, kEntries * page})});
    cases.push_back({"attention", a, in});
    const Shape row{sizes.odd(), sizes.some()};
    cases.push_back({"cache_append",
                     AttributeMap().set("operands", std::string("pages")),
                     {numbers(joined({kPool, page}, row)), numbers(joined({batch, queries}, row)),
                      indices({batch}, kEntries * page, DType::I32), pages}});
  }
  for (const int64_t rows : {int64_t{1}, t}) {
    const Shape row{sizes.odd(), sizes.some()};
    cases.push_back({"cache_append",
                     {},
                     {numbers(joined({batch, t + 2}, row)), numbers(joined({batch, rows}, row)),
                      indices({batch}, t + 2, DType::I32)}});
  }
}

inline void add_recurrent_cases(Cases& cases, Sizes& sizes) {
  const int64_t batch = sizes.odd(), in = sizes.some(), width = sizes.some();
  for (int64_t positions : {int64_t{1}, sizes.some()})
    for (bool reverse : {false, true}) {
      const AttributeMap a = AttributeMap().set("reverse", reverse);
      const Operand x = numbers({batch, positions, in}), state = numbers({batch, width});
      const Operand y = numbers({batch, positions, width}), kept = statistics(y.shape);
      for (int64_t gates : {4, 3}) {
        const bool lstm = gates == 4;
        const Operand w_in = numbers({gates * width, in}), w = numbers({gates * width, width});
        const Operand bias = numbers({gates * width}), wide = numbers({batch, positions, gates * width});
        const Operand all = fractions({batch, positions, 4 * width});
        const std::string name = lstm ? "lstm" : "gru";
        std::vector<Operand> inputs{x, w_in, w};
        cases.push_back({name, a, inputs});
        inputs.insert(inputs.end(), {bias, bias});
        cases.push_back({name, a, inputs});
        inputs.insert(inputs.end(), lstm ? 2 : 1, state);
        cases.push_back({name, a, inputs});
        cases.push_back(
            {name + "_scan", a,
             lstm ? std::vector<Operand>{wide, w, state, state} : std::vector<Operand>{wide, w, bias, state}});
        std::vector<Operand> back{w, lstm ? kept : y, all, state, y};
        cases.push_back({name + "_scan_grad", a, back});
        if (lstm) back.push_back(kept);
        if (lstm) cases.push_back({name + "_scan_grad", a, back});
        back.push_back(all);
        cases.push_back({name + "_scan_grad", a, back});
      }
    }
}

inline void add_optimizer_cases(Cases& cases, Sizes& sizes) {
  const Operand w = numbers({sizes.odd(), sizes.some()}), v = positives(w.shape);
  const Operand step{Operand::step, {}};
  for (double decay : {0.0, 0.1}) {
    const AttributeMap plain = AttributeMap().set("weight_decay", decay);
    AttributeMap momentum = plain, nesterov = plain;
    momentum.set("momentum", 0.9);
    nesterov.set("momentum", 0.9).set("nesterov", true);
    cases.push_back({"sgd", plain, {w, w, rate()}});
    cases.push_back({"sgd", momentum, {w, w, w, rate()}});
    cases.push_back({"sgd", nesterov, {w, w, w, rate()}});
    for (const char* name : {"adam", "adamw", "lamb"}) cases.push_back({name, plain, {w, w, w, v, rate(), step}});
    AttributeMap centered = plain, both = momentum, still = plain;
    for (AttributeMap* a : {&centered, &both}) a->set("centered", true).set("epsilon", 1.0);
    still.set("adapt", false);
    cases.push_back({"rmsprop", plain, {w, w, v, rate()}});
    cases.push_back({"rmsprop", momentum, {w, w, v, w, rate()}});
    cases.push_back({"rmsprop", centered, {w, w, v, w, rate()}});
    cases.push_back({"rmsprop", both, {w, w, v, w, w, rate()}});
    cases.push_back({"lion", plain, {w, w, w, rate()}});
    cases.push_back({"lamb", still, {w, w, w, v, rate(), step}});
    cases.push_back({"normuon", plain, {w, w, w, positives({w.shape[0]}), rate()}});
  }
  const Operand row = numbers({3}), spread = positives({3});
  const auto together = [](const char* update) {
    return AttributeMap().set("weight_decay", 0.1).set("update", std::string(update)).set("parameters", int64_t{2});
  };
  for (const char* name : {"adam", "adamw"})
    cases.push_back({"update_all", together(name), {w, w, w, v, row, row, row, spread, rate(), step}});
  cases.push_back({"update_all", together("sgd"), {w, w, row, row, rate()}});
  cases.push_back({"update_all", together("sgd").set("momentum", 0.9), {w, w, w, row, row, row, rate()}});
  cases.push_back({"update_all", together("lion"), {w, w, w, row, row, row, rate()}});
  for (const bool centered : {false, true}) {
    cases.push_back({"update_all", together("rmsprop").set("centered", centered).set("epsilon", 1.0),
                     centered ? std::vector<Operand>{w, w, v, w, row, row, spread, row, rate()}
                              : std::vector<Operand>{w, w, v, row, row, spread, rate()}});
  }
  const Operand weight = numbers({5, 7}), squares = positives({5, 7});
  for (const char* mode : {"", "all", "active"})
    for (const int64_t samples : {1, 3}) {
      const auto factored = [&](const char* update) {
        return AttributeMap()
            .set("weight_decay", 0.1)
            .set("update", std::string(update))
            .set("input_gradient", std::string(mode));
      };
      const Operand a = numbers({samples, 5}), b = numbers({samples, 7});
      cases.push_back({"update_outer", factored("sgd"), {weight, a, b, rate()}});
      cases.push_back({"update_outer", factored("sgd").set("momentum", 0.9), {weight, a, b, weight, rate()}});
      cases.push_back({"update_outer", factored("lion"), {weight, a, b, weight, rate()}});
      for (const char* name : {"adam", "adamw"})
        cases.push_back({"update_outer", factored(name), {weight, a, b, weight, squares, rate(), step}});
    }
  cases.push_back({"global_norm", {}, {w, numbers({}), numbers({sizes.odd()})}});
}

// Every functional at least once, with shapes from the seed.
inline Cases functional_cases(uint64_t seed) {
  Sizes sizes(seed);
  Cases cases;
  add_activation_cases(cases, sizes);
  add_linear_cases(cases, sizes);
  add_fused_cases(cases, sizes);
  add_norm_cases(cases, sizes);
  add_loss_cases(cases, sizes);
  add_conv_cases(cases, sizes);
  add_conv_pool_cases(cases, sizes);
  add_pool_cases(cases, sizes);
  add_lookup_cases(cases, sizes);
  add_attention_cases(cases, sizes);
  add_optimizer_cases(cases, sizes);
  add_recurrent_cases(cases, sizes);
  add_rotary_cases(cases, sizes);
  add_sequence_cases(cases, sizes);
  return cases;
}

}  // namespace harmonics::engine::conformance
