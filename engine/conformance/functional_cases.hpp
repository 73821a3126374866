// Cases of every functional with random odd shapes, for conformance tests and checks of implementations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/conformance/expert_cases.hpp"
#include "engine/conformance/functional_case.hpp"
#include "engine/conformance/sequence_cases.hpp"

namespace harmonics::engine::conformance {

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
  const AttributeMap axes =
      AttributeMap().set("lhs_contract", std::vector<int64_t>{1}).set("rhs_contract", std::vector<int64_t>{0});
  for (const std::vector<int64_t>& stored : {std::vector<int64_t>{4}, std::vector<int64_t>{5, 0, 4}})
    cases.push_back(
        {"fused_dot",
         AttributeMap(axes).set("steps", std::string("add(0,1) mul(3,2) gelu_grad(2,4)")).set("stored", stored),
         {numbers({rows, 5}), numbers({5, columns}), numbers({columns}), numbers({rows, columns})}});
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
  cases.push_back({"rms_norm_quantize", {}, {x, gain}});
  cases.push_back({"abs_max", {}, {x}});
  cases.push_back({"abs_max", AttributeMap().set("rows", true), {x}});
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

// Returns attributes of a random window over `axes` spatial axes, for convolution and pooling.
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

// Returns at least one case of every functional. The seed determines the shapes.
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
  add_expert_cases(cases, sizes);
  add_head_cases(cases, sizes);
  return cases;
}

}  // namespace harmonics::engine::conformance
