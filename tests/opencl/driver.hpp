// Checks whether an OpenCL driver is available.
#pragma once

#include <catch2/catch.hpp>

#include "engine/execution/device_memory.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine::testing {

inline bool opens_driver() {
  const hx_device_info info = info_of(*Registry::global().need(HX_DEVICE, "opencl"));
  if (!info.unavailable[0]) return true;
  WARN("nothing is tested: " << info.unavailable);
  return false;
}

}  // namespace harmonics::engine::testing
