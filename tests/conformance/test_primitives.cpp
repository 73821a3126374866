// Layout, index, reduction, contraction and storage primitives: gradients against finite differences, results against
// the naive reference, both against PyTorch.
#include <catch2/catch.hpp>

#include <set>

#include "engine/model/safetensors.hpp"
#include "engine/program/op.hpp"
#include "naive.hpp"
#include "primitive_cases.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::conformance;
using harmonics::engine::testing::check_gradient;

namespace {

constexpr uint64_t kPrimitiveSeeds = 12;

bool ours(const OpRow& row) {
  return row.family == Family::layout || row.family == Family::index || row.family == Family::reduce ||
         row.family == Family::linear || row.family == Family::storage;
}

std::vector<double> grid_values(const HTensor& x) { return Grid(x).values; }

// Returns whether the numbers are equal, both NaN, or within the tolerance.
bool close(double a, double b, double tolerance) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance * (1 + std::abs(b));
}
void check_close(const HTensor& actual, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = grid_values(actual);
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i << ": " << values[i] << ", expected " << expected[i]);
    CHECK(close(values[i], expected[i], tolerance));
  }
}

}  // namespace

TEST_CASE("every primitive of these families has a case and a formula") {
  std::set<std::string> covered;
  for (const PrimitiveCase& c : PrimitiveCases(1).cases) covered.insert(c.op);
  for (const OpRow& row : op_rows()) {
    if (!ours(row)) continue;
    INFO(row.name);
    CHECK(covered.count(std::string(row.name)) == 1);
    CHECK(formulas().count(std::string(row.name)) == 1);
  }
}

TEST_CASE("gradients of primitives agree with finite differences") {
  for (uint64_t seed = 1; seed <= kPrimitiveSeeds; ++seed)
    for (const PrimitiveCase& c : PrimitiveCases(seed).cases) {
      if (!find_op(c.op)->gradient) continue;
      INFO("seed " << seed << ": " << c.str());
      check_gradient([&](const Values& in) { return apply(c.op, c.attributes, in); }, c.inputs);
    }
}

TEST_CASE("results of primitives agree with plain loops") {
  for (const DType dtype : {DType::F64, DType::F32})
    for (uint64_t seed = 1; seed <= 2 * kPrimitiveSeeds; ++seed)
      for (const PrimitiveCase& c : PrimitiveCases(seed).cases) {
        INFO("seed " << seed << ": " << c.str());
        Values inputs;
        Grids in, out;
        for (const HTensor& x : c.inputs) {
          inputs.push_back(x.dtype() == DType::F64 ? cast(x, dtype) : x);
          in.emplace_back(inputs.back());
        }
        const Values results = apply(c.op, c.attributes, inputs);
        for (const HTensor& y : results) out.emplace_back(y.shape().vector(), NAN);
        formulas().at(c.op)(c.attributes, in, out);
        for (size_t i = 0; i < results.size(); ++i)
          check_close(results[i], out[i].values, dtype == DType::F64 ? 1e-14 : 2e-6);
      }
}

TEST_CASE("reduce_prod: gradient with zeros among the factors") {
  const HTensor x = HTensor::from<double>({3, 3}, {1.5, 0, -2, 0, 0, 3, 2, 3, 4});
  for (const bool keep : {false, true})
    check_gradient([&](const Values& in) { return Values{reduce_prod(in[0], {1}, keep)}; }, {x});
}

TEST_CASE("gradients of gradients of contractions") {
  const HTensor a = testing::random_tensor({2, 3, 4}, 1), b = testing::random_tensor({4, 2, 5}, 2);
  const auto gradients = [](const Values& in) {
    const HTensor y = dot(in[0], in[1], {2}, {0}, {0}, {1});
    return gradient(*Tracer::current(), reduce_sum(y * y, {0, 1, 2}), {in[0], in[1]});
  };
  Tracer tracer("gradients");
  const Values traced{tracer.input("0", type_of(a)), tracer.input("1", type_of(b))}, first = gradients(traced);
  const HTensor sum = reduce_sum(first[0] * first[0], {0, 1, 2}) + reduce_sum(first[1] * first[1], {0, 1, 2});
  const Values second = gradient(tracer, sum, traced);
  tracer.output("value", sum);
  tracer.output("gradient", second[0]);
  const Program program = tracer.take();
  const auto value_at = [&](double by) {
    HTensor moved = a;
    moved.mutable_data<double>()[5] += by;
    return interpret(program, {{"0", moved}, {"1", b}})[0].item<double>();
  };
  const double expected = (value_at(1e-5) - value_at(-1e-5)) / 2e-5;
  CHECK(grid_values(interpret(program, {{"0", a}, {"1", b}})[1])[5] == Approx(expected).epsilon(1e-7));
}

