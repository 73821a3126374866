// What a fused_elementwise node computes: elementwise operations on registers, one element at a time.
//
// Registers are numbered inputs first, then one per operation. Inputs are broadcast to the chain's shape by aligning
// trailing axes; the listed registers are stored, all of that shape. In attributes:
// {chain = "mul(0,1):f32 add(2,1):f32", outputs = [3], shape = [64, 10]}.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/op.hpp"

namespace harmonics {

struct ChainOp {
  Op op;
  uint32_t operand_count = 0;
  std::array<uint32_t, 3> operands{};
  DType dtype = DType::F32;  // of the result
};

struct Chain {
  std::vector<ChainOp> ops;
  std::vector<uint32_t> outputs;
  Shape shape;

  AttributeMap attributes() const;
};

// Reads the attributes back; throws ErrorKind::Internal naming what is wrong with them.
Chain chain_of(const AttributeMap& attributes, size_t inputs);

// The functional fused_reduce: a chain whose last result is joined along axes instead of stored, in the attributes besides the
// chain's: {reduction = "reduce_sum", axes = [0], keep = false}. Its other results are stored as they are.
inline constexpr std::string_view kFusedReduce = "fused_reduce";
// Has the operation or functional of this name a chain in its attributes?
bool has_chain(std::string_view name);

// The functions of fused_elementwise as OpRow has them.
std::vector<TensorType> infer_chain(const AttributeMap& attributes, std::span<const TensorType> inputs);
void evaluate_chain(const AttributeMap& attributes, std::span<const ConstView> inputs, std::span<const View> outputs);

}  // namespace harmonics
