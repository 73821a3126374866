#include <limits>

#include <fmt/core.h>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

void expect_equal_shapes(const char* name, const HTensor& a, const HTensor& b) {
  expect(a.shape() == b.shape(), name, "prediction " + text_of(a) + " and target " + text_of(b) + " differ in shape");
}

// Returns the one-hot mask of labels: [...] -> [..., classes]. Compares in i64, so that narrow label types do not wrap.
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

// Returns the value at the label, or -infinity for a label outside [0, classes).
HTensor at_label(const HTensor& x, const HTensor& labels) {
  const HTensor nothing = full(x.dtype(), x.shape(), -std::numeric_limits<double>::infinity());
  return reduce_max(select(hits(labels, x.shape().back()), x, nothing), last_axis(x));
}

// A label outside [0, classes) gives an infinite loss. The loss is not computed as lse - x[label], because lse is
// rounded to the precision of the largest logit.
Values softmax_cross_entropy(const AttributeMap&, Inputs in) {
  expect_labels("softmax_cross_entropy", in[0], in[1]);
  const HTensor x = wide(in[0]);
  const HTensor largest = stop_gradient(reduce_max(x, last_axis(x)));
  const HTensor log_sum = log(reduce_sum(exp(x - column(largest)), last_axis(x)));
  return {log_sum + (largest - at_label(x, in[1])), log_sum + largest};
}
Values softmax_cross_entropy_gradient(const AttributeMap&, Inputs in, Inputs out, Inputs gradients) {
  const HTensor& logits = in[0];
  HTensor dx;
  if (gradients[0]) dx = one("softmax_cross_entropy_grad", {}, {logits, in[1], out[1], gradients[0]});
  if (gradients[1]) {
    const HTensor more = as_type_of(one("softmax", {}, {wide(logits)}) * column(gradients[1]), logits);
    dx = dx ? dx + more : more;
  }
  return {dx, {}};
}
// lse only shifts the exponentials; probabilities are normalised by their sum.
Values softmax_cross_entropy_grad(const AttributeMap&, Inputs in) {
  expect_labels("softmax_cross_entropy_grad", in[0], in[1]);
  const HTensor x = wide(in[0]);
  const HTensor excess = one("softmax", {}, {x}) - cast(hits(in[1], x.shape().back()), x.dtype());
  return {as_type_of(excess * column(in[3]), in[0])};
}

Values sigmoid_cross_entropy(const AttributeMap&, Inputs in) {
  expect_equal_shapes("sigmoid_cross_entropy", in[0], in[1]);
  const HTensor x = wide(in[0]), target = wide(in[1]);
  return {as_type_of(maximum(x, 0.0) - x * target + log1p(exp(-abs(x))), in[0])};
}
Values sigmoid_cross_entropy_gradient(const AttributeMap&, Inputs in, Inputs, Inputs gradients) {
  return {one("sigmoid_cross_entropy_grad", {}, {in[0], in[1], gradients[0]}), -in[0] * gradients[0]};
}
Values sigmoid_cross_entropy_grad(const AttributeMap&, Inputs in) {
  const HTensor x = wide(in[0]), target = wide(in[1]), dloss = wide(in[2]);
  return {as_type_of((logistic(x) - target) * dloss, in[0])};
}

// Clamps logarithms at -100, so that a probability of exactly 0 or 1 gives a finite loss.
Values binary_cross_entropy(const AttributeMap&, Inputs in) {
  expect_equal_shapes("binary_cross_entropy", in[0], in[1]);
  const HTensor p = wide(in[0]), target = wide(in[1]);
  const HTensor on = maximum(log(p), -100.0), off = maximum(log1p(-p), -100.0);
  return {as_type_of(-(target * on + (1.0 - target) * off), in[0])};
}
// Bounded as in PyTorch; the derivative of the body is infinite at 0 and 1.
Values binary_cross_entropy_gradient(const AttributeMap&, Inputs in, Inputs, Inputs gradients) {
  const HTensor p = wide(in[0]), target = wide(in[1]), dloss = wide(gradients[0]);
  const HTensor dp = dloss * (p - target) / maximum(p * (1.0 - p), 1e-12);
  const HTensor dtarget = dloss * (maximum(log1p(-p), -100.0) - maximum(log(p), -100.0));
  return {as_type_of(dp, in[0]), as_type_of(dtarget, in[1])};
}

Values mse(const AttributeMap&, Inputs in) {
  expect_equal_shapes("mse", in[0], in[1]);
  return {square(in[0] - in[1])};
}
Values mae(const AttributeMap&, Inputs in) {
  expect_equal_shapes("mae", in[0], in[1]);
  return {abs(in[0] - in[1])};
}
Values huber(const AttributeMap& a, Inputs in) {
  expect_equal_shapes("huber", in[0], in[1]);
  const double delta = a.number("delta", 1.0);
  const HTensor d = in[0] - in[1], size = abs(d);
  return {select(less_equal(size, delta), 0.5 * square(d), delta * (size - 0.5 * delta))};
}

