// Lists the primitives that a device leaves to the reference.
#pragma once

#include <algorithm>
#include <set>
#include <string>

#include "engine/conformance/device_calls.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine::testing {

// Returns whether the call computes with f32 and no other float type.
inline bool is_of_f32(const CallSiteInfo& site) {
  std::vector<TensorType> all = site.inputs;
  all.insert(all.end(), site.outputs.begin(), site.outputs.end());
  const auto is_other = [](const TensorType& t) { return is_float(t.dtype) && t.dtype != DType::F32; };
  return std::none_of(all.begin(), all.end(), is_other) &&
         std::any_of(all.begin(), all.end(), [](const TensorType& t) { return t.dtype == DType::F32; });
}

// Returns the primitives for which the device declines a call on f32.
inline std::set<std::string> left_to_the_reference(KernelSource& device) {
  std::set<std::string> names;
  for (const DeviceCall& c : device_calls(1)) {
    const CallSiteInfo& site = c.site;
    const auto is_empty = [](const TensorType& t) { return t.shape.count() == 0; };
    if (!is_of_f32(site) || !find_any_op(site.op) || std::any_of(site.inputs.begin(), site.inputs.end(), is_empty))
      continue;
    if (!device.find(site.op, site.attributes, site.inputs, site.outputs)) names.insert(site.op);
  }
  return names;
}

}  // namespace harmonics::engine::testing
