#include <algorithm>

#include <harmonics/quantity.hpp>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

// A normalisation: statistics over the axes `over`; gain and bias along `own`.
struct Norm {
  Shape shape;
  std::vector<int64_t> over, own;

  bool is_over(int64_t axis) const { return std::find(over.begin(), over.end(), axis) != over.end(); }
  bool is_own(int64_t axis) const { return std::find(own.begin(), own.end(), axis) != own.end(); }
  double count() const {
    double n = 1;
    for (int64_t axis : over) n *= static_cast<double>(shape[static_cast<uint32_t>(axis)]);
    return n;
  }
  std::vector<int64_t> not_own() const {
    std::vector<int64_t> axes;
    for (int64_t i = 0; i < static_cast<int64_t>(shape.rank()); ++i)
      if (!is_own(i)) axes.push_back(i);
    return axes;
  }
  // Reshapes a statistic to size 1 in reduced axes.
  HTensor statistic(const HTensor& s) const {
    Shape full = shape;
    for (int64_t axis : over) full[static_cast<uint32_t>(axis)] = 1;
    return reshape(s, full);
  }
  HTensor parameter(const HTensor& p) const {
    Shape full = shape;
    for (int64_t axis : not_own()) full[static_cast<uint32_t>(axis)] = 1;
    return reshape(p, full);
  }
  Shape parameter_shape() const {
    Shape s;
    for (int64_t axis : own) s.push_back(shape[static_cast<uint32_t>(axis)]);
    return s;
  }
  HTensor mean(const HTensor& x) const { return reduce_mean(x, over); }
  HTensor parameter_sum(const HTensor& x) const {
    const std::vector<int64_t> axes = not_own();
    return reshape(axes.empty() ? x : reduce_sum(x, axes), parameter_shape());
  }
};

void expect_parameter(const char* name, const Norm& norm, const HTensor& parameter, const char* what) {
  expect(parameter.shape() == norm.parameter_shape(), name,
         std::string(what) + " " + text_of(parameter) + " does not fit x " + norm.shape.str() + ": it needs shape " +
             norm.parameter_shape().str());
}

Norm trailing(const char* name, const HTensor& x, int64_t axes) {
  const int64_t rank = x.rank();
  expect(axes >= 1 && axes <= rank, name,
         "norm_axes is " + std::to_string(axes) + ", but x is " + text_of(x) + "; give 1 to " + std::to_string(rank));
  Norm norm{x.shape(), {}, {}};
  for (int64_t i = rank - axes; i < rank; ++i) norm.over.push_back(i);
  norm.own = norm.over;
  return norm;
}
Norm over_batch(const char* name, const HTensor& x) {
  expect(x.rank() >= 2, name, "x is [batch, channels, ...], not " + text_of(x));
  Norm norm{x.shape(), {0}, {1}};
  for (int64_t i = 2; i < static_cast<int64_t>(x.rank()); ++i) norm.over.push_back(i);
  return norm;
}

// Views x as [batch, groups, channels of a group, positions].
Norm by_group(const char* name, const HTensor& x, int64_t groups) {
  expect(x.rank() >= 2, name, "x is [batch, channels, ...], not " + text_of(x));
  const Shape s = x.shape();
  expect(groups >= 1 && s[1] % groups == 0, name,
         "groups is " + std::to_string(groups) + "; it must divide the " + quantity(s[1], "channel"));
  return {{s[0], groups, s[1] / groups, s.from(2).count()}, {2, 3}, {1, 2}};
}

// Returns y = (x - mean) rstd gain + bias and both statistics. The mean of large numbers is rounded, so its rounding
// error, the mean of the centred values, is subtracted too.
Values normalise(const char* name, const Norm& norm, const AttributeMap& a, Inputs in) {
  expect_parameter(name, norm, in[1], "gain");
  expect_parameter(name, norm, in[2], "bias");
  const HTensor x = wide(in[0]);
  const HTensor rounded = stop_gradient(norm.mean(x));
  const HTensor nearly = x - norm.statistic(rounded);
  const HTensor rest = norm.mean(nearly), mean = rounded + rest;
  const HTensor centred = nearly - norm.statistic(rest);
  const HTensor rstd = rsqrt(norm.mean(square(centred)) + a.number("epsilon", 1e-5));
  const HTensor y = centred * norm.statistic(rstd) * norm.parameter(wide(in[1], x)) + norm.parameter(wide(in[2], x));
  return {as_type_of(y, in[0]), mean, rstd};
}

