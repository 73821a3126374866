// For every functional: its gradient against finite differences in double, its own gradient against the derived one,
// and its results in every float type.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/conformance/functional_cases.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::conformance;

namespace {

const std::vector<uint64_t> kFunctionalSeeds{1, 2, 3};

Values operands(const FunctionalCase& c, DType dtype, uint64_t seed) {
  std::mt19937_64 generator(seed);
  return make_operands(c, dtype, generator);
}
bool differentiated(const Operand& operand) {
  return operand.kind == Operand::number || operand.kind == Operand::positive || operand.kind == Operand::fraction;
}

std::vector<double> doubles(const HTensor& x) {
  const HTensor wide = cast(x, DType::F64);
  return {wide.data<double>(), wide.data<double>() + wide.size()};
}

// Returns fixed weights that reduce all float results to one number; integer results are ignored.
std::vector<HTensor> result_weights(const Values& results) {
  std::mt19937_64 generator(99);
  std::vector<HTensor> weights;
  for (const HTensor& y : results)
    weights.push_back(is_float(y.dtype()) ? make_operand(numbers(y.shape()), y.dtype(), generator) : HTensor());
  return weights;
}
double weighted(const Values& results, const std::vector<HTensor>& weights) {
  double sum = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!weights[i]) continue;
    const std::vector<double> y = doubles(results[i]), w = doubles(weights[i]);
    // lse of a query without visible keys is -inf, without gradient.
    for (size_t j = 0; j < y.size(); ++j) sum += std::isinf(y[j]) ? 0 : y[j] * w[j];
  }
  return sum;
}

// Returns the gradients of the weighted sum for every differentiated input, through gradient() on a traced program.
std::vector<std::vector<double>> traced_gradients(const std::string& functional, const FunctionalCase& c,
                                                  const Values& in, const std::vector<HTensor>& weights) {
  Tracer tracer("case");
  Values traced, wrt;
  std::map<std::string, HTensor> values;
  for (size_t i = 0; i < in.size(); ++i) {
    traced.push_back(tracer.input(std::to_string(i), type_of(in[i])));
    values[std::to_string(i)] = in[i];
    if (differentiated(c.inputs[i])) wrt.push_back(traced.back());
  }
  const Values results = apply(functional, c.attributes, traced);
  HTensor sum;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!weights[i]) continue;
    const HTensor part = reduce_sum(results[i] * weights[i], axes_from(results[i], 0));
    sum = sum ? sum + part : part;
  }
  const Values gradients = gradient(tracer, sum, wrt);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("d" + std::to_string(i), gradients[i]);
  std::vector<std::vector<double>> found;
  for (const HTensor& gradient : interpret(tracer.take(), values)) found.push_back(doubles(gradient));
  return found;
}

std::vector<std::vector<double>> numeric_gradients(const FunctionalCase& c, const Values& in,
                                                   const std::vector<HTensor>& weights) {
  constexpr double kStep = 1e-5;
  std::vector<std::vector<double>> found;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!differentiated(c.inputs[i])) continue;
    std::vector<double> gradients;
    for (int64_t j = 0; j < in[i].size(); ++j) {
      const auto moved = [&](double by) {
        Values values = in;
        values[i].mutable_data<double>()[j] += by;
        return weighted(apply(c.functional, c.attributes, values), weights);
      };
      gradients.push_back((moved(kStep) - moved(-kStep)) / (2 * kStep));
    }
    found.push_back(gradients);
  }
  return found;
}

// Returns the largest difference relative to absolute + relative |b|; NaN counts as infinite.
double excess(const std::vector<double>& a, const std::vector<double>& b, double absolute, double relative) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double units = std::abs(a[i] - b[i]) / (absolute + relative * std::abs(b[i]));
    worst = std::isnan(units) ? INFINITY : std::max(worst, units);
  }
  return worst;
}

// Registers the same body without a gradient under another name.
std::string without_gradient(const std::string& name) {
  const FunctionalPtr found = FunctionalTable::global().find(name);
  const Functional& original = *found;
  const std::string other = "conformance." + name;
  FunctionalTable::global().add({other, original.description, original.formula, original.body, nullptr});
  return other;
}

}  // namespace

TEST_CASE("every functional has a conformance case") {
  std::set<std::string> covered;
  for (const FunctionalCase& c : functional_cases(1)) covered.insert(c.functional);
  for (const FunctionalPtr& functional : FunctionalTable::global().all()) {
    if (functional->name.rfind("conformance.", 0) == 0) continue;
    INFO("add a case to engine/conformance/functional_cases.hpp for " << functional->name);
    CHECK(covered.count(functional->name) == 1);
    CHECK_FALSE(functional->description.empty());
    CHECK(functional->formula.find("->") != std::string::npos);
  }
}

TEST_CASE("gradients of functionals agree with finite differences") {
  for (uint64_t seed : kFunctionalSeeds)
    for (const FunctionalCase& c : functional_cases(seed)) {
      INFO("seed " << seed << ": " << c.str());
      const Values in = operands(c, DType::F64, seed);
      const std::vector<HTensor> weights = result_weights(apply(c.functional, c.attributes, in));
      const auto numeric = numeric_gradients(c, in, weights);
      if (numeric.empty()) continue;
      const auto traced = traced_gradients(c.functional, c, in, weights);
      REQUIRE(traced.size() == numeric.size());
      for (size_t i = 0; i < numeric.size(); ++i) {
        INFO("differentiated input " << i);
        CHECK(excess(traced[i], numeric[i], 1e-7, 1e-6) <= 1);
      }
    }
}

TEST_CASE("own gradients of functionals agree with those derived from the body") {
  for (uint64_t seed : kFunctionalSeeds)
    for (const FunctionalCase& c : functional_cases(seed)) {
      if (!FunctionalTable::global().find(c.functional)->gradient) continue;
      INFO("seed " << seed << ": " << c.str());
      const Values in = operands(c, DType::F64, seed);
      const std::vector<HTensor> weights = result_weights(apply(c.functional, c.attributes, in));
      const auto own = traced_gradients(c.functional, c, in, weights);
      const auto derived = traced_gradients(without_gradient(c.functional), c, in, weights);
      REQUIRE(own.size() == derived.size());
      for (size_t i = 0; i < own.size(); ++i) {
        INFO("differentiated input " << i);
        CHECK(excess(own[i], derived[i], 1e-12, 1e-11) <= 1);
      }
    }
}

// Inputs are rounded first, so that only the functional's own arithmetic differs between types.
TEST_CASE("functionals compute the same in every float type") {
  const struct {
    DType dtype;
    double absolute, relative;
  } rows[] = {{DType::F32, 1e-5, 1e-5}, {DType::F16, 2e-2, 1e-2}, {DType::BF16, 1.5e-1, 8e-2}};
  for (const auto& row : rows)
    for (const FunctionalCase& c : functional_cases(5)) {
      INFO(dtype_name(row.dtype) << ": " << c.str());
      const Values narrow = operands(c, row.dtype, 5);
      Values wide;
      for (size_t i = 0; i < narrow.size(); ++i)
        wide.push_back(differentiated(c.inputs[i]) ? cast(narrow[i], DType::F64) : narrow[i]);
      const Values results = apply(c.functional, c.attributes, narrow),
                   expected = apply(c.functional, c.attributes, wide);
      REQUIRE(results.size() == expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        INFO("result " << i);
        CHECK(results[i].shape() == expected[i].shape());
        if (is_float(expected[i].dtype()))
          CHECK(excess(doubles(results[i]), doubles(expected[i]), row.absolute, row.relative) <= 1);
      }
    }
}
