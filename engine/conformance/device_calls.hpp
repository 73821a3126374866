// Calls to test devices.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/conformance/call_examples.hpp"
#include "engine/program/functional.hpp"

namespace harmonics::engine {

// A call with its site; may be a chain of elementwise operations.
struct DeviceCall {
  CallExample call;
  CallSiteInfo site;

  Values meaning() const;  // results by the reference
  // Input that result `output` may overwrite, in an optimizer's update; -1: none.
  int64_t replaced_by(size_t output) const;
};

// All functionals and primitives of the library, and the operations and chains of their bodies, once each: in f32, f64,
// f16 and bf16, elementwise ones also in integers; small odd sizes, some large or empty.
std::vector<DeviceCall> device_calls(uint64_t seed);

}  // namespace harmonics::engine
