// Builds chains of scalar operations for elementwise and fused kernels.
#pragma once

#include <array>
#include <map>
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
const ScalarRow* scalar_row(std::string_view name);  // null: unknown operation

// Arrays that a ChainContext points to.
struct ChainStorage {
  std::vector<ChainRegister> register_storage;
  std::vector<ChainStep> step_storage;
};
struct OwnedChain : ChainContext, ChainStorage {};

// Registers are numbered in the order they are added: inputs and constants, then steps. finish() and fill() assign
// their memory.
class ChainBuilder {
 public:
  ChainBuilder(std::vector<int64_t> shape, uint32_t inputs) : shape_(std::move(shape)), inputs_(inputs) {
    for (int64_t d : shape_) count_ *= d;
  }

  uint32_t input(uint32_t buffer, const hx_type& type);
  uint32_t constant(float value);
  // Returns the result's register; nullopt if there is no block for these element types. Primitives on 16-bit floats
  // are computed in f32 and rounded.
  std::optional<uint32_t> step(const ScalarRow& row, uint32_t dtype, std::array<uint32_t, 3> operands);
  // Computes gelu_grad(x, dy) in the step y = gelu(x), which is cheaper. Both results must become outputs. Returns the
  // gradient's register; nullopt if there is no such step, or dy is a result of a step.
  std::optional<uint32_t> gelu_gradient(uint32_t y, uint32_t x, uint32_t dy);
  // Adds all inputs and operations of the site's chain.
  bool steps_of(const Site& site);
  // Returns the register of a number in the site's chain; valid after steps_of.
  uint32_t named(uint32_t number) const { return number < named_.size() ? named_[number] : UINT32_MAX; }
  bool output(uint32_t which, uint32_t from);
  // Keeps the register live until the last step of a block. Also lets blocks begin at any element.
  void keep(uint32_t result) { kept_ = result; }
  bool finish(hx_kernel& out, const char* name);

  // For kernels with their own loop over pieces of at most context.block elements. False: too many registers.
  bool fill(ChainContext& context, ChainStorage& storage);
  // Output 0 may share the memory of an input of the same width if all such inputs are dead when it is written. All
  // count, because two inputs may be one buffer.
  uint32_t in_place_mask() const;
  double nanoseconds() const;  // estimated cost of all elements
  uint32_t dtype(uint32_t result) const { return dtypes_[result]; }
  size_t registers() const { return registers_.size(); }
  int64_t count() const { return count_; }

 private:
  uint32_t add(const ChainRegister& r, uint32_t dtype) {
    registers_.push_back(r);
    dtypes_.push_back(dtype);
    return static_cast<uint32_t>(registers_.size() - 1);
  }
  std::optional<uint32_t> step_in_f32(const ScalarRow& row, uint32_t dtype, std::array<uint32_t, 3> operands);
  void stretch_over_shape(ChainRegister& r, const hx_type& type);
  bool place_scratch();
  std::vector<int64_t> last_uses() const;  // by register: the last step that reads it

  std::vector<int64_t> shape_;
  uint32_t inputs_;
  int64_t count_ = 1, block_ = 0;
  double nanoseconds_ = 0;
  std::optional<uint32_t> kept_;
  std::vector<ChainRegister> registers_;
  std::vector<uint32_t> dtypes_;
  std::vector<ChainStep> steps_;
  std::vector<uint32_t> named_;           // by number in the site's chain
  std::map<uint32_t, uint32_t> widened_;  // register of 16-bit floats -> its register in f32
};

}  // namespace harmonics::cpu
