// The name of the device under test: HARMONICS_TEST_DEVICE, or 'opencl'.
#pragma once

#include <cstdlib>
#include <string>

namespace accelerators {

inline std::string accelerator() {
  const char* name = std::getenv("HARMONICS_TEST_DEVICE");
  return name && *name ? name : "opencl";
}

}  // namespace accelerators
