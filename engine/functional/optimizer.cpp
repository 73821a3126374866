// Optimizer updates of one parameter. Formulas and their order follow PyTorch. `lr` is a scalar; step numbers start at
// 1.
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

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

// The moments among the operands of an update: w, g, moments..., scales..., lr, step. They have the type of the
// parameter, or 16 or 8 bits; then the step number seeds their rounding.
class Moments {
 public:
  // `counts_steps`: the update takes the step number for moments of all types.
  Moments(const char* name, Inputs in, std::vector<MomentKind> kinds, bool counts_steps)
      : name_(name), in_(in), kinds_(std::move(kinds)) {
    const size_t own = kinds_.size(), plain = own + (counts_steps ? 4 : 3);
    if (in.size() == plain && (own == 0 || in[2].dtype() == in[0].dtype())) {
      expect_alike(name, in, 2 + own);
      for (size_t k = 0; k < own; ++k) values_.push_back(in[2 + k]);
      return;
    }
    expect(own > 0, name, fmt::format("takes {}, got {}", quantity(plain, "input"), in.size()));
    expect_alike(name, in, 2);
    expect(in.size() == own + 4 || in.size() == 2 * own + 4, name,
           fmt::format(
               "takes {} inputs, or {} with moments of bf16 and {} with moments of 8 bits and their scales, got {}",
               plain, own + 4, 2 * own + 4, in.size()));
    expect(in.back().rank() == 0 && is_integer(in.back().dtype()), name,
           "the step is one whole number, not " + text_of(in.back()));
    is_coded_ = in.size() == 2 * own + 4;
    stored_ = is_coded_ ? DType::U8 : DType::BF16;
    read();
  }

  const HTensor& operator[](size_t k) const { return values_[k]; }
  // Returns the results of an update: w, moments, scales.
  Values results(const HTensor& w, const std::vector<HTensor>& moments) const {
    Values all{w}, scales;
    for (size_t k = 0; k < moments.size(); ++k) {
      if (!stored_) {
        all.push_back(moments[k]);
        continue;
      }
      const StoredMoment stored = store_moment(kinds_[k], moments[k], in_.back(), *stored_);
      all.push_back(stored.elements);
      if (is_coded_) scales.push_back(stored.scale);
    }
    all.insert(all.end(), scales.begin(), scales.end());
    return all;
  }

 private:
  void read() {
    const HTensor& w = in_[0];
    const size_t own = kinds_.size();
    const TensorType type{*stored_, w.shape()}, scales{DType::U8, w.rank() >= 2 ? moment_scales(w.shape()) : Shape{}};
    for (size_t k = 0; k < own; ++k) {
      expect(w.dtype() == DType::F32 && type_of(in_[2 + k]) == type, name_,
             "a moment of " + text_of(w) + " is " + text_of(in_[2 + k]) +
                 "; it has its type, or of f32: bf16, or u8 with a scale");
      if (is_coded_)
        expect(w.rank() >= 2 && type_of(in_[2 + own + k]) == scales, name_,
               "a scale is " + text_of(in_[2 + own + k]) + "; " + text_of(w) +
                   (w.rank() < 2 ? " has no blocks, as it has fewer than two axes" : " needs " + scales.str()));
      values_.push_back(read_moment(kinds_[k], in_[2 + k], is_coded_ ? in_[2 + own + k] : HTensor{}));
    }
  }

  const char* name_;
  Inputs in_;
  std::vector<MomentKind> kinds_;
  std::vector<HTensor> values_;
  bool is_coded_ = false;
  std::optional<DType> stored_;  // empty: type of the parameter
};

// Returns the learning rate, which precedes the step number if there is one.
const HTensor& rate_of(Inputs in) { return is_integer(in.back().dtype()) ? in[in.size() - 2] : in.back(); }

Values sgd(const AttributeMap& a, Inputs in) {
  const double momentum = a.number("momentum", 0), decay = a.number("weight_decay", 0);
  const bool has_momentum = in.size() > 3;
  const Moments old("sgd", in, has_momentum ? std::vector{MomentKind::mean} : std::vector<MomentKind>{}, false);
  const HTensor &w = in[0], lr = scalar_of("sgd", rate_of(in), w);
  HTensor g = in[1];
  if (decay != 0) g = g + decay * w;
  if (!has_momentum) {
    expect(momentum == 0, "sgd", fmt::format("momentum {:g} needs the velocity as third input", momentum));
    return {w - lr * g};
  }
  const HTensor velocity = momentum * old[0] + g;
  const HTensor direction = a.flag("nesterov") ? g + momentum * velocity : velocity;
  return old.results(w - lr * direction, {velocity});
}

