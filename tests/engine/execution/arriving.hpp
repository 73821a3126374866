// A training step with a new batch each time: from host memory, or through InputPrefetch, which starts the next batch
// while a step runs.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>

#include "engine/execution/input_prefetch.hpp"
#include "engine/model/parameter_store.hpp"
#include "tests/engine/execution/training_program.hpp"

namespace harmonics::engine::testing {

// Declares weights and moments in a store, as graphs do.
inline void declare(ParameterStore& store, const TrainingStep& step) {
  for (const Op op : {Op::parameter, Op::state})
    for (const Node* leaf : step.program.leaves(op)) {
      store.declare(leaf->callee, step.program.type(leaf->outputs[0]), Role::weight, hx_init{}, 0);
      store.assign(leaf->callee, step.numbers.at(leaf->callee));
    }
}

inline std::map<std::string, HTensor> all_of(const ParameterStore& store) {
  std::map<std::string, HTensor> result;
  for (const auto& [name, t] : store.all()) result[name] = copy_of(store.tensor(name));
  return result;
}

inline bool same(const std::map<std::string, HTensor>& a, const std::map<std::string, HTensor>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && same_bits(x.second, y.second);
         });
}

// Returns the weights after `steps` steps.
inline std::map<std::string, HTensor> trained_on_batches(const TrainingStep& step, int steps, Executor& executor,
                                                         const CompileOptions& options, bool arriving) {
  constexpr size_t kBatches = 3;
  ParameterStore store;
  declare(store, step);
  const auto plan = compile(step.program, &store, executor, options);
  auto inputs = input_pointers(*plan, step.numbers);
  const auto at = static_cast<size_t>(std::find(plan->input_names().begin(), plan->input_names().end(), "x") -
                                      plan->input_names().begin());
  const float* loss = plan->output("loss").data<float>();
  const uint64_t bytes = plan->input_type(at).bytes();
  std::vector<std::byte> own(bytes);
  const ItemPtr device = (options.registry ? options.registry : &Registry::global())->need(HX_DEVICE, options.device);
  const auto prefetch = arriving ? InputPrefetch::open(device, store.queue_on(device), {bytes}, kBatches) : nullptr;
  if (arriving) REQUIRE(prefetch);
  const auto send = [&](int i) {
    if (prefetch) prefetch->renew(static_cast<size_t>(i) % kBatches);
    void* to = prefetch ? prefetch->host(static_cast<size_t>(i) % kBatches, 0) : own.data();
    std::memcpy(to, noise(plan->input_type(at).shape, static_cast<uint32_t>(100 + i), 1.0f).bytes(), bytes);
    if (prefetch) prefetch->start(static_cast<size_t>(i) % kBatches, {bytes});
  };
  send(0);
  for (int i = 0; i < steps; ++i) {
    inputs[at] = prefetch ? prefetch->host(static_cast<size_t>(i) % kBatches, 0) : own.data();
    REQUIRE(plan->run_if_finite(inputs.data(), loss));
    if (i + 1 < steps) send(i + 1);
  }
  return all_of(store);
}

}  // namespace harmonics::engine::testing
