// Tests of the device named by HARMONICS_TEST_DEVICE (default: 'opencl'). They pass on machines without its driver.
#pragma once

#include <catch2/catch.hpp>

#include "engine/execution/device_memory.hpp"
#include "engine/plugin/registry.hpp"
#include "tests/accelerator/name.hpp"

namespace harmonics::engine::testing {

using accelerators::accelerator;

inline bool opens_accelerator() {
  const hx_device_info info = info_of(*Registry::global().need(HX_DEVICE, accelerator()));
  if (!info.unavailable[0]) return true;
  WARN("nothing is tested: " << info.unavailable);
  return false;
}

}  // namespace harmonics::engine::testing