enum class Decay { in_gradient, decoupled };

Values adam_step(const char* name, const AttributeMap& a, Inputs in, Decay kind) {
  const Moments old(name, in, {MomentKind::mean, MomentKind::square}, true);
  const HTensor &rate = in[in.size() - 2], &steps = in.back();
  expect(steps.rank() == 0 && is_integer(steps.dtype()), name, "the step is one whole number, not " + text_of(steps));
  const double beta1 = a.number("beta1", 0.9), beta2 = a.number("beta2", 0.999), epsilon = a.number("epsilon", 1e-8);
  const double decay = a.number("weight_decay", 0);
  HTensor w = in[0], g = in[1];
  const HTensor lr = scalar_of(name, rate, w);
  if (decay != 0 && kind == Decay::in_gradient) g = g + decay * w;
  if (decay != 0 && kind == Decay::decoupled) w = w * (1.0 - lr * decay);
  const HTensor m = old[0] + (g - old[0]) * (1 - beta1);
  const HTensor v = old[1] * beta2 + (1 - beta2) * square(g);
  // Bias corrections are close to 0 (1 - 0.999^1), so they are computed in f64.
  const HTensor step = cast(steps, DType::F64);
  const HTensor size = cast(cast(rate, DType::F64) / (1.0 - pow(beta1, step)), w.dtype());
  const HTensor spread = cast(sqrt(1.0 - pow(beta2, step)), w.dtype());
  return old.results(w - size * (m / (sqrt(v) / spread + epsilon)), {m, v});
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
         fmt::format("takes {} with these attributes, got {}", quantity(tensors + 1, "input"), in.size()));
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
  const Moments old("lion", in, {MomentKind::mean}, false);
  const double beta1 = a.number("beta1", 0.9), beta2 = a.number("beta2", 0.99), decay = a.number("weight_decay", 0);
  const HTensor &g = in[1], &m = old[0], lr = scalar_of("lion", rate_of(in), in[0]);
  const HTensor w = decay != 0 ? in[0] * (1.0 - lr * decay) : in[0];
  return old.results(w - lr * sign(beta1 * m + (1 - beta1) * g), {beta2 * m + (1 - beta2) * g});
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

// Returns an approximation of the nearest matrix with an orthonormal shorter side, by five Newton-Schulz steps on the
// Gram matrix of the shorter side. Singular values end between 0.7 and 1.2.
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
         "v is " + text_of(in[3]) + "; " + text_of(w) + " needs one number per row");
  const double beta1 = a.number("beta1", 0.95), beta2 = a.number("beta2", 0.95), epsilon = a.number("epsilon", 1e-8);
  const double decay = a.number("weight_decay", 0), elements = static_cast<double>(w.size());
  const HTensor m = in[2] + (in[1] - in[2]) * (1 - beta1);
  const HTensor o = orthogonalised(m);
  const HTensor v = in[3] + (reduce_mean(square(o), {1}) - in[3]) * (1 - beta2);
  const HTensor even = o / column(sqrt(v) + epsilon);
  // Scales to the root mean square of a typical Adam step, 0.2.
  const HTensor reach = lr * (0.2 * std::sqrt(elements)) / (as_type_of(call1("global_norm", {even}), even) + 1e-10);
  const HTensor kept = decay != 0 ? w * (1.0 - lr * decay) : w;
  return {kept - reach * even, m, v};
}

