// Gradients and updates of a training step: gradients of a weight and its bias together, all optimizer updates in few
// launches, the global norm.
#include <cmath>

#include "kernels/cuda/lt.hpp"
#include "tests/cuda/emulated_device.hpp"
#include "tests/engine/execution/arriving.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::cuda;
using namespace harmonics::cuda::testing;

namespace {

std::map<std::string, HTensor> trained_by_updates(const harmonics::engine::testing::TrainingStep& step,
                                                  Executor& executor, const CompileOptions& options,
                                                  size_t* updates = nullptr) {
  ParameterStore store;
  harmonics::engine::testing::declare(store, step);
  const auto plan = compile(step.program, &store, executor, options);
  for (const PlanStep& s : plan->steps()) {
    INFO(s.what);
    CHECK((s.what != "store" && s.what != "keep"));  // updates are in place
    if (updates && s.kernel.find("update") != std::string::npos) {
      ++*updates;
      CHECK(s.in_place);
    }
  }
  const auto inputs = harmonics::engine::testing::input_pointers(*plan, step.numbers);
  for (int i = 0; i < 3; ++i) plan->run(inputs.data());
  return harmonics::engine::testing::all_of(store);
}

}  // namespace

TEST_CASE("cuda update_all: one kernel, in place, same bits as single steps") {
  const FreshSettings fresh;
  EmulatedDevice with;
  for (const char* optimizer : {"adamw", "sgd"}) {
    INFO(optimizer);
    const auto step = harmonics::engine::testing::training_step(8, {24, 40, 33, 10}, optimizer);
    size_t joined = 0, single = 0;
    const auto together = trained_by_updates(step, *with.executor, with.options(), &joined);
    const auto apart = trained_by_updates(step, *with.executor, with.options({"join_updates"}), &single);
    CHECK(joined == 1);
    CHECK(single == 6);
    CHECK(harmonics::engine::testing::same(together, apart));
  }
}

TEST_CASE("cuda update_all: many tensors take several launches") {
  const FreshSettings fresh;
  Machine own{open_driver(), open_compiler()};
  for (const uint32_t tensors : {1u, kMostTensors, kMostTensors + 1, 3 * kMostTensors}) {
    INFO(tensors);
    std::vector<Buffer> inputs;
    double squares = 0;
    for (uint32_t i = 0; i < tensors; ++i) {
      inputs.push_back(numbers({1 + static_cast<int64_t>(i) * 701 % 9001}, i));
      for (const float x : inputs.back().numbers) squares += static_cast<double>(x) * x;
    }
    DeviceCall norm("global_norm", {}, inputs, {});
    REQUIRE(norm.plan(own) == "global norm");
    emulated::settings().launches = 0;
    CHECK(norm.run().at(0) == Approx(std::sqrt(squares)));
    CHECK(emulated::settings().launches == 1 + static_cast<int>((tensors + kMostTensors - 1) / kMostTensors));
  }
}

TEST_CASE("cuda update_all: declines with a reason") {
  const FreshSettings fresh;
  Machine own{open_driver(), open_compiler()};
  const auto why = [&](const char* update, int64_t parameters, std::vector<Buffer> inputs) {
    DeviceCall c("update_all", AttributeMap().set("update", std::string(update)).set("parameters", parameters),
                 std::move(inputs), {5});
    CHECK(c.plan(own).empty());
    return std::string(harmonics_api()->last_error(nullptr));
  };
  const Buffer w = numbers({5}, 1), lr = numbers({}, 2), other = numbers({4}, 3);
  CHECK(why("lamb", 2, {w, w, w, w, lr}) == "takes steps of lamb one by one");
  CHECK(why("sgd", 2, {w, w, w, lr}) == "other operands than it knows");
  CHECK(why("sgd", 0, {lr}) == "other operands than it knows");
  CHECK(why("sgd", 1, {w, other, lr}) == "updates f32");
}

TEST_CASE("cuda dot_sum: gradients of weight and bias in one product") {
  const FreshSettings fresh;
  EmulatedDevice with;
  const auto step = harmonics::engine::testing::training_step(8, {24, 40, 33, 10});
  const auto kernels = [&](const CompileOptions& options) {
    ParameterStore store;
    harmonics::engine::testing::declare(store, step);
    std::map<std::string, size_t> n;
    const auto plan = compile(step.program, &store, *with.executor, options);
    for (const PlanStep& s : plan->steps()) {
      ++n[s.kernel];
      if (s.what.ends_with("reduce_sum")) ++n["sums"];  // including those of a chain
    }
    return n;
  };
  auto joined = kernels(with.options()), apart = kernels(with.options({"sum_with_products"}));
  CHECK(joined["cuBLASLt product and sum"] == 3);
  CHECK(apart["cuBLASLt product and sum"] == 0);
  CHECK(apart["sums"] == joined["sums"] + 3);
  const auto given = trained_by_updates(step, *with.executor, with.options()),
             meant = trained_by_updates(step, *with.executor, with.options({"sum_with_products"}));
  for (const auto& [name, tensor] : meant) {
    INFO(name);
    for (int64_t i = 0; i < tensor.size(); ++i)
      REQUIRE(given.at(name).data<float>()[i] == Approx(tensor.data<float>()[i]).margin(1e-5));
  }
  emulated::settings().has_lt = false;
  EmulatedDevice without;
  CHECK(kernels(without.options())["cuBLASLt product and sum"] == 0);  // our own tiles do not sum
}

TEST_CASE("cuda dot_sum: sums of either operand, by cuBLASLt and in small tiles") {
  const FreshSettings fresh;
  for (const bool small : {false, true})
    for (const int64_t which : {0, 1}) {
      emulated::settings().units = small ? 132 : 1;
      Machine own{open_driver(), open_compiler()};
      AttributeMap attributes = AttributeMap()
                                    .set("lhs_contract", std::vector<int64_t>{0})
                                    .set("rhs_contract", std::vector<int64_t>{0})
                                    .set("sum", which);
      const int64_t terms = small ? 300 : 6, rows = small ? 37 : 5, columns = small ? 43 : 4;
      const Buffer a = numbers({terms, rows}, 1), b = numbers({terms, columns}, 2);
      const Buffer& summed = which == 0 ? a : b;
      const int64_t n = summed.type.dims[1];
      DeviceCall call("dot_sum", attributes, {a, b}, {rows, columns});
      call.second({n});
      REQUIRE(call.plan(own) == (small ? "product and sum in small tiles" : "cuBLASLt product and sum"));
      const std::vector<float> product = call.run();
      if (!small) CHECK(emulated::settings().last_epilogue == (which == 0 ? lt::kSumOfB : lt::kSumOfA));
      for (int64_t i = 0; i < rows * columns; ++i) {
        double sum = 0;
        for (int64_t r = 0; r < terms; ++r)
          sum += static_cast<double>(a.numbers[static_cast<size_t>(r * rows + i / columns)]) *
                 static_cast<double>(b.numbers[static_cast<size_t>(r * columns + i % columns)]);
        REQUIRE(product[static_cast<size_t>(i)] == Approx(sum).margin(1e-4));
      }
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t r = 0; r < terms; ++r) sum += summed.numbers[static_cast<size_t>(r * n + i)];
        CHECK(call.second_result().at(static_cast<size_t>(i)) == Approx(sum).margin(1e-5));
      }
    }
}
