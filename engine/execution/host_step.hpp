// Steps the host runs itself: reference evaluation, a plugin's opaque function, a copy. One phase of one part each.
#pragma once

#include <memory>

#include "engine/program/program.hpp"

namespace harmonics {

// As hx_kernel, without the C contract: it may throw, and the context is the Executable's.
struct HostKernel {
  using Run = void (*)(const void* context, void* const* buffers, uint32_t phase, uint32_t part);
  Run run = nullptr;
  std::shared_ptr<void> context;
  uint64_t workspace = 0;
  const char* name = "";
};

// The slow evaluator of a primitive or chain. Indices outside their axis are clamped.
HostKernel reference_kernel(const Program& program, const Node& node);
// The opaque function of a host_call node.
HostKernel host_call_kernel(const Program& program, const Node& node);
// buffers: from, to.
HostKernel copy_kernel(uint64_t bytes);

}  // namespace harmonics
