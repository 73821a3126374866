// Builds chains of scalar operations for the kernels that run them.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "elementwise.hpp"
#include "site.hpp"

namespace harmonics::cpu {

struct ScalarRow {
  std::string_view name;
  ScalarOp op;
  uint32_t operands;
};
const ScalarRow* scalar_row(std::string_view name);  // null: there is no such operation

// What a ChainContext points to.
struct ChainStorage {
  std::vector<ChainRegister> register_storage;
  std::vector<ChainStep> step_storage;
};
struct OwnedChain : ChainContext, ChainStorage {};

// Inputs and constants first, then steps; then says where each register lives.
class ChainBuilder {
 public:
  ChainBuilder(std::vector<int64_t> shape, uint32_t inputs) : shape_(std::move(shape)), inputs_(inputs) {
    for (int64_t d : shape_) count_ *= d;
  }

  uint32_t input(uint32_t buffer, const hx_type& type);
  uint32_t constant(float value);
  // The register of the result; nothing when there is no such operation on these element types.
  std::optional<uint32_t> step(const ScalarRow& row, uint32_t dtype, std::array<uint32_t, 3> operands);
  // All inputs and operations of the site's chain.
  bool steps_of(const Site& site);
  bool output(uint32_t which, uint32_t from);
  // The register holds its numbers until a piece's last step is done, and pieces of the chain begin anywhere.
  void keep(uint32_t result) { kept_ = result; }
  bool finish(hx_kernel& out, const char* name);

  // For kernels of their own: the chain in pieces of at most context.block elements; false where it has too many registers.
  bool fill(ChainContext& context, ChainStorage& storage);
  // Output 0 may take the memory of an input it is as wide as when every such input has been read by the step that makes it: two
  // inputs may be one buffer, so all of them count.
  uint32_t in_place_mask() const;
  double nanoseconds() const;  // of all elements
  uint32_t dtype(uint32_t result) const { return dtypes_[result]; }
  size_t registers() const { return registers_.size(); }
  int64_t count() const { return count_; }

 private:
  uint32_t add(const ChainRegister& r, uint32_t dtype) {
    registers_.push_back(r);
    dtypes_.push_back(dtype);
    return static_cast<uint32_t>(registers_.size() - 1);
  }
  void stretch_over_shape(ChainRegister& r, const hx_type& type);
  bool place_scratch();
  std::vector<int64_t> last_uses() const;  // the last step that reads each register

  std::vector<int64_t> shape_;
  uint32_t inputs_;
  int64_t count_ = 1, block_ = 0;
  double nanoseconds_ = 0;
  std::optional<uint32_t> kept_;
  std::vector<ChainRegister> registers_;
  std::vector<uint32_t> dtypes_;
  std::vector<ChainStep> steps_;
};

}  // namespace harmonics::cpu
