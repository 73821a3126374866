// join_updates: a single call for equal optimizer updates of many parameters, bitwise equal.
#include <catch2/catch.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/interpret.hpp"
#include "tests/engine/execution/training_program.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

size_t calls_of(const Program& program, const std::string& callee) {
  size_t n = 0;
  for (const Node& node : program.nodes) n += node.op == Op::call && node.callee == callee;
  return n;
}

Program joined_updates(const Program& program) {
  return join_updates(program, [](const auto&...) { return true; });
}

// Parameters p0, p1, ... of two elements each, updated by sgd with these settings.
struct Steps {
  Tracer tracer{"steps"};
  std::map<std::string, HTensor> numbers;
  HTensor rate = input("lr", {}, 0.5f), g = input("g", {2}, 3.0f);
  std::vector<HTensor> results;

  HTensor input(const std::string& name, const Shape& shape, float value) {
    numbers[name] = HTensor::from(shape, std::vector<float>(static_cast<size_t>(shape.count()), value));
    return tracer.input(name, {DType::F32, shape});
  }
  void step(const Attributes& settings, const HTensor& lr) {
    const std::string name = "p" + std::to_string(results.size());
    numbers[name] = HTensor::from<float>({2}, {1.0f + static_cast<float>(results.size()), -2});
    const TraceScope scope({name, Phase::optimizer});
    results.push_back(call("sgd", {tracer.parameter(name, {DType::F32, {2}}), g, lr}, settings)[0]);
    tracer.update(name, results.back());
  }
};

}  // namespace

TEST_CASE("join_updates: all parameters in one call, same bits") {
  for (const char* optimizer : {"adamw", "sgd"}) {
    INFO(optimizer);
    const TrainingStep step = training_step(6, {5, 7, 4, 3}, optimizer);
    const Program together = joined_updates(step.program);
    CHECK(calls_of(step.program, optimizer) == 6);
    CHECK(calls_of(together, optimizer) == 0);
    REQUIRE(calls_of(together, "update_all") == 1);
    for (const Node& node : together.nodes)
      if (node.callee == "update_all") CHECK_FALSE(is_forward(together, node));
    CHECK(same_bits(interpret(together, step.numbers), interpret(step.program, step.numbers)));
  }
}

TEST_CASE("join_updates: different settings or rates are separate, single updates unchanged") {
  Steps s;
  const HTensor other = s.input("other", {}, 0.25f);
  const Attributes plain, decayed = Attributes().set("weight_decay", 0.5);
  for (int i = 0; i < 2; ++i) {
    s.step(plain, s.rate);
    s.step(decayed, s.rate);
  }
  s.step(plain, other);
  const Program program = s.tracer.take(), together = joined_updates(program);
  CHECK(calls_of(together, "update_all") == 2);
  CHECK(calls_of(together, "sgd") == 1);
  CHECK(same_bits(interpret(together, s.numbers), interpret(program, s.numbers)));
}

TEST_CASE("join_updates: an update with readers is not moved") {
  Steps s;
  for (int i = 0; i < 3; ++i) s.step({}, s.rate);
  s.tracer.output("new", s.results[0]);
  const Program program = s.tracer.take(), together = joined_updates(program);
  CHECK(calls_of(together, "update_all") == 1);
  CHECK(calls_of(together, "sgd") == 1);
  CHECK(same_bits(interpret(together, s.numbers), interpret(program, s.numbers)));
}

TEST_CASE("join_updates: unchanged if the device declines") {
  Steps s;
  for (int i = 0; i < 3; ++i) s.step({}, s.rate);
  const Program program = s.tracer.take();
  std::vector<TensorType> asked;
  AttributeMap how;
  const Program same = join_updates(program, [&](const std::string& callee, const AttributeMap& attributes,
                                                 const std::vector<TensorType>& types, Rounding) {
    CHECK(callee == "update_all");
    how = attributes;
    asked = types;
    return false;
  });
  CHECK(calls_of(same, "sgd") == 3);
  CHECK(asked.size() == 3 * 2 + 1);
  CHECK(how.text("update") == "sgd");
  CHECK(how.integer("parameters") == 3);
}

TEST_CASE("update_all: errors name the problem") {
  const HTensor w = HTensor::from<float>({2}, {1, 2}), lr = HTensor::scalar(0.5f);
  const auto with = [&](const char* update, int64_t parameters) {
    return message_of([&] {
      call("update_all", {w, w, w, w, lr}, Attributes().set("update", update).set("parameters", parameters));
    });
  };
  CHECK(with("relu", 2).find("'relu' is not an optimizer's step of one parameter") != std::string::npos);
  CHECK(with("sgd", 3).find("4 tensors do not belong to 3 parameters") != std::string::npos);
  CHECK(with("sgd", 0).find("parameters is 0; give ") != std::string::npos);
}
