// What a device with memory of its own can do at most, as far as it can be seen from here.
#pragma once

#include <memory>

#include "engine/execution/executable.hpp"
#include "engine/execution/machine.hpp"

namespace harmonics {

// The processor's for devices that compute on it. Of others: arithmetic is what the device's own kernel for products reaches on large
// matrices, since nobody can ask it for its peak; memory is read and written at the rate of its copies.
std::unique_ptr<Yardsticks> make_yardsticks(const DeviceSettings& device, Registry& registry, int threads);

}  // namespace harmonics
