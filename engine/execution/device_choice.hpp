// Chooses the device for `--device auto`: a usable accelerator, else the CPU.
#pragma once

#include <string>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

struct DeviceChoice {
  std::string device;
  std::string note;  // one line on why the CPU was chosen; "" for an accelerator
};
// Returns the first usable device that has its own memory and reports to be a GPU or another accelerator. `kind`
// (HX_DEVICE_...) restricts the search to one kind.
DeviceChoice choose_device(Registry& registry, uint32_t kind = HX_DEVICE_OTHER);
// Returns whether the device has no kernels itself and only passes calls on to another device: NAME:OTHER.
bool only_wraps(Registry& registry, const std::string& name);

}  // namespace harmonics::engine
