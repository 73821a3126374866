// Command-line tests with OpenCL; skipped without a driver.
#pragma once

#include "tests/journeys/shell.hpp"

namespace journeys {

inline bool has_driver() {
  if (has(harmonics("list devices").out, "driver ")) return true;
  WARN("nothing is tested: no OpenCL driver");
  return false;
}

}  // namespace journeys
