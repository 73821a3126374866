// Measured peak rates of a device with its own memory.
#pragma once

#include <memory>

#include "engine/execution/executable.hpp"
#include "engine/execution/machine.hpp"

namespace harmonics::engine {

// Returns the peaks of a device. For devices that compute on the processor these are the processor's. For others, peak
// arithmetic is the rate of the device's matrix product kernel on large matrices, because no API reports it; bandwidth
// is the rate of copies, read plus write.
std::unique_ptr<MachinePeaks> make_peaks(const DeviceSettings& device, Registry& registry, int threads);

}  // namespace harmonics::engine
