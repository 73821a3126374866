// Attention restricted to the documents of packed sequences.
#pragma once

#include "site.hpp"

namespace harmonics::cpu {

// Plans attention or attention_grad with the optional inputs `documents` or `documents` and `sinks`.
bool plan_documents(const Site& site, hx_kernel& out);

}  // namespace harmonics::cpu
