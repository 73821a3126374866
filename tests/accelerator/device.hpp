// Tests of the device HARMONICS_TEST_DEVICE, or 'opencl'. They pass without its driver.
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
