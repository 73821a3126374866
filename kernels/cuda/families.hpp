// Planning functions of all families, and functions that several families share.
#pragma once

#include <harmonics/memory_device.hpp>

#include "work.hpp"

namespace harmonics::cuda {

// Creates the device without calling the driver.
std::shared_ptr<CapturingDevice> make_device();

#define HM_FAMILY(name) std::span<const PlanRow> name##_plans();
#include "families.inc"
#undef HM_FAMILY
const kernels::PlanTable<Plan>& plans();  // of all families

bool plan_elementwise(const Site&, hx_kernel&);
bool plan_tiled_attention(const Site&, hx_kernel&);  // plain attention in f32
bool plan_sequence(const Site&, hx_kernel&);  // attention with optional inputs, a window or a soft cap, or over a cache

// Shared by several families. Copies elements of `bytes` bytes along a walk over the result and the source.
void copy_along(Work& work, uint32_t bytes, Operand from, Operand to, Walk walk);
void fill(Work& work, uint32_t dtype, Operand to, int64_t n, uint64_t bits);
// Reads the call's activation attribute; false: unknown.
bool activation_of(const Site& site, Activation& activation);

}  // namespace harmonics::cuda
