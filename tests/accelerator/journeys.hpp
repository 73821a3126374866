// Command-line tests of the device named by HARMONICS_TEST_DEVICE (default: 'opencl'). They pass on machines without
// its driver.
#pragma once

#include "tests/accelerator/name.hpp"
#include "tests/journeys/shell.hpp"

namespace journeys {

using accelerators::accelerator;

inline bool has_accelerator() {
  const Result r = harmonics("run " + kSamples + "mnist.hmx --producer 'synth:digits?size=20' --producer " +
                             "'synth:digits?size=20#label' --batch 10 --steps 1 --quiet --device " + accelerator());
  if (!has(r.err, "cannot be used")) return true;
  WARN("nothing is tested: " << r.err);
  return false;
}

}  // namespace journeys
