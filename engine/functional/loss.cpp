#include <limits>

#include <fmt/core.h>

#include "engine/functional/reference.hpp"

namespace harmonics::reference {
namespace {

void expect_equal_shapes(const char* name, const HTensor& a, const HTensor& b) {
  expect(a.shape() == b.shape(), name, "prediction " + text_of(a) + " and target " + text_of(b) + " differ in shape");
}

// True where the class number equals the label: labels [...] -> [..., classes]. Compared in i64, so that narrow label
// types do not wrap.
HTensor hits(const HTensor& labels, int64_t classes) {
  Shape shape = labels.shape();
  shape.push_back(classes);
  const HTensor number = iota(DType::I64, shape, static_cast<int64_t>(shape.rank()) - 1);
  return equal(number, column(cast(labels, DType::I64)));
}

void expect_labels(const char* name, const HTensor& logits, const HTensor& labels) {
  expect(is_integer(labels.dtype()), name, "labels are class numbers of an integer type, not " + text_of(labels),
         ErrorKind::Type);
  expect(logits.rank() == labels.rank() + 1 && logits.shape().slice(0, labels.rank()) == labels.shape(), name,
         "logits " + text_of(logits) + " and labels " + text_of(labels) + " do not fit: labels lack the last axis");
}

// A label outside [0, classes) hits nothing: its loss is infinite, never silently wrong.
Values softmax_cross_entropy(const AttributeMap&, Inputs in) {
  expect_inputs("softmax_cross_entropy", in, 2, 2);
  expect_labels("softmax_cross_entropy", in[0], in[1]);
  const HTensor x = wide(in[0]);
  const HTensor lse = log_sum_exp(x);
  const HTensor nothing = full(x.dtype(), x.shape(), -std::numeric_limits<double>::infinity());
  const HTensor picked = reduce_max(select(hits(in[1], x.shape().back()), x, nothing), last_axis(x));
  return {lse - picked, lse};
}
Values softmax_cross_entropy_gradient(const AttributeMap&, Inputs in, Inputs out, Inputs gradients) {
  const HTensor &logits = in[0], &lse = out[1];
  HTensor dx;
  if (gradients[0]) dx = one("softmax_cross_entropy_grad", {}, {logits, in[1], lse, gradients[0]});
  if (gradients[1]) {
    const HTensor more = as_type_of(exp(wide(logits) - column(lse)) * column(gradients[1]), logits);
    dx = dx ? dx + more : more;
  }
  return {dx, {}};
}
Values softmax_cross_entropy_grad(const AttributeMap&, Inputs in) {
  expect_inputs("softmax_cross_entropy_grad", in, 4, 4);
  expect_labels("softmax_cross_entropy_grad", in[0], in[1]);
  const HTensor x = wide(in[0]);
  const HTensor probability = exp(x - column(in[2]));
  const HTensor excess = probability - cast(hits(in[1], x.shape().back()), x.dtype());
  return {as_type_of(excess * column(in[3]), in[0])};
}

Values sigmoid_cross_entropy(const AttributeMap&, Inputs in) {
  expect_inputs("sigmoid_cross_entropy", in, 2, 2);
  expect_equal_shapes("sigmoid_cross_entropy", in[0], in[1]);
  const HTensor x = wide(in[0]), target = wide(in[1]);
  return {as_type_of(maximum(x, 0.0) - x * target + log1p(exp(-abs(x))), in[0])};
}
Values sigmoid_cross_entropy_gradient(const AttributeMap&, Inputs in, Inputs, Inputs gradients) {
  return {one("sigmoid_cross_entropy_grad", {}, {in[0], in[1], gradients[0]}), -in[0] * gradients[0]};
}
Values sigmoid_cross_entropy_grad(const AttributeMap&, Inputs in) {
  expect_inputs("sigmoid_cross_entropy_grad", in, 3, 3);
  const HTensor x = wide(in[0]), target = wide(in[1]), dloss = wide(in[2]);
  return {as_type_of((logistic(x) - target) * dloss, in[0])};
}

Values mse(const AttributeMap&, Inputs in) {
  expect_inputs("mse", in, 2, 2);
  expect_equal_shapes("mse", in[0], in[1]);
  return {square(in[0] - in[1])};
}
Values mae(const AttributeMap&, Inputs in) {
  expect_inputs("mae", in, 2, 2);
  expect_equal_shapes("mae", in[0], in[1]);
  return {abs(in[0] - in[1])};
}
Values huber(const AttributeMap& a, Inputs in) {
  expect_inputs("huber", in, 2, 2);
  expect_equal_shapes("huber", in[0], in[1]);
  const double delta = a.number("delta", 1.0);
  expect(delta > 0, "huber", fmt::format("delta is {:g}; it must be positive", delta), ErrorKind::Type);
  const HTensor d = in[0] - in[1], size = abs(d);
  return {select(less_equal(size, delta), 0.5 * square(d), delta * (size - 0.5 * delta))};
}

Values one_hot(const AttributeMap& a, Inputs in) {
  expect_inputs("one_hot", in, 1, 1);
  expect(is_integer(in[0].dtype()), "one_hot", "labels are class numbers of an integer type, not " + text_of(in[0]),
         ErrorKind::Type);
  const int64_t classes = a.integer("classes");
  expect(classes > 0, "one_hot", "classes is " + std::to_string(classes) + "; it must be positive");
  return {cast(hits(in[0], classes), a.has("dtype") ? a.dtype() : DType::F32)};
}

}  // namespace

std::vector<Functional> losses() {
  return {
      {"softmax_cross_entropy",
       "negative log-likelihood of integer labels under softmax of logits; lse is log(sum(exp))",
       "logits [..., classes], labels [...] -> loss [...], lse [...]", softmax_cross_entropy,
       softmax_cross_entropy_gradient},
      {"softmax_cross_entropy_grad", "gradient of softmax_cross_entropy",
       "logits [..., classes], labels [...], lse [...], dloss [...] -> dlogits [..., classes]",
       softmax_cross_entropy_grad, nullptr},
      {"sigmoid_cross_entropy", "binary cross entropy of the logistic function of logits, per element",
       "logits [...], targets [...] -> loss [...]", sigmoid_cross_entropy, sigmoid_cross_entropy_gradient},
      {"sigmoid_cross_entropy_grad", "gradient of sigmoid_cross_entropy",
       "logits [...], targets [...], dloss [...] -> dlogits [...]", sigmoid_cross_entropy_grad, nullptr},
      {"mse", "squared difference, per element", "prediction [...], target [...] -> loss [...]", mse, nullptr},
      {"mae", "absolute difference, per element", "prediction [...], target [...] -> loss [...]", mae, nullptr},
      {"huber", "squared below delta, linear above, per element",
       "prediction [...], target [...] {delta = 1} -> loss [...]", huber, nullptr},
      {"one_hot", "1 at the label, 0 elsewhere", "labels [...] {classes, dtype = f32} -> y [..., classes]", one_hot,
       nullptr},
  };
}

}  // namespace harmonics::reference
