// Steps that run on the host, in one phase of one part: reference evaluation, the opaque function of a plugin, a copy.
#pragma once

#include <functional>
#include <memory>

#include "engine/execution/executable.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// Like hx_kernel without the C contract: `run` may throw, and the Executable owns the context.
struct HostKernel {
  using Run = void (*)(const void* context, void* const* buffers, uint32_t phase, uint32_t part);
  Run run = nullptr;
  std::shared_ptr<void> context;
  uint64_t workspace = 0;
  const char* name = "";
};

// Returns the reference evaluator of a primitive or chain. It clamps out-of-range indices.
HostKernel reference_kernel(const Program& program, const Node& node);
// Returns a kernel that runs the compiled body of a scan node once per step.
HostKernel scan_kernel(const Node& node, std::shared_ptr<Executable> body);
// Returns a kernel that calls the opaque function of a host_call node.
HostKernel host_call_kernel(const Program& program, const Node& node);
// Compiles the body of a scan.
using CompileBody = std::function<std::shared_ptr<Executable>(const Program& body)>;
// Returns the one of these kernels that fits the node.
HostKernel host_kernel_of(const Program& program, const Node& node, const CompileBody& compile_body);
// Returns a kernel that copies its first buffer to its second.
HostKernel copy_kernel(uint64_t bytes);

}  // namespace harmonics::engine
