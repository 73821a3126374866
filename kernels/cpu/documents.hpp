// Attention within the documents of packed rows.
#pragma once

#include "site.hpp"

namespace harmonics::cpu {

// Plans a call of attention or attention_grad whose optional inputs are `documents`, or it and `sinks`.
bool plan_documents(const Site& site, hx_kernel& out);

}  // namespace harmonics::cpu
