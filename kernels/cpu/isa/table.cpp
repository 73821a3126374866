#include "../isa.hpp"
#include "kernels.hpp"
#include "simd.hpp"

#define HM_TEXT_OF(x) #x
#define HM_TEXT(x) HM_TEXT_OF(x)

namespace harmonics::cpu::HM_ISA {

extern const IsaTable table;
const IsaTable table = {HM_TEXT(HM_ISA), kWidth, find_block, epilogue, end_product};

}  // namespace harmonics::cpu::HM_ISA
