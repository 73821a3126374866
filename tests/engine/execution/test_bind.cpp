#include <catch2/catch.hpp>

#include "engine/execution/device_memory.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/engine/execution/training_program.hpp"
#include "tests/message_of.hpp"

namespace harmonics::engine::testing {

namespace {

// y = x W, sum += y. The result "sum" is stored in the state.
Program running_sum() {
  Tracer tracer("running");
  const HTensor x = tracer.input("x", {DType::F32, {2, 5}});
  const HTensor w = tracer.parameter("w", {DType::F32, {7, 5}});
  const HTensor sum = tracer.state("sum", {DType::F32, {2, 7}});
  const HTensor next = add(sum, apply("linear", {}, {x, w}).at(0));
  tracer.output("next", next);
  tracer.update("sum", next);
  return tracer.take();
}

std::vector<void*> bound_to(const Executable& plan, void* sum) {
  std::vector<void*> addresses;
  for (const BoundState& s : plan.states()) addresses.push_back(s.name == "sum" ? sum : nullptr);
  return addresses;
}

std::vector<float> elements(const HTensor& t) { return {t.data<float>(), t.data<float>() + t.size()}; }

}  // namespace

TEST_CASE("bind: one plan serves several sessions, as plans of their own would") {
  const Program program = running_sum();
  const HTensor w = noise({7, 5}, 1, 1.0f);
  for (const std::string device : {"cpu", "reference"})
    for (const auto& executor : parallel_executors()) {
      MapBinding shared({{"w", w}});
      const auto plan = compile(program, &shared, *executor, on(device));
      constexpr int kSessions = 3;
      std::vector<HTensor> sums;
      std::vector<std::unique_ptr<MapBinding>> own;
      std::vector<std::unique_ptr<Executable>> alone;
      for (int i = 0; i < kSessions; ++i) {
        sums.push_back(HTensor(DType::F32, {2, 7}));
        own.push_back(std::make_unique<MapBinding>(std::map<std::string, HTensor>{{"w", w}}));
        alone.push_back(compile(program, own.back().get(), *executor, on(device)));
      }
      for (int step = 0; step < 12; ++step) {
        const int i = (step * 7 + step / 4) % kSessions;
        const HTensor x = noise({2, 5}, 100 + static_cast<uint32_t>(step), 1.0f);
        const void* inputs[1] = {x.bytes()};
        plan->bind(bound_to(*plan, const_cast<void*>(sums[static_cast<size_t>(i)].bytes())));
        plan->run(inputs);
        alone[static_cast<size_t>(i)]->run(inputs);
        const auto expected = elements(alone[static_cast<size_t>(i)]->output("next"));
        CHECK(elements(plan->output("next")) == expected);
        CHECK(elements(sums[static_cast<size_t>(i)]) == expected);
      }
    }
}

TEST_CASE("bind: null is the memory that the plan was compiled with") {
  const auto executor = make_sequential_executor();
  MapBinding binding({{"w", noise({7, 5}, 1, 1.0f)}});
  const auto plan = compile(running_sum(), &binding, *executor, on("cpu"));
  const HTensor x = noise({2, 5}, 2, 1.0f), other(DType::F32, {2, 7});
  const void* inputs[1] = {x.bytes()};
  plan->run(inputs);
  const auto once = elements(binding.tensor("sum", {DType::F32, {2, 7}}));
  plan->bind(bound_to(*plan, const_cast<void*>(other.bytes())));
  plan->run(inputs);
  CHECK(elements(other) == once);
  CHECK(elements(binding.tensor("sum", {DType::F32, {2, 7}})) == once);
  plan->bind(bound_to(*plan, nullptr));
  plan->run(inputs);
  CHECK(elements(binding.tensor("sum", {DType::F32, {2, 7}})) != once);
  CHECK(elements(other) == once);
}

TEST_CASE("bind: one plan in a device's own memory serves more sessions than it has recordings for") {
  Registry registry;
  add_fake_accelerator(registry, "fake");
  CompileOptions options = on("fake");
  options.registry = &registry;
  const Program program = running_sum();
  const HTensor w = noise({7, 5}, 1, 1.0f);
  const auto executor = make_sequential_executor();
  MapBinding shared({{"w", w}});
  const auto plan = compile(program, &shared, *executor, options);
  REQUIRE(plan->queue());
  constexpr size_t kSessions = 10;
  const size_t bytes = 2 * 7 * sizeof(float);
  std::vector<std::shared_ptr<Storage>> sums;
  std::vector<std::shared_ptr<DeviceTensor>> mirrors;
  std::vector<std::unique_ptr<MapBinding>> own;
  std::vector<std::unique_ptr<Executable>> alone;
  for (size_t i = 0; i < kSessions; ++i) {
    sums.push_back(std::make_shared<Storage>(bytes));
    mirrors.push_back(std::make_shared<DeviceTensor>(plan->queue(), sums.back()->data(), bytes));
    own.push_back(std::make_unique<MapBinding>(std::map<std::string, HTensor>{{"w", w}}));
    alone.push_back(compile(program, own.back().get(), *executor, on("cpu")));
  }
  for (size_t step = 0; step < 4 * kSessions; ++step) {
    const size_t i = step < kSessions ? step : (step * 7 + step / 4) % kSessions;
    const HTensor x = noise({2, 5}, 100 + static_cast<uint32_t>(step), 1.0f);
    const void* inputs[1] = {x.bytes()};
    std::vector<std::shared_ptr<DeviceTensor>> tensors;
    for (const BoundState& s : plan->states()) tensors.push_back(s.name == "sum" ? mirrors[i] : nullptr);
    plan->bind(tensors);
    plan->run(inputs);
    alone[i]->run(inputs);
    CHECK(elements(plan->output("next")) == elements(alone[i]->output("next")));
  }
  for (size_t i = 0; i < kSessions; ++i) {
    mirrors[i]->fetch();
    const auto* sum = static_cast<const float*>(sums[i]->data());
    CHECK(std::vector<float>(sum, sum + 14) == elements(alone[i]->output("next")));
  }
  CHECK(message_of([&] { plan->bind(std::vector<std::shared_ptr<DeviceTensor>>{}); }).find("0 tensors were given") !=
        std::string::npos);
  const auto host = compile(program, &shared, *executor, on("cpu"));
  CHECK(message_of([&] { host->bind(std::vector<std::shared_ptr<DeviceTensor>>(2)); }) ==
        "program 'running' runs in host memory, and cannot be bound to a device's");
}

TEST_CASE("bind: a wrong number of addresses is refused") {
  const auto executor = make_sequential_executor();
  MapBinding binding({{"w", noise({7, 5}, 1, 1.0f)}});
  const auto plan = compile(running_sum(), &binding, *executor, on("cpu"));
  REQUIRE(plan->states().size() == 2);
  CHECK_THROWS_WITH(plan->bind(std::vector<void*>{nullptr}),
                    "program 'running' has 2 parameters and states, 1 addresses were given");
}

}  // namespace harmonics::engine::testing
