// augment=...: the library's own steps and those of plugins, in the order they are written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

#include "engine/plugin/registry.hpp"

namespace harmonics {

// Is it one of the steps of <harmonics/augment.hpp>?
bool is_own_augmentation(const std::string& name);

struct Augmented {
  std::shared_ptr<Producer> producer;
  std::vector<std::function<void(uint64_t seed)>> reseed;  // another seed draws other numbers
};

// `producer` behind the steps of "shift(2),mine(0.5),noise(0.05)". ErrorKind::Usage where they make no sense.
Augmented augment(std::shared_ptr<Producer> producer, const std::string& text, Registry& registry);

}  // namespace harmonics
