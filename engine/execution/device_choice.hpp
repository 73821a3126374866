// `--device auto`: an accelerator where one can be used, else the CPU.
#pragma once

#include <string>

#include "engine/plugin/registry.hpp"

namespace harmonics {

struct DeviceChoice {
  std::string device;
  std::string note;  // why it is the CPU, in one line; "": an accelerator
};
// The first device with memory of its own that says it is a GPU or another accelerator, and can be used; `sort`: only of that
// sort, HX_DEVICE_...
DeviceChoice choose_device(Registry& registry, uint32_t sort = HX_DEVICE_OTHER);

}  // namespace harmonics
