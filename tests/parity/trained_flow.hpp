// Trains flows with a model on samples in memory: losses of steps and gradients, for comparison with other programs.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/runtime/memory_streams.hpp"

namespace harmonics::engine::parity {

namespace memory = harmonics::engine::testing;

inline std::vector<int32_t> whole_numbers_of(const HTensor& x) {
  return {x.data<int32_t>(), x.data<int32_t>() + x.size()};
}

// Returns the losses of steps, each with all samples, of which there are `rows`.
inline std::vector<double> losses_of(BoundGraph& g, const std::string& optimizer, int64_t rows, int64_t steps) {
  RunSettings s = memory::settings(rows);
  s.optimizer = optimizer;
  s.epochs = steps;
  s.shuffle = false;
  std::vector<double> losses;
  for (const auto& epoch : CycleRuntime(g, 0, s).run().by_epoch) losses.push_back(epoch.loss);
  return losses;
}

// Returns the weights before a step of SGD with learning rate 1, minus those after it.
inline std::map<std::string, std::vector<float>> gradients_of(BoundGraph& g, int64_t rows) {
  memory::declare(g, "sgd(lr=1)");
  std::map<std::string, std::vector<float>> all;
  for (const auto& [name, t] : g.store().all())
    if (t.role == Role::weight) all[name] = memory::weights(g, name);
  losses_of(g, "sgd(lr=1)", rows, 1);
  for (auto& [name, values] : all) {
    const std::vector<float> after = memory::weights(g, name);
    for (size_t i = 0; i < values.size(); ++i) values[i] -= after[i];
  }
  return all;
}

// Returns the largest difference, relative to the largest expected value.
inline double worst_of(const std::vector<float>& found, const HTensor& expected) {
  REQUIRE(static_cast<int64_t>(found.size()) == expected.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double want = expected.data<float>()[i];
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - want));
    largest = std::max(largest, std::abs(want));
  }
  return worst / largest;
}

}  // namespace harmonics::engine::parity
