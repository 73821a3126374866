#include "engine/execution/work.hpp"

#include <algorithm>

#include "engine/passes/pass.hpp"
#include "engine/program/chain.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

double count(const TensorType& t) { return static_cast<double>(t.shape.count()); }
double bytes(const TensorType& t) { return static_cast<double>(t.bytes()); }

double products_of_dot(const Program& program, const Node& node) {
  double products = count(program.type(node.outputs[0]));
  for (int64_t axis : node.attributes.integers("lhs_contract"))
    products *= static_cast<double>(program.type(node.inputs[0]).shape[static_cast<uint32_t>(axis)]);
  return 2 * products;
}

double other_of(const Program& program, const Node& node) {
  const TensorType& out = program.type(node.outputs[0]);
  if (node.op == Op::fused_elementwise)
    return count(out) * static_cast<double>(chain_of(node.attributes, node.inputs.size()).ops.size());
  switch (op_row(node.op).family) {
    case Family::unary:
    case Family::binary:
    case Family::ternary:
    case Family::source:
      return count(out);
    case Family::reduce:
    case Family::index:
      return count(program.type(node.inputs[0]));
    default:
      return 0;
  }
}

// Returns whether the node only writes a block: kernels that work in place move only the block and its start indices.
bool is_block_write(const Node& node) {
  if (node.op == Op::update_slice) return true;
  const FunctionalPtr functional = called_by(node);
  return functional && functional->traits.block_write;
}

void add_flops(const Program& program, const Node& node, Work& work) {
  if (node.op == Op::call && is_block_write(node)) return;
  if (node.op == Op::dot)
    work.products += products_of_dot(program, node);
  else
    work.other += other_of(program, node);
  if (node.op == Op::scan) {
    Work step;
    for (const Node& n : node.body->nodes)
      if (!is_leaf(n.op)) add_flops(*node.body, n, step);
    const auto steps = static_cast<double>(node.attributes.integer("length"));
    work.products += steps * step.products;
    work.other += steps * step.other;
  }
  const FunctionalPtr functional = called_by(node);
  if (!functional || !functional->body) return;
  Work inside;
  const auto body = body_program(*functional, node.attributes, input_types(program, node));
  for (const Node& n : body->nodes) add_flops(*body, n, inside);
  work.products += inside.products * (node.attributes.flag("causal", false) ? 0.5 : 1);
  work.other += inside.other;
}

// Returns the bytes moved. Index operations count only the selected rows of a table; layout operations count only what
// they copy.
double bytes_of(const Program& program, const Node& node) {
  if (is_block_write(node)) return 2 * bytes(program.type(node.inputs[1])) + bytes(program.type(node.inputs[2]));
  double results = 0, operands = 0;
  for (ValueId v : node.outputs) results += bytes(program.type(v));
  const Family family = op_row(node.op).family;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const double all = bytes(program.type(node.inputs[i]));
    operands += family == Family::layout || (family == Family::index && i == 0 && node.op != Op::top_k)
                    ? std::min(all, results)
                    : all;
  }
  return results + operands;
}

}  // namespace

Work work_of(const Program& program, const Node& node) {
  Work work;
  if (is_leaf(node.op)) return work;
  add_flops(program, node, work);
  work.bytes = bytes_of(program, node);
  return work;
}

}  // namespace harmonics::engine