// Inputs of the gradient: x, gain, mean, rstd, dy.
Values normalise_grad(const char* name, const Norm& norm, Inputs in) {
  expect_parameter(name, norm, in[1], "gain");
  const HTensor x = wide(in[0]), dy = wide(in[4]);
  const HTensor rstd = norm.statistic(in[3]);
  const HTensor unit = (x - norm.statistic(in[2])) * rstd;
  const HTensor dunit = dy * norm.parameter(wide(in[1], x));
  const HTensor dx = rstd * (dunit - norm.statistic(norm.mean(dunit)) - unit * norm.statistic(norm.mean(dunit * unit)));
  return {as_type_of(dx, in[0]), as_type_of(norm.parameter_sum(dy * unit), in[1]),
          as_type_of(norm.parameter_sum(dy), in[1])};
}

// Adds the contribution of the gradients of the statistics to dx: d mean/dx = 1/n, d rstd/dx = -rstd^3 (x - mean)/n. An
// empty `mean` stands for 0.
HTensor through_statistics(const Norm& norm, const HTensor& input, const HTensor& mean, const HTensor& rstd,
                           const HTensor& dmean, const HTensor& drstd, HTensor dx) {
  const HTensor x = wide(input);
  const auto include = [&](const HTensor& more) { dx = dx + as_type_of(broadcast(more, norm.shape), input); };
  if (dmean) include(norm.statistic(dmean * (1 / norm.count())));
  if (drstd) {
    const HTensor centred = mean ? x - norm.statistic(mean) : x;
    include(centred * norm.statistic(drstd * (rstd * rstd * rstd) * (-1 / norm.count())));
  }
  return dx;
}

Values normalise_gradient(const char* grad, const Norm& norm, const AttributeMap& a, Inputs in, Inputs out,
                          Inputs gradients) {
  const HTensor &mean = out[1], &rstd = out[2];
  Values result = apply(grad, a, {in[0], in[1], mean, rstd, or_zero(gradients[0], in[0])});
  result[0] = through_statistics(norm, in[0], mean, rstd, gradients[1], gradients[2], result[0]);
  result[2] = as_type_of(result[2], in[2]);
  return result;
}

AttributeMap norm_axes(const AttributeMap& a) { return AttributeMap().set("norm_axes", a.integer("norm_axes", 1)); }

Values layer_norm(const AttributeMap& a, Inputs in) {
  return normalise("layer_norm", trailing("layer_norm", in[0], a.integer("norm_axes", 1)), a, in);
}
Values layer_norm_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  const Norm norm = trailing("layer_norm", in[0], a.integer("norm_axes", 1));
  return normalise_gradient("layer_norm_grad", norm, norm_axes(a), in, out, gradients);
}
Values layer_norm_grad(const AttributeMap& a, Inputs in) {
  return normalise_grad("layer_norm_grad", trailing("layer_norm_grad", in[0], a.integer("norm_axes", 1)), in);
}

Values batch_norm(const AttributeMap& a, Inputs in) {
  return normalise("batch_norm", over_batch("batch_norm", in[0]), a, in);
}
Values batch_norm_gradient(const AttributeMap&, Inputs in, Inputs out, Inputs gradients) {
  return normalise_gradient("batch_norm_grad", over_batch("batch_norm", in[0]), {}, in, out, gradients);
}
Values batch_norm_grad(const AttributeMap&, Inputs in) {
  return normalise_grad("batch_norm_grad", over_batch("batch_norm_grad", in[0]), in);
}

Values group_norm(const AttributeMap& a, Inputs in) {
  const Norm norm = by_group("group_norm", in[0], a.integer("groups"));
  const Shape channels{in[0].shape()[1]}, own = norm.parameter_shape();
  for (size_t i : {1, 2})
    expect(in[i].shape() == channels, "group_norm",
           std::string(i == 1 ? "gain " : "bias ") + text_of(in[i]) + " does not fit x " + text_of(in[0]) +
               ": it needs shape " + channels.str());
  Values y =
      normalise("group_norm", norm, a, Values{reshape(in[0], norm.shape), reshape(in[1], own), reshape(in[2], own)});
  y[0] = reshape(y[0], in[0].shape());
  return y;
}
Values group_norm_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  const Norm norm = by_group("group_norm", in[0], a.integer("groups"));
  Values result = apply("group_norm_grad", AttributeMap().set("groups", a.integer("groups")),
                        {in[0], in[1], out[1], out[2], or_zero(gradients[0], in[0])});
  if (gradients[1] || gradients[2])
    result[0] = reshape(through_statistics(norm, reshape(in[0], norm.shape), out[1], out[2], gradients[1], gradients[2],
                                           reshape(result[0], norm.shape)),
                        in[0].shape());
  result[2] = as_type_of(result[2], in[2]);
  return result;
}
Values group_norm_grad(const AttributeMap& a, Inputs in) {
  const Norm norm = by_group("group_norm_grad", in[0], a.integer("groups"));
  const Values grouped{reshape(in[0], norm.shape), reshape(in[1], norm.parameter_shape()), in[2], in[3],
                       reshape(in[4], norm.shape)};
  Values result = normalise_grad("group_norm_grad", norm, grouped);
  result[0] = reshape(result[0], in[0].shape());
  for (size_t i : {1, 2}) result[i] = reshape(result[i], in[1].shape());
  return result;
}

