// Calls to try devices on.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/conformance/call_examples.hpp"
#include "engine/program/functional.hpp"

namespace harmonics {

// A call with its site, which may also be a chain of elementwise operations.
struct DeviceCall {
  CallExample call;
  CallSiteInfo site;

  Values meaning() const;  // by the reference
  // The input that result `output` may be written over: that of an optimizer's update; -1: none.
  int64_t replaced_by(size_t output) const;
};

// Every functional of the library, what their bodies are made of, operation by operation and in chains, and every primitive: in
// f32, f64, f16 and bf16, elementwise ones in whole numbers too; small, of odd sizes, a few of them large or empty. Each once.
std::vector<DeviceCall> device_calls(uint64_t seed);

}  // namespace harmonics
