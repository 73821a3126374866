// Included by the sources in families/. Each source is a complete family of kernels: contexts, vector code, planning
// and its table of plans. FAMILY.hpp, beside this file, has what other families use of it.
//
// The vector code of a long family is in a header of families/ that only its source includes, such as
// sparse_kernels.hpp, or in a source without planning, such as attention_gradient.cpp.
//
// A source is compiled once per instruction set with HM_ISA defined, which selects the vector code, and once without,
// which selects the planning. Vector code uses only plain structs, for the reason given in isa.hpp.
#pragma once

#ifdef HM_ISA

#include "isa/kernels.hpp"

#else

#include "families.hpp"

#endif