Values rms_norm(const AttributeMap& a, Inputs in) {
  const Norm norm = trailing("rms_norm", in[0], 1);
  expect_parameter("rms_norm", norm, in[1], "gain");
  const HTensor x = wide(in[0]);
  const HTensor rstd = rsqrt(norm.mean(square(x)) + a.number("epsilon", 1e-5));
  return {as_type_of(x * norm.statistic(rstd) * norm.parameter(wide(in[1], x)), in[0]), rstd};
}
Values rms_norm_gradient(const AttributeMap&, Inputs in, Inputs out, Inputs gradients) {
  const Norm norm = trailing("rms_norm", in[0], 1);
  Values result = apply("rms_norm_grad", {}, {in[0], in[1], out[1], or_zero(gradients[0], in[0])});
  result[0] = through_statistics(norm, in[0], {}, out[1], {}, gradients[1], result[0]);
  return result;
}
Values rms_norm_grad(const AttributeMap&, Inputs in) {
  const Norm norm = trailing("rms_norm_grad", in[0], 1);
  expect_parameter("rms_norm_grad", norm, in[1], "gain");
  const HTensor x = wide(in[0]), dy = wide(in[3]);
  const HTensor rstd = norm.statistic(in[2]);
  const HTensor unit = x * rstd, dunit = dy * norm.parameter(wide(in[1], x));
  const HTensor dx = rstd * (dunit - unit * norm.statistic(norm.mean(dunit * unit)));
  return {as_type_of(dx, in[0]), as_type_of(norm.parameter_sum(dy * unit), in[1])};
}

}  // namespace

std::vector<Functional> norms() {
  return {
      {"layer_norm",
       "normalises the last norm_axes axes to zero mean and unit variance, then applies gain and bias",
       "x [..., n], gain [n], bias [n] {epsilon = 1e-5, norm_axes = 1 in 1..} -> y [..., n], mean [...], rstd [...]",
       layer_norm,
       layer_norm_gradient,
       {.part = BlockPart::norm}},
      {"layer_norm_grad", "gradient of layer_norm",
       "x [..., n], gain [n], mean [...], rstd [...], dy [..., n] {norm_axes = 1 in 1..} -> dx [..., n], dgain [n], "
       "dbias [n]",
       layer_norm_grad, nullptr},
      {"rms_norm",
       "normalises the last axis to unit root mean square, then applies gain",
       "x [..., n], gain [n] {epsilon = 1e-5} -> y [..., n], rstd [...]",
       rms_norm,
       rms_norm_gradient,
       {.part = BlockPart::norm}},
      {"rms_norm_grad", "gradient of rms_norm",
       "x [..., n], gain [n], rstd [...], dy [..., n] -> dx [..., n], dgain [n]", rms_norm_grad, nullptr},
      {"batch_norm",
       "normalises each channel to zero mean and unit (biased) variance over batch and space, then applies gain and "
       "bias",
       "x [N, C, ...], gain [C], bias [C] {epsilon = 1e-5} -> y [N, C, ...], mean [C], rstd [C]", batch_norm,
       batch_norm_gradient},
      {"batch_norm_grad", "gradient of batch_norm",
       "x [N, C, ...], gain [C], mean [C], rstd [C], dy [N, C, ...] -> dx [N, C, ...], dgain [C], dbias [C]",
       batch_norm_grad, nullptr},
      {"group_norm",
       "normalises each group of channels of a sample to zero mean and unit variance, then applies gain and bias of "
       "each channel",
       "x [N, C, ...], gain [C], bias [C] {groups: int in 1.., epsilon = 1e-5} -> y [N, C, ...], mean [N, groups], "
       "rstd [N, "
       "groups]",
       group_norm, group_norm_gradient},
      {"group_norm_grad", "gradient of group_norm",
       "x [N, C, ...], gain [C], mean [N, groups], rstd [N, groups], dy [N, C, ...] {groups: int in 1..} -> dx [N, C, "
       "...], "
       "dgain [C], dbias [C]",
       group_norm_grad, nullptr},
  };
}

}  // namespace harmonics::engine::reference
