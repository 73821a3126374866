#include <algorithm>
#include <charconv>

#include "engine/functional/reference.hpp"
#include "engine/program/chain.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine::reference {
namespace {

// Evaluates the chain on whole tensors. Types change only at casts.
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

// Parses "add(0,2)" and applies it to registers.
HTensor one_step(std::string_view step, const Values& registers) {
  const size_t open = step.find('(');
  const auto broken = [&](std::string_view why) {
    throw Error(ErrorKind::Type, "fused_dot: the step '" + std::string(step) + "' " + std::string(why));
  };
  if (open == std::string_view::npos || step.back() != ')') broken("is not NAME(REGISTER,...)");
  const std::string_view name = step.substr(0, open);
  const OpRow* primitive = find_op(name);
  const FunctionalPtr functional = primitive ? nullptr : FunctionalTable::global().find(name);
  if (primitive ? !is_elementwise(primitive->op) : !functional || !functional->traits.elementwise)
    broken("is not elementwise");
  Values operands;
  for (std::string_view rest = step.substr(open + 1, step.size() - open - 2); !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    size_t at = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + comma, at);
    if (error != std::errc() || end != rest.data() + comma || at >= registers.size()) broken("reads no register");
    operands.push_back(registers[at]);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return one(name, {}, operands);
}

// The registers are the product, the further tensors broadcast to its shape, then the result of each step.
Values fused_dot(const AttributeMap& attributes, Inputs in) {
  AttributeMap axes;
  for (const char* name : {"lhs_contract", "rhs_contract"}) axes.set(name, attributes.integers(name));
  for (const char* name : {"lhs_batch", "rhs_batch"}) axes.set(name, std::vector<int64_t>{});
  Values registers{one("dot", axes, {in[0], in[1]})};
  const Shape shape = registers[0].shape();
  for (const HTensor& x : in.subspan(2)) registers.push_back(x.shape() == shape ? x : broadcast(x, shape));
  for (std::string_view rest = attributes.text("steps"); !rest.empty();) {
    const size_t space = std::min(rest.find(' '), rest.size());
    registers.push_back(one_step(rest.substr(0, space), registers));
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  Values results;
  for (const int64_t r : attributes.integers("stored")) {
    expect(r >= 0 && r < static_cast<int64_t>(registers.size()), "fused_dot", "a register to store does not exist",
           ErrorKind::Type);
    results.push_back(registers[static_cast<size_t>(r)]);
  }
  return results;
}

}  // namespace

std::vector<Functional> fusions() {
  return {{"fused_dot",
           "a product of tensors, followed by elementwise operations in the same kernel",
           "a, b, further [...]...? {lhs_contract: ints, rhs_contract: ints, steps: text, stored: ints} -> results "
           "[...]...; steps, such as add(0,1) gelu(2), read registers: the product, the further tensors, then the "
           "results of steps; stored lists the registers that are results",
           fused_dot,
           nullptr,
           {.part = BlockPart::product}},
          {std::string(kFusedReduce),
           "a chain of elementwise operations, whose last result is reduced along axes without being stored",
           "tensors...? {chain: text, outputs: ints, shape: ints, reduction: text in "
           "reduce_sum|reduce_max|reduce_min|reduce_prod, axes: ints, keep = false} -> further [shape]...?, reduced "
           "[...]",
           fused_reduce, nullptr}};
}

}  // namespace harmonics::engine::reference
