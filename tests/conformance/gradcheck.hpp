// Gradients against central finite differences, for primitives, functionals and whole compositions.
#pragma once

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <harmonics/ops.hpp>
#include <harmonics/philox.hpp>

#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::testing {

// Uniform numbers in [low, high), the same for the same seed.
inline HTensor random_tensor(const Shape& shape, uint64_t seed, double low = -1, double high = 1, DType dtype = DType::F64) {
  PhiloxStream random(philox_key(seed, stream_of("test", 4)), 0);
  std::vector<double> values(static_cast<size_t>(shape.count()));
  for (double& v : values) v = low + (high - low) * (random.next() * 0x1p-32);
  return cast(HTensor::from(shape, values), dtype);
}

inline HTensor random_indices(const Shape& shape, uint64_t seed, int64_t below) {
  PhiloxStream random(philox_key(seed, stream_of("index", 5)), 0);
  std::vector<int64_t> values(static_cast<size_t>(shape.count()));
  for (int64_t& v : values) v = random.below(static_cast<uint32_t>(below));
  return HTensor::from(shape, values);
}

// All outputs of `f` weighted by fixed numbers and summed, so that every output element's gradient counts.
using Composition = std::function<Values(const Values&)>;

inline HTensor weighted_sum(const Values& outputs) {
  HTensor total;
  uint64_t seed = 100;
  for (const HTensor& y : outputs) {
    if (!is_float(type_of(y).dtype)) continue;
    const HTensor weights = random_tensor(y.shape(), ++seed, 0.5, 1.5, y.dtype());
    const HTensor sum = reduce_sum(y * weights, axes_from(y, 0));
    total = total ? total + sum : sum;
  }
  return total;
}

struct GradientTolerance {
  double step = 1e-6, absolute = 1e-5, relative = 1e-3;
};

// Traces f, differentiates it, and compares every element of every f64 input's gradient with the central difference of the
// eager evaluation. Also requires that the trace computes what eager evaluation computes.
inline void check_gradient(const Composition& f, const Values& inputs, GradientTolerance tolerance = {}) {
  Tracer tracer("gradcheck");
  Values traced, wrt;
  std::vector<size_t> which;
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    leaves[std::to_string(i)] = inputs[i];
    traced.push_back(tracer.input(std::to_string(i), type_of(inputs[i])));
    if (type_of(inputs[i]).dtype != DType::F64) continue;
    wrt.push_back(traced.back());
    which.push_back(i);
  }
  const HTensor value = weighted_sum(f(traced));
  REQUIRE(value);
  tracer.output("value", value);
  const Values gradients = gradient(tracer, value, wrt);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("gradient " + std::to_string(which[i]), gradients[i]);
  const Program program = tracer.take();

  const Values results = interpret(program, leaves);
  const double eager = weighted_sum(f(inputs)).item<double>();
  CHECK(results[0].item<double>() == Approx(eager).epsilon(1e-12).margin(1e-12));

  for (size_t g = 0; g < which.size(); ++g) {
    const double* actual = results[g + 1].data<double>();
    for (int64_t i = 0; i < inputs[which[g]].size(); ++i) {
      const auto moved = [&](double by) {
        Values changed = inputs;
        changed[which[g]].mutable_data<double>()[i] += by;
        return weighted_sum(f(changed)).item<double>();
      };
      const double expected = (moved(tolerance.step) - moved(-tolerance.step)) / (2 * tolerance.step);
      INFO("input " << which[g] << ", element " << i << ": gradient " << actual[i] << ", finite difference " << expected);
      CHECK(std::abs(actual[i] - expected) <= tolerance.absolute + tolerance.relative * std::abs(expected));
    }
  }
}

// Likewise for a function of one result.
inline void check_gradient_of(const std::function<HTensor(const Values&)>& f, const Values& inputs,
                              GradientTolerance tolerance = {}) {
  check_gradient([&](const Values& in) { return Values{f(in)}; }, inputs, tolerance);
}

}  // namespace harmonics::testing
