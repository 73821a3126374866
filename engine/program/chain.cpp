#include "engine/program/chain.hpp"

#include <charconv>
#include <cstring>
#include <memory>

namespace harmonics::engine {

namespace {

[[noreturn]] void broken(std::string_view text, const char* why) {
  throw Error(ErrorKind::Internal, "fused_elementwise chain '" + std::string(text) + "' " + why);
}

// Parses "name(0,1):f32".
ChainOp parse_op(std::string_view word, std::string_view all) {
  const size_t open = word.find('('), close = word.find("):");
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) broken(all, "cannot be read");
  const OpRow* row = find_op(word.substr(0, open));
  if (!row || !is_elementwise(row->op)) broken(all, "has an operation that is not elementwise");
  ChainOp op{row->op, 0, {}, dtype_named(word.substr(close + 2))};
  const char *at = word.data() + open + 1, *end = word.data() + close;
  while (at < end) {
    if (op.operand_count == op.operands.size()) broken(all, "has an operation of more than three operands");
    const auto [next, error] = std::from_chars(at, end, op.operands[op.operand_count++]);
    if (error != std::errc() || (next < end && *next != ','))
      broken(all, "has an operand that is not a register number");
    at = next + (next < end);
  }
  const uint32_t wanted = row->family == Family::unary ? 1 : row->family == Family::binary ? 2 : 3;
  if (op.operand_count != wanted) broken(all, "has an operation with a wrong number of operands");
  return op;
}

AttributeMap attributes_of(const ChainOp& op) {
  AttributeMap a;
  if (op.op == Op::cast) a.set("dtype", static_cast<int64_t>(op.dtype));
  return a;
}

bool aligns(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (uint32_t i = 0; i < from.rank(); ++i) {
    const int64_t have = from[from.rank() - 1 - i];
    if (have != 1 && have != to[to.rank() - 1 - i]) return false;
  }
  return true;
}

// Memory of one register during evaluation.
struct Register {
  TensorType type;
  std::unique_ptr<std::byte[]> owned;
  const void* data = nullptr;

  void* allocate() {
    owned = std::make_unique<std::byte[]>(type.bytes());
    data = owned.get();
    return owned.get();
  }
};

}  // namespace

AttributeMap Chain::attributes() const {
  std::string text;
  for (const ChainOp& op : ops) {
    if (!text.empty()) text += ' ';
    text += op_row(op.op).name;
    for (uint32_t i = 0; i < op.operand_count; ++i) text += (i ? "," : "(") + std::to_string(op.operands[i]);
    text += "):";
    text += dtype_name(op.dtype);
  }
  AttributeMap a;
  a.set("chain", text);
  a.set("outputs", std::vector<int64_t>(outputs.begin(), outputs.end()));
  a.set("shape", shape.vector());
  return a;
}

Chain chain_of(const AttributeMap& attributes, size_t inputs) {
  Chain chain;
  chain.shape = attributes.shape();
  const std::string& text = attributes.text("chain");
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t space = rest.find(' ');
    chain.ops.push_back(parse_op(rest.substr(0, space), text));
    const ChainOp& op = chain.ops.back();
    for (uint32_t i = 0; i < op.operand_count; ++i)
      if (op.operands[i] >= inputs + chain.ops.size() - 1) broken(text, "reads a register before it is made");
    rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  }
  for (int64_t r : attributes.integers("outputs")) {
    if (r < static_cast<int64_t>(inputs) || r >= static_cast<int64_t>(inputs + chain.ops.size()))
      broken(text, "stores a register that no operation makes");
    chain.outputs.push_back(static_cast<uint32_t>(r));
  }
  return chain;
}

bool has_chain(std::string_view name) { return name == op_row(Op::fused_elementwise).name || name == kFusedReduce; }

std::vector<TensorType> infer_chain(const AttributeMap& attributes, std::span<const TensorType> inputs) {
  const Chain chain = chain_of(attributes, inputs.size());
  std::vector<TensorType> registers;
  for (const TensorType& t : inputs) {
    if (!aligns(t.shape, chain.shape))
      throw Error(ErrorKind::Shape,
                  "fused_elementwise: an input " + t.str() + " does not stretch to " + chain.shape.str());
    registers.push_back({t.dtype, chain.shape});
  }
  for (const ChainOp& op : chain.ops) {
    std::vector<TensorType> operands;
    for (uint32_t i = 0; i < op.operand_count; ++i) operands.push_back(registers[op.operands[i]]);
    registers.push_back(op_row(op.op).infer(attributes_of(op), operands).at(0));
    if (registers.back().dtype != op.dtype) broken(attributes.text("chain"), "announces a wrong element type");
  }
  std::vector<TensorType> outputs;
  for (uint32_t r : chain.outputs) outputs.push_back(registers[r]);
  return outputs;
}

void evaluate_chain(const AttributeMap& attributes, std::span<const ConstView> inputs, std::span<const View> outputs) {
  const Chain chain = chain_of(attributes, inputs.size());
  std::vector<Register> registers(inputs.size() + chain.ops.size());
  AttributeMap stretch;
  stretch.set("shape", chain.shape.vector());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Register& r = registers[i];
    r.type = {inputs[i].type.dtype, chain.shape};
    r.data = inputs[i].data;
    if (inputs[i].type.shape == chain.shape) continue;
    const View to{r.type, r.allocate()};
    op_row(Op::broadcast).evaluate(stretch, inputs.subspan(i, 1), std::span(&to, 1));
  }
  for (size_t i = 0; i < chain.ops.size(); ++i) {
    const ChainOp& op = chain.ops[i];
    ConstView operands[3];
    for (uint32_t k = 0; k < op.operand_count; ++k) {
      const Register& r = registers[op.operands[k]];
      operands[k] = {r.type, r.data};
    }
    Register& result = registers[inputs.size() + i];
    result.type = {op.dtype, chain.shape};
    const View to{result.type, result.allocate()};
    op_row(op.op).evaluate(attributes_of(op), std::span(operands, op.operand_count), std::span(&to, 1));
  }
  for (size_t i = 0; i < chain.outputs.size(); ++i)
    if (const size_t bytes = outputs[i].type.bytes())
      std::memcpy(outputs[i].data, registers[chain.outputs[i]].data, bytes);
}

}  // namespace harmonics::engine
