// For the sources in families/, each of which holds a family of kernels whole: contexts, vector code, planning, rows.
//
// They are compiled once per instruction set with HM_ISA defined, which leaves the vector code, and once without it,
// which leaves the planning. Vector code sees only plain structs (isa.hpp says why).
#pragma once

#ifdef HM_ISA

#include "isa/kernels.hpp"

#else

#include "families.hpp"

// For planning: chosen::NAME() is the kernel NAME of the vector code, for this processor.
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
