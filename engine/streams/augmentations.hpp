// The option augment=: built-in and plugin steps, applied in the order written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Returns whether `name` is a step of <harmonics/augment.hpp>.
bool is_builtin_augmentation(const std::string& name);

struct Augmented {
  std::shared_ptr<Producer> producer;
  std::vector<std::function<void(uint64_t seed)>> reseed;  // set the seed of random steps
};

// Wraps `producer` in steps such as "shift(2),mine(0.5),noise(0.05)". Throws ErrorKind::Usage for invalid steps.
Augmented augment(std::shared_ptr<Producer> producer, const std::string& text, Registry& registry);

}  // namespace harmonics::engine
