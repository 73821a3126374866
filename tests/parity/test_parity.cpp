// Every functional against PyTorch, forward and backward.
#include <catch2/catch.hpp>

#include <set>

#include "backends.hpp"
#include "engine/program/gradient.hpp"
#include "golden.hpp"

using namespace harmonics;
using namespace harmonics::parity;

namespace {

// torch.testing.assert_close's own; in f64 tighter, for both sides compute in double.
constexpr Tolerance kDouble{1e-12, 1e-11};
constexpr Tolerance kFloat{1e-5, 1.3e-6};

std::vector<HTensor> numbered(const std::map<std::string, HTensor>& tensors, const std::string& prefix) {
  std::vector<HTensor> found;
  for (size_t i = 0; tensors.count(prefix + std::to_string(i)); ++i)
    found.push_back(tensors.at(prefix + std::to_string(i)));
  return found;
}

// out0 ... and, where gradients are stored, din0 ... of one case as a program: inputs in0 ... and dout0 ...
Program case_program(const GoldenCase& c, const std::map<std::string, HTensor>& stored, DType dtype) {
  Tracer tracer(c.name);
  const auto input = [&](const std::string& name) {
    return tracer.input(name, type_of(in_type(stored.at(name), dtype)));
  };
  Values in, wrt;
  std::vector<std::string> wanted;
  for (size_t i = 0; i < numbered(stored, "in").size(); ++i) {
    in.push_back(input("in" + std::to_string(i)));
    if (!stored.count("din" + std::to_string(i))) continue;
    wrt.push_back(in.back());
    wanted.push_back("din" + std::to_string(i));
  }
  const Values results = apply(c.functional, c.attributes, in);
  HTensor sum;
  for (size_t i = 0; i < results.size(); ++i) {
    tracer.output("out" + std::to_string(i), results[i]);
    if (!stored.count("dout" + std::to_string(i))) continue;
    const HTensor weighted = results[i] * input("dout" + std::to_string(i));
    const HTensor part = reduce_sum(weighted, axes_from(weighted, 0));
    sum = sum ? sum + part : part;
  }
  if (wrt.empty()) return tracer.take();
  const Values slopes = gradient(tracer, sum, wrt);
  for (size_t i = 0; i < slopes.size(); ++i) tracer.output(wanted[i], slopes[i]);
  return tracer.take();
}

const char* const kFiles[] = {"functionals.safetensors", "layers.safetensors"};

void check_cases(const TensorFile& file, const std::string& backend, DType dtype, const Tolerance& tolerance) {
  for (const GoldenCase& c : golden_cases(file)) {
    const auto stored = below(file, c.name);
    Leaves inputs;
    for (const auto& [name, value] : stored)
      if (name.rfind("in", 0) == 0 || name.rfind("dout", 0) == 0) inputs[name] = in_type(value, dtype);
    const auto found = make_runner(backend, case_program(c, stored, dtype), {})->step(inputs);
    size_t compared = 0;
    for (const auto& [name, expected] : stored) {
      if (inputs.count(name)) continue;
      INFO(backend << " " << dtype_name(dtype) << ": " << c.name << "/" << name);
      CHECK(difference(found.at(name), expected, tolerance) == "");
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
  for (const auto& [name, text] : golden("optimizers.safetensors").metadata) {  // whole runs: test_optimizers.cpp
    if (name.rfind("run/", 0) != 0) continue;
    const boost::json::object run = boost::json::parse(text).as_object();
    const std::string optimizer(run.at("optimizer").as_string());
    covered.insert(optimizer.substr(0, optimizer.find('(')));
    if (run.contains("clip")) covered.insert("global_norm");
  }
  for (const FunctionalPtr& functional : FunctionalTable::global().all()) {
    const bool is_gradient = functional->name.find("_grad") != std::string::npos;
    INFO("add a case to make_golden.py or make_layers.py for " << functional->name);
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
