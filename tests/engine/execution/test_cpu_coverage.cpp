// Which primitives the CPU device leaves to the reference.
#include <catch2/catch.hpp>

#include <map>
#include <set>

#include "engine/conformance/device_calls.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/program/op.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

// Names of primitives for which the device declines a call with elements of this type.
std::set<std::string> left_to_the_reference(DType type) {
  static const std::vector<DeviceCall> calls = device_calls(1);
  KernelSource cpu("cpu", Registry::global());
  std::set<std::string> names;
  for (const DeviceCall& c : calls) {
    const CallSiteInfo& site = c.site;
    const bool is_ours = site.inputs.empty() ? site.outputs[0].dtype == type : site.inputs[0].dtype == type;
    const auto is_empty = [](const TensorType& t) { return t.shape.count() == 0; };
    if (!is_ours || !find_any_op(site.op) || std::any_of(site.inputs.begin(), site.inputs.end(), is_empty)) continue;
    if (!cpu.find(site.op, site.attributes, site.inputs, site.outputs)) names.insert(site.op);
  }
  return names;
}

}  // namespace

TEST_CASE("the CPU device has kernels for all primitives on f32 but these") {
  CHECK(left_to_the_reference(DType::F32) == std::set<std::string>{"patches", "unpatches"});
}