namespace {

class Golden {
 public:
  Golden()
      : file_(read_safetensors(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/primitives.safetensors")) {}
  const std::map<std::string, std::string>& cases() const { return file_.metadata; }

  AttributeMap attributes(const std::string& name) const {
    AttributeMap a;
    const std::string prefix = name + "/attribute/";
    for (auto at = file_.tensors.lower_bound(prefix); at != file_.tensors.end() && at->first.starts_with(prefix); ++at)
      a.set(at->first.substr(prefix.size()), attribute(at->second));
    return a;
  }
  const HTensor* find(const std::string& name, const std::string& part, size_t i) const {
    const auto at = file_.tensors.find(name + "/" + part + std::to_string(i));
    return at == file_.tensors.end() ? nullptr : &at->second;
  }
  Values inputs(const std::string& name, DType dtype) const {
    Values in;
    while (const HTensor* x = find(name, "in", in.size()))
      in.push_back(x->dtype() == DType::F64 ? cast(*x, dtype) : *x);
    return in;
  }

 private:
  static AttributeValue attribute(const HTensor& x) {
    if (x.dtype() == DType::Bool) return x.item<bool>();
    if (x.dtype() == DType::F64) return x.item<double>();
    if (x.dtype() == DType::U8) return std::string(x.data<uint8_t>(), x.data<uint8_t>() + x.size());
    if (x.rank() == 0) return x.item<int64_t>();
    // An empty list is stored as an empty tensor.
    return std::vector<int64_t>(x.data<int64_t>(), x.data<int64_t>() + x.size());
  }
  TensorFile file_;
};

}  // namespace

TEST_CASE("results of primitives agree with PyTorch") {
  const Golden golden;
  REQUIRE(golden.cases().size() == 66);
  for (const DType dtype : {DType::F64, DType::F32})
    for (const auto& [name, op] : golden.cases()) {
      INFO(op << ", " << name << ", " << dtype_name(dtype));
      const Values results = apply(op, golden.attributes(name), golden.inputs(name, dtype));
      for (size_t i = 0; i < results.size(); ++i) {
        const HTensor* expected = golden.find(name, "out", i);
        REQUIRE(expected);
        CHECK(results[i].shape() == expected->shape());
        check_close(results[i], grid_values(*expected), dtype == DType::F64 ? 1e-14 : 2e-6);
      }
    }
}

TEST_CASE("gradients of primitives agree with PyTorch") {
  const Golden golden;
  for (const DType dtype : {DType::F64, DType::F32})
    for (const auto& [name, op] : golden.cases()) {
      const HTensor* upstream = golden.find(name, "dout", 0);
      if (!upstream) continue;
      INFO(op << ", " << name << ", " << dtype_name(dtype));
      const Values in = golden.inputs(name, dtype);
      Tracer tracer("golden");
      Values traced, wrt;
      std::vector<const HTensor*> expected;
      std::map<std::string, HTensor> leaves;
      for (size_t i = 0; i < in.size(); ++i) {
        leaves[std::to_string(i)] = in[i];
        traced.push_back(tracer.input(std::to_string(i), type_of(in[i])));
        if (!golden.find(name, "din", i)) continue;
        expected.push_back(golden.find(name, "din", i));
        wrt.push_back(traced.back());
      }
      const HTensor y = apply(op, golden.attributes(name), traced).at(0);
      const Values gradients = gradient(tracer, reduce_sum(y * cast(*upstream, dtype), axes_from(y, 0)), wrt);
      for (size_t i = 0; i < gradients.size(); ++i) tracer.output(std::to_string(i), gradients[i]);
      const Values found = interpret(tracer.take(), leaves);
      REQUIRE_FALSE(found.empty());
      for (size_t i = 0; i < found.size(); ++i)
        check_close(found[i], grid_values(*expected[i]), dtype == DType::F64 ? 1e-13 : 1e-5);
    }
}
