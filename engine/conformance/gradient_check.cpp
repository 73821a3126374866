#include "engine/conformance/gradient_check.hpp"

#include <cmath>
#include <map>

#include <harmonics/ops.hpp>
#include <harmonics/philox.hpp>

#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

double number(const HTensor& t, int64_t i) {
  return t.dtype() == DType::F64 ? t.data<double>()[i] : static_cast<double>(t.data<float>()[i]);
}

void move(HTensor& t, int64_t i, double by) {
  if (t.dtype() == DType::F64)
    t.mutable_data<double>()[i] += by;
  else
    t.mutable_data<float>()[i] += static_cast<float>(by);
}

}  // namespace

HTensor random_tensor(const Shape& shape, uint64_t seed, double low, double high, DType dtype) {
  PhiloxStream random(philox_key(seed, stream_of("test", 4)), 0);
  std::vector<double> values(static_cast<size_t>(shape.count()));
  for (double& v : values) v = low + (high - low) * (random.next() * 0x1p-32);
  return cast(HTensor::from(shape, values), dtype);
}

HTensor random_indices(const Shape& shape, uint64_t seed, int64_t below) {
  PhiloxStream random(philox_key(seed, stream_of("index", 5)), 0);
  std::vector<int64_t> values(static_cast<size_t>(shape.count()));
  for (int64_t& v : values) v = random.below(static_cast<uint32_t>(below));
  return HTensor::from(shape, values);
}

HTensor weighted_sum(const std::vector<HTensor>& results, bool only_first) {
  HTensor total;
  uint64_t seed = 100;
  for (const HTensor& y : results) {
    if (only_first && total) break;
    if (!is_float(type_of(y).dtype)) continue;
    const HTensor weights = random_tensor(y.shape(), ++seed, 0.5, 1.5, y.dtype());
    const HTensor sum = y.rank() ? reduce_sum(y * weights, axes_from(y, 0)) : y * weights;
    total = total ? total + cast(sum, total.dtype()) : sum;
  }
  if (!total) throw Error(ErrorKind::Type, "there is no floating-point result to differentiate");
  return total;
}

GradientComparison compare_gradient(const Composition& f, const std::vector<HTensor>& inputs,
                                    GradientTolerance tolerance, DType type) {
  Tracer tracer("gradcheck");
  std::vector<HTensor> traced, wrt;
  std::vector<size_t> which;
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    leaves[std::to_string(i)] = inputs[i];
    traced.push_back(tracer.input(std::to_string(i), type_of(inputs[i])));
    if (type_of(inputs[i]).dtype != type) continue;
    wrt.push_back(traced.back());
    which.push_back(i);
  }
  const HTensor value = weighted_sum(f(traced));
  tracer.output("value", value);
  const std::vector<HTensor> gradients = gradient(tracer, value, wrt);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("gradient " + std::to_string(which[i]), gradients[i]);
  const Program program = tracer.take();
  const std::vector<HTensor> results = interpret(program, leaves);

  GradientComparison c{number(results[0], 0), number(weighted_sum(f(inputs)), 0), 0, {}};
  for (size_t g = 0; g < which.size(); ++g)
    for (int64_t i = 0; i < inputs[which[g]].size(); ++i) {
      const auto moved = [&](double by) {
        std::vector<HTensor> changed = inputs;
        move(changed[which[g]], i, by);
        return number(weighted_sum(f(changed)), 0);
      };
      const double actual = number(results[g + 1], i);
      const double expected = (moved(tolerance.step) - moved(-tolerance.step)) / (2 * tolerance.step);
      ++c.compared;
      if (!(std::abs(actual - expected) <= tolerance.absolute + tolerance.relative * std::abs(expected)))
        c.mismatches.push_back({which[g], i, actual, expected});
    }
  return c;
}

}  // namespace harmonics::engine