// Independent updates of several parameters. Operands: the tensors of each parameter, then the learning rate and, if
// needed, the step number.
Values update_all(const AttributeMap& a, Inputs in) {
  const std::string& update = a.text("update");
  const int64_t parameters = a.integer("parameters");
  const FunctionalPtr functional = FunctionalTable::global().find(update);
  expect(functional && functional->traits.update == UpdateKind::one, "update_all",
         "'" + update + "' is not an optimizer's step of one parameter", ErrorKind::Type);
  const size_t shared = is_integer(in.back().dtype()) ? 2 : 1, all = in.size() - shared;
  expect(parameters > 0 && all % static_cast<size_t>(parameters) == 0, "update_all",
         fmt::format("{} tensors do not belong to {}", all, quantity(parameters, "parameter")), ErrorKind::Type);
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

// An optimizer update of the weight of an affine map, from the factors of its gradient.
Values update_outer(const AttributeMap& a, Inputs in) {
  const std::string& update = a.text("update");
  const FunctionalPtr functional = FunctionalTable::global().find(update);
  expect(functional && functional->traits.update == UpdateKind::one, "update_outer",
         "'" + update + "' is not an optimizer's step of one parameter", ErrorKind::Type);
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

// The norm of all tensors, concatenated as one vector.
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
       "one step of gradient descent, optionally with momentum (velocity) or Nesterov momentum",
       "w [...], g [...], velocity [...]?, velocity_scale [r, c]?, lr [], step []? {momentum = 0.0, nesterov = false, "
       "weight_decay = 0.0} -> w [...], velocity [...]?, velocity_scale [r, c]?; the velocity of an f32 parameter may "
       "be bf16, or u8 with a scale for each 16 x 16 block; step is then required",
       sgd,
       nullptr,
       {.update = UpdateKind::one, .factored = "sgd_outer"}},
      {"adam",
       "one step of Adam (Kingma, Ba 2015)",
       "w [...], g [...], m [...], v [...], m_scale [r, c]?, v_scale [r, c]?, lr [], step [] {beta1 = 0.9, beta2 = "
       "0.999, epsilon = 1e-8, weight_decay = 0.0} -> w [...], m [...], v [...], m_scale [r, c]?, v_scale [r, c]?; "
       "the moments of an f32 parameter may be bf16, or u8 with a scale for each 16 x 16 block",
       adam,
       nullptr,
       {.update = UpdateKind::one}},
      {"adamw",
       "one step of Adam with decoupled weight decay (Loshchilov, Hutter 2019)",
       "w [...], g [...], m [...], v [...], m_scale [r, c]?, v_scale [r, c]?, lr [], step [] {beta1 = 0.9, beta2 = "
       "0.999, epsilon = 1e-8, weight_decay = 0.0} -> w [...], m [...], v [...], m_scale [r, c]?, v_scale [r, c]?; "
       "the moments of an f32 parameter may be bf16, or u8 with a scale for each 16 x 16 block",
       adamw,
       nullptr,
       {.update = UpdateKind::one}},
      {"rmsprop",
       "one step of RMSProp (Hinton 2012), optionally with momentum (velocity) and centered by the mean gradient",
       "w [...], g [...], v [...], velocity [...]?, mean [...]?, lr [] {alpha = 0.99, epsilon = 1e-8, momentum = 0.0, "
       "centered = false, weight_decay = 0.0} -> w [...], v [...], velocity [...]?, mean [...]?",
       rmsprop,
       nullptr,
       {.update = UpdateKind::one}},
      {"lion",
       "one step of Lion (Chen et al. 2023)",
       "w [...], g [...], m [...], m_scale [r, c]?, lr [], step []? {beta1 = 0.9, beta2 = 0.99, weight_decay = 0.0} -> "
       "w [...], m [...], m_scale [r, c]?; the moment of an f32 parameter may be bf16, or u8 with a scale for each 16 "
       "x 16 block; step is then required",
       lion,
       nullptr,
       {.update = UpdateKind::one}},
      {"lamb",
       "one step of LAMB (You et al. 2020); without adapt, the trust ratio is 1",
       "w [...], g [...], m [...], v [...], lr [], step [] {beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, "
       "weight_decay = 0.0, adapt = true} -> w [...], m [...], v [...]",
       lamb,
       nullptr,
       {.update = UpdateKind::one}},
      {"normuon", "one step of NorMuon (Li et al. 2025) for a matrix",
       "w [r, c], g [r, c], m [r, c], v [r], lr [] {beta1 = 0.95, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.0} -> "
       "w [r, c], m [r, c], v [r]",
       normuon, nullptr},
      {"update_all",
       "optimizer steps of several parameters in one call",
       "tensors [...]..., lr [], step []? {update: text, parameters: int in 1.., ...} -> tensors [...]...; inputs are "
       "w, g and the moments of each parameter; results are w and the moments of each",
       update_all,
       nullptr,
       {.update = UpdateKind::several}},
      {"update_outer",
       "one optimizer step of an affine map's weight, without storing its gradient",
       "w [m, n], a [..., m], b [..., n], moments [m, n]...?, lr [], step []? {update: text, input_gradient = \"\" in "
       "all|active (all: da is b w^T with the old w; active: the same, but 0 where a is not positive), ...} -> w [m, "
       "n], moments "
       "[m, n]...?, da [..., m]?; the gradient is sum(a b^T)",
       update_outer,
       nullptr,
       {.update = UpdateKind::factored}},
      {"global_norm",
       "Euclidean norm of all tensors together, as one vector",
       "x [...]... -> norm []",
       global_norm,
       nullptr,
       {.order_free = true}},
  };
}

}  // namespace harmonics::engine::reference
