// Compares every functional with PyTorch, forward and backward.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "backends.hpp"
#include "case_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::parity;

namespace {

// The tolerances of torch.testing.assert_close; tighter for f64, since both sides compute in double.
constexpr Tolerance kDouble{1e-12, 1e-11};
constexpr Tolerance kFloat{1e-5, 1.3e-6};

const char* const kFiles[] = {"functionals.safetensors", "layers.safetensors",  "updates.safetensors",
                              "sequences.safetensors",   "experts.safetensors", "fused.safetensors"};

// Cases with less exact values: PyTorch's bound is a float32 1e-12, an offset of 10,000 costs that many digits in
// double, and gradients of large scores are sums of multiples of 256 that cancel.
Tolerance tolerance_of(const GoldenCase& c, Tolerance t) {
  const auto is = [&](const char* mark) { return c.name.find(mark) != std::string::npos; };
  if (is("/bounds")) t.relative = std::max(t.relative, 1e-8);
  if (is("/offset")) t.absolute = std::max(t.absolute, 1e-11);
  if (is("/far")) t.absolute *= 32;
  return t;
}

void check_cases(const TensorFile& file, const std::string& backend, DType dtype, const Tolerance& tolerance) {
  for (const GoldenCase& c : golden_cases(file)) {
    const auto stored = below(file, c.name);
    const Leaves inputs = case_inputs(stored, dtype);
    const auto found = make_runner(backend, case_program(c, stored, dtype), {})->step(inputs);
    size_t compared = 0;
    for (const auto& [name, expected] : stored) {
      if (inputs.count(name)) continue;
      INFO(backend << " " << dtype_name(dtype) << ": " << c.name << "/" << name);
      CHECK(difference(found.at(name), expected, tolerance_of(c, tolerance)) == "");
      ++compared;
    }
    CHECK(compared > 0);
  }
}

void check_cases(const std::string& backend, DType dtype, const Tolerance& tolerance) {
  for (const char* name : kFiles) check_cases(golden(name), backend, dtype, tolerance);
}

}  // namespace

TEST_CASE("every functional that is not a gradient is compared with PyTorch") {
  std::set<std::string> covered;
  for (const char* name : kFiles)
    for (const GoldenCase& c : golden_cases(golden(name))) covered.insert(c.functional);
  for (const auto& [name, text] : golden("optimizers.safetensors").metadata) {  // whole runs, see test_optimizers.cpp
    if (name.rfind("run/", 0) != 0) continue;
    const boost::json::object run = boost::json::parse(text).as_object();
    const std::string optimizer(run.at("optimizer").as_string());
    covered.insert(optimizer.substr(0, optimizer.find('(')));
    if (run.contains("clip")) covered.insert("global_norm");
  }
  for (const FunctionalPtr& functional : FunctionalTable::global().all()) {
    const bool is_gradient = functional->name.find("_grad") != std::string::npos;
    INFO("add a case to make_golden.py, make_layers.py, make_sequences.py or make_experts.py for " << functional->name);
    CHECK((is_gradient || covered.count(functional->name) == 1));
  }
}

TEST_CASE("functionals and their gradients equal PyTorch's in double") {
  check_cases("interpreter", DType::F64, kDouble);
}

TEST_CASE("functionals and their gradients equal PyTorch's in single precision") {
  check_cases("interpreter", DType::F32, kFloat);
}

TEST_CASE("compiled functionals and their gradients equal PyTorch's") {
  check_cases("reference", DType::F64, kDouble);
  check_cases("cpu", DType::F32, kFloat);
}

TEST_CASE("attention: a query that sees one key has gradients of exactly 0 in q and k") {
  const TensorFile file = golden("functionals.safetensors");
  for (const char* name : {"attention/one_key", "attention/one_position", "attention/first_row"}) {
    const auto stored = below(file, name);
    const GoldenCase c = golden_case(file, name);
    for (const char* backend : {"interpreter", "reference", "cpu"}) {
      const auto found =
          make_runner(backend, case_program(c, stored, DType::F32), {})->step(case_inputs(stored, DType::F32));
      for (const char* gradient : {"din0", "din1"}) {
        INFO(backend << ": " << name << "/" << gradient);
        const HTensor &d = found.at(gradient), &meant = stored.at(gradient);
        int64_t zeros = 0;
        for (int64_t i = 0; i < d.size(); ++i) {
          if (meant.data<double>()[i] != 0) continue;
          ++zeros;
          CHECK(d.data<float>()[i] == 0);
        }
        CHECK((zeros > 0) == (std::string(gradient) == "din0" || std::string(name) != "attention/first_row"));
      }
    }
  }
}
