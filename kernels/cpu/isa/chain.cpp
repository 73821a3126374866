#include "chain_run.hpp"
#include "kernels.hpp"

namespace harmonics::cpu::HM_ISA {

void chain(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const ChainContext*>(context);
  ChainRun run(c, buffers);
  const Range blocks = share((c.count + c.block - 1) / c.block, c.parts, part);
  for (int64_t k = blocks.begin; k < blocks.end; ++k) {
    const int64_t start = k * c.block;
    run.piece(start, c.count - start < c.block ? c.count - start : c.block);
  }
}

}  // namespace harmonics::cpu::HM_ISA
