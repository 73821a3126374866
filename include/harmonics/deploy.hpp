// Selects hardware by kind instead of by device name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <harmonics/graph.hpp>

namespace harmonics {

namespace detail {

struct Accelerator {
  std::string device, note;
};
HARMONICS_FACE inline Accelerator accelerator(uint32_t sort) {
  const hx_graph_api& api = detail::calls::graphs();
  if (api.struct_size < offsetof(hx_graph_api, accelerator) + sizeof api.accelerator)
    return {"cpu", "the library knows no accelerators"};
  const char *device = nullptr, *note = nullptr;
  check(api.accelerator(sort, &device, &note));
  return {device, note};
}

}  // namespace detail

// Returns the available kind: GPU, else FPGA, else CPU.
HARMONICS_FACE inline Backend select_accelerator_backend() {
  if (detail::accelerator(HX_DEVICE_GPU).note.empty()) return Backend::GPU;
  return detail::accelerator(HX_DEVICE_FPGA).note.empty() ? Backend::FPGA : Backend::CPU;
}

// Returns the name for FitOptions::device. Throws ErrorKind::Device with the reason if the hardware is missing and
// fallback is false.
HARMONICS_FACE inline std::string device_for(const DeploymentDescriptor& deploy) {
  if (deploy.backend == Backend::CPU) return "cpu";
  const uint32_t sort = deploy.backend == Backend::GPU    ? HX_DEVICE_GPU
                        : deploy.backend == Backend::FPGA ? HX_DEVICE_FPGA
                                                          : HX_DEVICE_OTHER;
  const detail::Accelerator found = detail::accelerator(sort);
  if (!found.note.empty() && !deploy.fallback && deploy.backend != Backend::Auto)
    throw Error(ErrorKind::Device, found.note).note("leave fallback at true to run on the CPU then");
  return found.device;
}
// Likewise for one graph: by the last options with this name, else by the descriptor.
HARMONICS_FACE inline std::string device_for(const DeploymentDescriptor& deploy, const std::string& partition) {
  for (auto own = deploy.partitions.rbegin(); own != deploy.partitions.rend(); ++own)
    if (own->name == partition) return device_for({own->backend, own->fallback, {}});
  return device_for(deploy);
}

HARMONICS_FACE inline void HarmonicGraph::deploy(const DeploymentDescriptor& descriptor, const std::string& partition) {
  detail::calls::expect(api().struct_size >= offsetof(hx_graph_api, set_device) + sizeof(void*), "graph.deploy()");
  check(api().set_device(graph(), device_for(descriptor, partition).c_str()));
}

}  // namespace harmonics
