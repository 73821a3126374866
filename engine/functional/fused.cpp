#include "engine/functional/reference.hpp"
#include "engine/program/chain.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine::reference {
namespace {

// Evaluates the chain on whole tensors. Only casts change the type.
Values fused_reduce(const AttributeMap& attributes, Inputs in) {
  const Chain chain = chain_of(attributes, in.size());
  const std::string& reduction = attributes.text("reduction");
  expect(!chain.outputs.empty(), "fused_reduce", "the chain has no result to reduce", ErrorKind::Type);
  Values registers;
  for (const HTensor& x : in) registers.push_back(broadcast(x, chain.shape));
  for (const ChainOp& op : chain.ops) {
    Values operands;
    for (uint32_t i = 0; i < op.operand_count; ++i) operands.push_back(registers.at(op.operands[i]));
    registers.push_back(op.op == Op::cast ? cast(operands[0], op.dtype) : one(op_name(op.op), {}, operands));
  }
  Values results;
  for (uint32_t r : chain.outputs) results.push_back(registers.at(r));
  const AttributeMap how = AttributeMap().set("axes", attributes.integers("axes")).set("keep", attributes.flag("keep"));
  results.back() = one(reduction, how, {results.back()});
  return results;
}

}  // namespace

std::vector<Functional> fusions() {
  return {{std::string(kFusedReduce),
           "a chain of elementwise operations whose last result is reduced along axes and not stored",
           "tensors...? {chain: text, outputs: ints, shape: ints, reduction: text in "
           "reduce_sum|reduce_max|reduce_min|reduce_prod, axes: ints, keep = false} -> further [shape]...?, reduced "
           "[...]",
           fused_reduce, nullptr}};
}

}  // namespace harmonics::engine::reference
