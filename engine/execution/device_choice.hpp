// `--device auto`: picks an accelerator if one is usable, else the CPU.
#pragma once

#include <string>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

struct DeviceChoice {
  std::string device;
  std::string note;  // why the CPU was chosen, one line; "" for an accelerator
};
// Returns the first usable device with its own memory that reports to be a GPU or another accelerator. `kind`:
// restricts the search to that kind, HX_DEVICE_...
DeviceChoice choose_device(Registry& registry, uint32_t kind = HX_DEVICE_OTHER);

}  // namespace harmonics::engine
