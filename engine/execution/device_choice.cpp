#include "engine/execution/device_choice.hpp"

#include <fmt/core.h>

#include "engine/execution/device_memory.hpp"
#include "engine/execution/kernel_source.hpp"

namespace harmonics::engine {

namespace {

const char* name_of(uint32_t kind) {
  return kind == HX_DEVICE_GPU ? "GPU" : kind == HX_DEVICE_FPGA ? "FPGA" : "accelerator";
}

// Returns why the device cannot be chosen, or "" if it can.
std::string reason_against(Registry& registry, const std::string& name, uint32_t kind) {
  try {
    const ItemPtr device = registry.need(HX_DEVICE, name);
    if (!has_own_memory(*device)) return "computes on this processor";
    const hx_device_info info = info_of(*device);
    if (info.unavailable[0]) return info.unavailable;
    const bool accelerates = info.sort == HX_DEVICE_GPU || info.sort == HX_DEVICE_FPGA;
    const bool fits = kind == HX_DEVICE_OTHER ? accelerates : info.sort == kind;
    if (!fits) return fmt::format("{} is not {} {}", info.name, kind == HX_DEVICE_GPU ? "a" : "an", name_of(kind));
    return "";
  } catch (const Error& e) {  // the plugin library cannot be opened
    return e.what();
  }
}

}  // namespace

DeviceChoice choose_device(Registry& registry, uint32_t kind) {
  std::string reasons;
  for (const std::string& name : registry.names(HX_DEVICE)) {
    if (name == "cpu") continue;
    const std::string why = reason_against(registry, name, kind);
    if (why.empty()) return {name, ""};
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, why);
  }
  const std::string none =
      fmt::format("there is no {} to use{}", name_of(kind), reasons.empty() ? "" : " (" + reasons + ")");
  return {"cpu", kind == HX_DEVICE_OTHER ? "device auto: the CPU, as " + none : none};
}

bool only_wraps(Registry& registry, const std::string& name) {
  try {
    const ItemPtr device = registry.need(HX_DEVICE, name);
    if (has_own_memory(*device) || !registry.find(HX_DEVICE, name + ":cpu")) return false;  // throws if it cannot wrap
    const TensorType row{DType::F32, {16}};
    return !KernelSource(name, registry).find("add", {}, {row, row}, {row});
  } catch (const Error&) {  // it cannot wrap, or its library cannot be opened, which its use reports
    return false;
  }
}

}  // namespace harmonics::engine