Values nll(const AttributeMap&, Inputs in) {
  expect_labels("nll", in[0], in[1]);
  return {-at_label(in[0], in[1])};
}
Values nll_gradient(const AttributeMap&, Inputs in, Inputs, Inputs gradients) {
  const HTensor hit = hits(in[1], in[0].shape().back());
  return {select(hit, -column(gradients[0]), zeros_like(in[0])), {}};
}

// Treats 0 log(0) as 0.
Values kl_div(const AttributeMap&, Inputs in) {
  expect_equal_shapes("kl_div", in[0], in[1]);
  const HTensor& target = in[1];
  const HTensor safe = select(less(0.0, target), target, full(target.dtype(), target.shape(), 1));
  return {target * (log(safe) - in[0])};
}

struct Margin {
  double margin;
  bool squared;

  explicit Margin(const AttributeMap& a) : margin(a.number("margin", 1.0)), squared(a.integer("power", 1) == 2) {}
  // Returns the shortfall from the margin where `counts` is set, else 0.
  HTensor of(const HTensor& lacking, const HTensor& counts) const {
    return select(counts, squared ? square(lacking) : lacking, zeros_like(lacking));
  }
};
Values hinge(const AttributeMap& a, Inputs in) {
  expect_equal_shapes("hinge", in[0], in[1]);
  const Margin m(a);
  const HTensor lacking = m.margin - in[0] * in[1];
  return {m.of(lacking, less(0.0, lacking))};
}
Values multi_margin(const AttributeMap& a, Inputs in) {
  expect_labels("multi_margin", in[0], in[1]);
  const Margin m(a);
  const HTensor x = wide(in[0]);
  const int64_t classes = x.shape().back();
  const HTensor lacking = x - column(at_label(x, in[1])) + m.margin;
  const HTensor counts = logical_and(less(0.0, lacking), logical_not(hits(in[1], classes)));
  return {as_type_of(reduce_mean(m.of(lacking, counts), last_axis(x)), in[0])};
}

Values one_hot(const AttributeMap& a, Inputs in) {
  expect(is_integer(in[0].dtype()), "one_hot", "labels are class numbers of an integer type, not " + text_of(in[0]),
         ErrorKind::Type);
  const int64_t classes = a.integer("classes");
  return {cast(hits(in[0], classes), a.has("dtype") ? a.dtype() : DType::F32)};
}

}  // namespace

std::vector<Functional> losses() {
  return {
      {"softmax_cross_entropy",
       "negative log-likelihood of integer labels under softmax of logits; lse is log(sum(exp))",
       "logits [..., classes], labels [...] < classes -> loss [...], lse [...]", softmax_cross_entropy,
       softmax_cross_entropy_gradient},
      {"softmax_cross_entropy_grad", "gradient of softmax_cross_entropy, from its result lse",
       "logits [..., classes], labels [...] < classes, lse [...], dloss [...] -> dlogits [..., classes]",
       softmax_cross_entropy_grad, nullptr},
      {"sigmoid_cross_entropy", "binary cross entropy of the logistic function of logits, per element",
       "logits [...], targets [...] -> loss [...]", sigmoid_cross_entropy, sigmoid_cross_entropy_gradient},
      {"sigmoid_cross_entropy_grad", "gradient of sigmoid_cross_entropy",
       "logits [...], targets [...], dloss [...] -> dlogits [...]", sigmoid_cross_entropy_grad, nullptr},
      {"binary_cross_entropy", "binary cross entropy of probabilities, per element; logarithms are clamped at -100",
       "probabilities [...], targets [...] -> loss [...]", binary_cross_entropy, binary_cross_entropy_gradient},
      {"mse", "squared difference, per element", "prediction [...], target [...] -> loss [...]", mse, nullptr},
      {"mae", "absolute difference, per element", "prediction [...], target [...] -> loss [...]", mae, nullptr},
      {"huber", "squared difference below delta, linear above, per element",
       "prediction [...], target [...] {delta = 1.0 in 0<..} -> loss [...]", huber, nullptr},
      {"nll", "negative log-probability of the label",
       "log_probabilities [..., classes], labels [...] < classes -> loss [...]", nll, nll_gradient},
      {"kl_div",
       "target (log(target) - x), per element: the Kullback-Leibler divergence of the target from log-probabilities x",
       "log_probabilities [...], target [...] -> loss [...]", kl_div, nullptr},
      {"hinge", "max(0, margin - target prediction)^power, per element; targets are -1 and 1",
       "prediction [...], target [...] {margin = 1.0, power = 1 in 1..2} -> loss [...]", hinge, nullptr},
      {"multi_margin",
       "sum over the other classes of max(0, margin - score of the label + score of the class)^power, divided by the "
       "number of classes",
       "scores [..., classes], labels [...] < classes {margin = 1.0, power = 1 in 1..2} -> loss [...]", multi_margin,
       nullptr},
      {"one_hot", "1 at the label, 0 elsewhere",
       "labels [...] < classes {classes: int in 1.., dtype: int? (element type of y; f32 if absent)} -> y [..., "
       "classes]",
       one_hot, nullptr},
  };
}

}  // namespace harmonics::engine::reference
