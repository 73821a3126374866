// Measured peaks of a device with its own memory.
#pragma once

#include <memory>

#include "engine/execution/executable.hpp"
#include "engine/execution/machine.hpp"

namespace harmonics::engine {

// Devices that are the processor get the processor's peaks. For others, peak arithmetic is the rate of the device's own
// matrix product kernel on large matrices, since no API reports it; bandwidth is the rate of copies, read plus write.
std::unique_ptr<MachinePeaks> make_peaks(const DeviceSettings& device, Registry& registry, int threads);

}  // namespace harmonics::engine
