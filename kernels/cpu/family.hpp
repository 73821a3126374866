// Macros of the sources in families/. Each source is a complete family of kernels: contexts, vector code, planning and
// its table of plans.
//
// A source is compiled once per instruction set with HM_ISA defined, which selects the vector code, and once without,
// which selects the planning. Vector code uses only plain structs, for the reason given in isa.hpp.
#pragma once

#ifdef HM_ISA

#include "isa/kernels.hpp"

#else

#include "families.hpp"

// For planning: chosen::NAME() returns the vector kernel NAME for this processor.
#define HM_VECTOR_CODE(NAME)                                                            \
  namespace harmonics::cpu {                                                            \
  namespace baseline {                                                                  \
  Kernel NAME;                                                                          \
  }                                                                                     \
  namespace avx2 {                                                                      \
  Kernel NAME;                                                                          \
  }                                                                                     \
  namespace avx512 {                                                                    \
  Kernel NAME;                                                                          \
  }                                                                                     \
  namespace chosen {                                                                    \
  inline Run NAME() { return choose_kernel(baseline::NAME, avx2::NAME, avx512::NAME); } \
  }                                                                                     \
  }

#endif
