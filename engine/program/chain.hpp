// Chain of elementwise operations on registers, as stored in a fused_elementwise node.
//
// Registers are numbered: inputs first, then one per operation. Inputs are broadcast to the chain's shape by aligning
// trailing axes. The listed output registers, all of that shape, are stored. Written as attributes: {chain =
// "mul(0,1):f32 add(2,1):f32", outputs = [3], shape = [64, 10]}.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/op.hpp"

namespace harmonics::engine {

struct ChainOp {
  Op op;
  uint32_t operand_count = 0;
  std::array<uint32_t, 3> operands{};
  DType dtype = DType::F32;  // result type
};

struct Chain {
  std::vector<ChainOp> ops;
  std::vector<uint32_t> outputs;
  Shape shape;

  AttributeMap attributes() const;
};

// Reads a chain from attributes; throws ErrorKind::Internal on invalid ones.
Chain chain_of(const AttributeMap& attributes, size_t inputs);

// Functional fused_reduce: a chain whose last output is reduced instead of stored. Additional attributes: {reduction =
// "reduce_sum", axes = [0], keep = false}.
inline constexpr std::string_view kFusedReduce = "fused_reduce";
// Returns whether the attributes of this operation or functional contain a chain.
bool has_chain(std::string_view name);

// OpRow functions of fused_elementwise.
std::vector<TensorType> infer_chain(const AttributeMap& attributes, std::span<const TensorType> inputs);
void evaluate_chain(const AttributeMap& attributes, std::span<const ConstView> inputs, std::span<const View> outputs);

}  // namespace harmonics::engine
