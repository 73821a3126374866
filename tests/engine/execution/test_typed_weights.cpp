// Programs with weights of 16-bit floats and stored types on the CPU device.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include <harmonics/ops.hpp>

#include "engine/model/parameter_store.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"
#include "tests/engine/execution/compiled.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

HTensor waves(const Shape& shape, float step) {
  HTensor x(DType::F32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.mutable_data<float>()[i] = std::sin(step * static_cast<float>(i));
  return x;
}

double largest_difference(const HTensor& a, const HTensor& b) {
  REQUIRE(type_of(a) == type_of(b));
  double most = 0;
  for (int64_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a.data<float>()[i]) - static_cast<double>(b.data<float>()[i])));
  return most;
}

bool has_kernel(const Executable& plan, const std::string& name) {
  const auto steps = plan.steps();
  return std::any_of(steps.begin(), steps.end(), [&](const PlanStep& s) { return s.kernel == name; });
}

}  // namespace

TEST_CASE("typed weights: a program on the CPU reads them where they lie") {
  const auto executor = make_sequential_executor();
  for (const DType type : {DType::Q8_0, DType::Q4_0, DType::BF16, DType::F16}) {
    const std::string name(dtype_name(type));
    CAPTURE(name);
    Tracer tracer("test");
    const HTensor ids = tracer.input("ids", {DType::I64, {3}}), table = tracer.parameter("table", {type, {10, 64}}),
                  w = tracer.parameter("w", {type, {80, 64}}), bias = tracer.parameter("bias", {DType::F32, {80}});
    tracer.output("y", relu(call1("linear", {cast(call1("embedding", {table, ids}), DType::F32), w, bias})));
    const Program program = tracer.take();
    const std::map<std::string, HTensor> numbers{{"ids", HTensor::from<int64_t>({3}, {7, 0, 9})},
                                                 {"table", cast(waves({10, 64}, 0.3f), type)},
                                                 {"w", cast(waves({80, 64}, 0.7f), type)},
                                                 {"bias", waves({80}, 1.1f)}};
    ParameterStore store;
    for (const char* parameter : {"table", "w", "bias"})
      store.adopt(parameter, numbers.at(parameter), nullptr, Role::frozen, {HX_INIT_CONSTANT, 0, 0});
    const auto plan = compile(program, &store, *executor, on("cpu"));
    CHECK(has_kernel(*plan, name + " weights"));
    if (is_stored(type)) CHECK(has_kernel(*plan, name + " rows"));
    plan->run(input_pointers(*plan, numbers).data());
    CHECK(largest_difference(plan->output("y"), interpret(program, numbers)[0]) < 1e-4);
  }
}

TEST_CASE("typed weights: training in front of a frozen weight of a stored type") {
  Tracer tracer("test");
  const HTensor x = tracer.input("x", {DType::F32, {5, 24}}), a = tracer.parameter("a", {DType::F32, {64, 24}}),
                frozen = tracer.parameter("frozen", {DType::Q8_0, {48, 64}}),
                loss = reduce_sum(tanh(call1("linear", {call1("linear", {x, a}), frozen})), {0, 1});
  tracer.output("da", gradient(tracer, loss, {a})[0]);
  const Program program = tracer.take();
  const std::map<std::string, HTensor> numbers{
      {"x", waves({5, 24}, 0.4f)}, {"a", waves({64, 24}, 0.9f)}, {"frozen", cast(waves({48, 64}, 0.6f), DType::Q8_0)}};
  const auto executor = make_sequential_executor();
  const HTensor expected = interpret(program, numbers)[0];
  for (const char* device : {"cpu", "reference"}) {
    const HTensor found = run_compiled(program, numbers, *executor, on(device))[0];
    CHECK(largest_difference(found, expected) < 1e-3);
  }
}
