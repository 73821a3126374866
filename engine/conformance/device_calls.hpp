// Calls for the checks of devices.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/conformance/call_examples.hpp"
#include "engine/program/functional.hpp"

namespace harmonics::engine {

// A call with its site. It may be a chain of elementwise operations.
struct DeviceCall {
  CallExample call;
  CallSiteInfo site;

  Values meaning() const;  // results of the reference implementation
  // Returns the input that result `output` of an optimizer's update may overwrite; -1 if there is none.
  int64_t replaced_by(size_t output) const;
};

// Returns calls of all functionals and primitives of the library, and of the operations and elementwise chains in their
// bodies, without duplicates. Types are f32, f64, f16 and bf16, for elementwise operations also integers. Sizes are
// small and odd, some large or zero.
std::vector<DeviceCall> device_calls(uint64_t seed);

}  // namespace harmonics::engine
