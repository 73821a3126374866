// Optimizer updates of one parameter; formulas and their order follow PyTorch. `lr` is a scalar, step numbers start at
// 1.
#include <cmath>

#include <fmt/core.h>

#include "engine/functional/reference.hpp"
#include "engine/functional/stored_moments.hpp"

namespace harmonics::engine::reference {
namespace {

void expect_alike(const char* name, Inputs in, size_t count) {
  for (size_t i = 1; i < count; ++i)
    expect(type_of(in[i]) == type_of(in[0]), name,
           "the parameter is " + text_of(in[0]) + ", but input " + std::to_string(i) + " is " + text_of(in[i]));
}
HTensor scalar_of(const char* name, const HTensor& value, const HTensor& like) {
  expect(value.rank() == 0, name, "the learning rate is one number, not " + text_of(value));
  return cast(value, like.dtype());
}

Values sgd(const AttributeMap& a, Inputs in) {
  const bool has_momentum = in.size() == 4;
  expect_alike("sgd", in, in.size() - 1);
  const double momentum = a.number("momentum", 0), decay = a.number("weight_decay", 0);
  const HTensor &w = in[0], lr = scalar_of("sgd", in.back(), w);
  HTensor g = in[1];
  if (decay != 0) g = g + decay * w;
  if (!has_momentum) {
    expect(momentum == 0, "sgd", fmt::format("momentum {:g} needs the velocity as third input", momentum));
    return {w - lr * g};
  }
  const HTensor velocity = momentum * in[2] + g;
  const HTensor direction = a.flag("nesterov") ? g + momentum * velocity : velocity;
  return {w - lr * direction, velocity};
}

enum class Decay { in_gradient, decoupled };

// The moments of Adam: of the parameter's type, or stored in fewer bits. `in`: all operands of the step.
Moments adam_moments(const char* name, Inputs in) {
  const HTensor &w = in[0], &m = in[2], &v = in[3];
  if (in.size() == 6 && m.dtype() == w.dtype()) {
    expect_alike(name, in, 4);
    return {m, v};
  }
  expect_alike(name, in, 2);
  const bool coded = in.size() == 8;
  const TensorType type{coded ? DType::U8 : DType::BF16, w.shape()};
  expect(w.dtype() == DType::F32 && type_of(m) == type && type_of(v) == type, name,
         "the moments of " + text_of(w) + " are " + text_of(m) + " and " + text_of(v) +
             "; they have its type, or of f32: bf16, or u8 with two scales");
  if (!coded) return read_moments({m, v}, {});
  const TensorType scales{DType::U8, w.rank() >= 2 ? moment_scales(w.shape()) : Shape{}};
  expect(w.rank() >= 2 && type_of(in[4]) == scales && type_of(in[5]) == scales, name,
         "the scales are " + text_of(in[4]) + " and " + text_of(in[5]) + "; " + text_of(w) +
             (w.rank() < 2 ? " has no blocks, as it has less than two axes" : " needs " + scales.str()));
  return read_moments({m, v}, {in[4], in[5]});
}

Values adam_step(const char* name, const AttributeMap& a, Inputs in, Decay kind) {
  expect(in.size() != 7, name, "moments of 8 bits have two scales");
  const HTensor &rate = in[in.size() - 2], &steps = in.back();
  expect(steps.rank() == 0 && is_integer(steps.dtype()), name, "the step is one whole number, not " + text_of(steps));
  const double beta1 = a.number("beta1", 0.9), beta2 = a.number("beta2", 0.999), epsilon = a.number("epsilon", 1e-8);
  const double decay = a.number("weight_decay", 0);
  const Moments old = adam_moments(name, in);
  HTensor w = in[0], g = in[1];
  const HTensor lr = scalar_of(name, rate, w);
  if (decay != 0 && kind == Decay::in_gradient) g = g + decay * w;
  if (decay != 0 && kind == Decay::decoupled) w = w * (1.0 - lr * decay);
  const HTensor m = old.mean + (g - old.mean) * (1 - beta1);
  const HTensor v = old.square * beta2 + (1 - beta2) * square(g);
  // Bias corrections start near 0 (1 - 0.999^1), so they are computed in f64.
  const HTensor step = cast(steps, DType::F64);
  const HTensor size = cast(cast(rate, DType::F64) / (1.0 - pow(beta1, step)), w.dtype());
  const HTensor spread = cast(sqrt(1.0 - pow(beta2, step)), w.dtype());
  const HTensor next = w - size * (m / (sqrt(v) / spread + epsilon));
  if (in.size() == 8) {
    Moments scales;
    const Moments codes = quantise_moments({m, v}, steps, scales);
    return {next, codes.mean, codes.square, scales.mean, scales.square};
  }
  if (in[2].dtype() == w.dtype()) return {next, m, v};
  const Moments rounded = round_moments({m, v}, steps);
  return {next, rounded.mean, rounded.square};
}
Values adam(const AttributeMap& a, Inputs in) { return adam_step("adam", a, in, Decay::in_gradient); }
Values adamw(const AttributeMap& a, Inputs in) { return adam_step("adamw", a, in, Decay::decoupled); }

// w, g, v, [velocity], [mean], lr
Values rmsprop(const AttributeMap& a, Inputs in) {
  const double alpha = a.number("alpha", 0.99), epsilon = a.number("epsilon", 1e-8);
  const double momentum = a.number("momentum", 0), decay = a.number("weight_decay", 0);
  const bool centered = a.flag("centered");
  const size_t tensors = 3u + (momentum != 0) + centered;
  expect(in.size() == tensors + 1, "rmsprop",
         fmt::format("takes {} inputs with these attributes, got {}", tensors + 1, in.size()));
  expect_alike("rmsprop", in, tensors);
  const HTensor &w = in[0], lr = scalar_of("rmsprop", in[tensors], w);
  const HTensor g = decay != 0 ? in[1] + decay * w : in[1];
  Values next{w, alpha * in[2] + (1 - alpha) * square(g)};
  HTensor spread = next[1], mean;
  if (centered) {
    const HTensor& old = in[tensors - 1];
    mean = old + (g - old) * (1 - alpha);
    spread = maximum(spread - square(mean), 0.0);  // rounding may make it negative
  }
  HTensor step = g / (sqrt(spread) + epsilon);
  if (momentum != 0) next.push_back(step = momentum * in[3] + step);
  if (centered) next.push_back(mean);
  next[0] = w - lr * step;
  return next;
}

Values lion(const AttributeMap& a, Inputs in) {
  expect_alike("lion", in, 3);
  const double beta1 = a.number("beta1", 0.9), beta2 = a.number("beta2", 0.99), decay = a.number("weight_decay", 0);
  const HTensor &g = in[1], &m = in[2], lr = scalar_of("lion", in[3], in[0]);
  const HTensor w = decay != 0 ? in[0] * (1.0 - lr * decay) : in[0];
  return {w - lr * sign(beta1 * m + (1 - beta1) * g), beta2 * m + (1 - beta2) * g};
}

HTensor norm_of(const HTensor& x) { return sqrt(reduce_sum(square(x), axes_from(x, 0))); }

Values lamb(const AttributeMap& a, Inputs in) {
  expect_alike("lamb", in, 4);
  expect(in[5].rank() == 0 && is_integer(in[5].dtype()), "lamb", "the step is one whole number, not " + text_of(in[5]));
  const double beta1 = a.number("beta1", 0.9), beta2 = a.number("beta2", 0.999), epsilon = a.number("epsilon", 1e-6);
  const double decay = a.number("weight_decay", 0);
  const HTensor &w = in[0], &g = in[1], lr = scalar_of("lamb", in[4], w);
  const HTensor m = in[2] + (g - in[2]) * (1 - beta1);
  const HTensor v = in[3] * beta2 + (1 - beta2) * square(g);
  const HTensor step = cast(in[5], DType::F64);
  const HTensor size = cast(1.0 / (1.0 - pow(beta1, step)), w.dtype());
  const HTensor spread = cast(sqrt(1.0 - pow(beta2, step)), w.dtype());
  HTensor direction = size * (m / (sqrt(v) / spread + epsilon));
  if (decay != 0) direction = direction + decay * w;
  if (!a.flag("adapt", true)) return {w - lr * direction, m, v};
  const HTensor length = norm_of(w), reach = norm_of(direction);
  const HTensor both = logical_and(less(0.0, length), less(0.0, reach));
  const HTensor one = full(w.dtype(), {}, 1);
  const HTensor trust = select(both, length / select(both, reach, one), one);
  return {w - (lr * trust) * direction, m, v};
}

// Five Newton-Schulz steps towards the nearest matrix with an orthonormal shorter side: singular values end between 0.7
// and 1.2. Uses the Gram matrix of the shorter side.
HTensor orthogonalised(const HTensor& matrix) {
  const bool tall = matrix.shape()[0] > matrix.shape()[1];
  const int64_t over = tall ? 0 : 1;
  HTensor x = matrix / (as_type_of(call1("global_norm", {matrix}), matrix) + 1e-7);
  for (int i = 0; i < 5; ++i) {
    const HTensor gram = dot(x, x, {over}, {over});
    const HTensor even = gram * -4.7750 + dot(gram, gram, {1}, {0}) * 2.0315;
    x = x * 3.4445 + (tall ? dot(x, even, {1}, {0}) : dot(even, x, {1}, {0}));
  }
  return x;
}

// w [r, c], g, m, v [r], lr
Values normuon(const AttributeMap& a, Inputs in) {
  expect_alike("normuon", in, 3);
  const HTensor &w = in[0], lr = scalar_of("normuon", in[4], w);
  expect(w.rank() == 2, "normuon", "orthogonalises matrices, not " + text_of(w));
  expect(in[3].dtype() == w.dtype() && in[3].shape() == Shape{w.shape()[0]}, "normuon",
         "v is " + text_of(in[3]) + "; " + text_of(w) + " needs one number a row");
  const double beta1 = a.number("beta1", 0.95), beta2 = a.number("beta2", 0.95), epsilon = a.number("epsilon", 1e-8);
  const double decay = a.number("weight_decay", 0), elements = static_cast<double>(w.size());
  const HTensor m = in[2] + (in[1] - in[2]) * (1 - beta1);
  const HTensor o = orthogonalised(m);
  const HTensor v = in[3] + (reduce_mean(square(o), {1}) - in[3]) * (1 - beta2);
  const HTensor even = o / column(sqrt(v) + epsilon);
  // Scales to the size of a typical Adam step: root mean square 0.2.
  const HTensor reach = lr * (0.2 * std::sqrt(elements)) / (as_type_of(call1("global_norm", {even}), even) + 1e-10);
  const HTensor kept = decay != 0 ? w * (1.0 - lr * decay) : w;
  return {kept - reach * even, m, v};
}

// Independent updates of several parameters: the tensors of each one, side by side, then the learning rate and, if
// needed, the step number.
Values update_all(const AttributeMap& a, Inputs in) {
  const std::string& update = a.text("update");
  const int64_t parameters = a.integer("parameters");
  const FunctionalPtr functional = FunctionalTable::global().find(update);
  expect(functional && functional->traits.update == UpdateKind::one, "update_all",
         "'" + update + "' is no optimizer's step of one parameter", ErrorKind::Type);
  const size_t shared = is_integer(in.back().dtype()) ? 2 : 1, all = in.size() - shared;
  expect(parameters > 0 && all % static_cast<size_t>(parameters) == 0, "update_all",
         fmt::format("{} tensors do not belong to {} parameters", all, parameters), ErrorKind::Type);
  AttributeMap own;
  for (const auto& [name, value] : a.entries())
    if (name != "update" && name != "parameters") own.set(name, value);
  Values results;
  for (size_t first = 0, each = all / static_cast<size_t>(parameters); first < all; first += each) {
    Values one(in.begin() + static_cast<ptrdiff_t>(first), in.begin() + static_cast<ptrdiff_t>(first + each));
    one.insert(one.end(), in.end() - static_cast<ptrdiff_t>(shared), in.end());
    check_call(*functional, own, one.size());
    for (HTensor& result : functional->body(own, one)) results.push_back(std::move(result));
  }
  return results;
}

// An optimizer's step of an affine map's weight from the factors of its gradient.
Values update_outer(const AttributeMap& a, Inputs in) {
  const std::string& update = a.text("update");
  const FunctionalPtr functional = FunctionalTable::global().find(update);
  expect(functional && functional->traits.update == UpdateKind::one, "update_outer",
         "'" + update + "' is no optimizer's step of one parameter", ErrorKind::Type);
  const HTensor &w = in[0], &x = in[1], &dy = in[2];
  expect(w.rank() == 2 && x.rank() >= 1 && x.rank() == dy.rank() && x.shape().back() == w.shape()[0] &&
             dy.shape().back() == w.shape()[1],
         "update_outer",
         "w " + text_of(w) + ", a " + text_of(x) + " and b " + text_of(dy) +
             " do not fit: w is [m, n], a [..., m] and b [..., n]");
  AttributeMap own;
  for (const auto& [name, value] : a.entries())
    if (name != "update" && name != "input_gradient") own.set(name, value);
  const std::vector<int64_t> leading = leading_axes(x);
  Values operands{w, dot(x, dy, leading, leading)};
  operands.insert(operands.end(), in.begin() + 3, in.end());
  check_call(*functional, own, operands.size());
  Values results = functional->body(own, operands);
  append_input_gradient("input_gradient", a, w, x, dy, results);
  return results;
}

// Norm of all tensors, taken as one vector.
Values global_norm(const AttributeMap&, Inputs in) {
  expect(!in.empty(), "global_norm", "takes at least one tensor");
  HTensor total;
  for (const HTensor& x : in) {
    const HTensor squares = reduce_sum(square(wide(x)), axes_from(x, 0));
    total = total ? total + squares : squares;
  }
  return {sqrt(total)};
}

}  // namespace

std::vector<Functional> optimizers() {
  return {
      {"sgd",
       "one step of gradient descent; with a velocity, of momentum or Nesterov's variant",
       "w [...], g [...], velocity [...]?, lr [] {momentum = 0.0, nesterov = false, weight_decay = 0.0} -> w [...], "
       "velocity [...]?",
       sgd,
       nullptr,
       {.update = UpdateKind::one, .factored = "sgd_outer"}},
      {"adam",
       "one step of Adam (Kingma, Ba 2015)",
       "w [...], g [...], m [...], v [...], m_scale [r, c]?, v_scale [r, c]?, lr [], step [] {beta1 = 0.9, beta2 = "
       "0.999, epsilon = 1e-8, weight_decay = 0.0} -> w [...], m [...], v [...], m_scale [r, c]?, v_scale [r, c]?; "
       "moments of f32 may be bf16, or u8 with a scale for each block of 16 x 16",
       adam,
       nullptr,
       {.update = UpdateKind::one}},
      {"adamw",
       "one step of Adam with decoupled weight decay (Loshchilov, Hutter 2019)",
       "w [...], g [...], m [...], v [...], m_scale [r, c]?, v_scale [r, c]?, lr [], step [] {beta1 = 0.9, beta2 = "
       "0.999, epsilon = 1e-8, weight_decay = 0.0} -> w [...], m [...], v [...], m_scale [r, c]?, v_scale [r, c]?; "
       "moments of f32 may be bf16, or u8 with a scale for each block of 16 x 16",
       adamw,
       nullptr,
       {.update = UpdateKind::one}},
      {"rmsprop",
       "one step of RMSProp (Hinton 2012); with a velocity, and with the mean taken out when centered",
       "w [...], g [...], v [...], velocity [...]?, mean [...]?, lr [] {alpha = 0.99, epsilon = 1e-8, momentum = 0.0, "
       "centered = false, weight_decay = 0.0} -> w [...], v [...], velocity [...]?, mean [...]?",
       rmsprop,
       nullptr,
       {.update = UpdateKind::one}},
      {"lion",
       "one step of Lion (Chen et al. 2023)",
       "w [...], g [...], m [...], lr [] {beta1 = 0.9, beta2 = 0.99, weight_decay = 0.0} -> w [...], m [...]",
       lion,
       nullptr,
       {.update = UpdateKind::one}},
      {"lamb",
       "one step of LAMB (You et al. 2020); without adapt, of Adam with weight decay in the step",
       "w [...], g [...], m [...], v [...], lr [], step [] {beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, "
       "weight_decay = 0.0, adapt = true} -> w [...], m [...], v [...]",
       lamb,
       nullptr,
       {.update = UpdateKind::one}},
      {"normuon", "one step of NorMuon (Li et al. 2025) of a matrix",
       "w [r, c], g [r, c], m [r, c], v [r], lr [] {beta1 = 0.95, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.0} -> "
       "w [r, c], m [r, c], v [r]",
       normuon, nullptr},
      {"update_all",
       "the steps of several parameters by one optimizer",
       "tensors [...]..., lr [], step []? {update: text, parameters: int in 1.., ...} -> tensors [...]...; w, g and "
       "the "
       "moments of each parameter, then w and the moments of each",
       update_all,
       nullptr,
       {.update = UpdateKind::several}},
      {"update_outer",
       "the step of an affine map's weight by an optimizer, without storing its gradient",
       "w [m, n], a [..., m], b [..., n], moments [m, n]...?, lr [], step []? {update: text, input_gradient = \"\" in "
       "all|active (all: da is b w^T of the old w; active: zero where a is not positive), ...} -> w [m, n], moments "
       "[m, n]...?, da [..., m]?; the gradient is sum(a b^T)",
       update_outer,
       nullptr,
       {.update = UpdateKind::factored}},
      {"global_norm",
       "Euclidean norm of all tensors, taken as one vector",
       "x [...]... -> norm []",
       global_norm,
       nullptr,
       {.order_free = true}},
  };
}

}  // namespace harmonics::engine::reference
