// apply(): traces or computes one operation by name.
#include <algorithm>

#include <harmonics/ops.hpp>

#include "engine/base/spelling.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

// Infers result types. Adds the operation's name to errors about attributes.
std::vector<TensorType> infer(const OpRow& row, const AttributeMap& attributes, const std::vector<TensorType>& inputs) {
  try {
    return row.infer(attributes, inputs);
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with(row.name)) throw;
    throw Error(e.kind(), std::string(row.name) + ": " + e.what(), e.span(), e.notes());
  }
}

Tracer& tracer_of(std::string_view op) {
  if (Tracer* tracer = Tracer::current()) return *tracer;
  throw Error(ErrorKind::Plugin, std::string(op) + ": an operand is a traced value, but its trace has ended", {},
              {"keep numbers between calls, not the tensors that an operation gave while it was traced"});
}

std::vector<HTensor> record_call(const Functional& functional, const AttributeMap& attributes,
                                 const std::vector<HTensor>& inputs) {
  Tracer& tracer = tracer_of(functional.name);
  const auto body = body_program(functional, attributes, types_of(inputs));
  std::vector<TensorType> types;
  for (const NamedValue& v : body->outputs) types.push_back(body->type(v.value));
  Node node{};
  node.op = Op::call;
  node.attributes = attributes;
  node.callee = functional.name;
  return tracer.append(std::move(node), inputs, types);
}

// Checks indices of immediate operations; compiled programs clamp them instead.
void check_indices(Op op, const AttributeMap& attributes, const std::vector<HTensor>& inputs) {
  const TensorType x = type_of(inputs[0]), indices = type_of(inputs[1]);
  const int64_t axis = attributes.integer("axis", 0), limit = x.shape[static_cast<uint32_t>(axis)];
  const auto check = [&](auto index) {
    if (static_cast<int64_t>(index) >= 0 && static_cast<int64_t>(index) < limit) return;
    throw Error(ErrorKind::Shape, std::string(op_name(op)) + ": index " + std::to_string(index) +
                                      " is out of range for axis " + std::to_string(axis) + " of " + x.str());
  };
  const void* data = inputs[1].raw()->storage->data();
  const int64_t n = indices.shape.count();
  if (indices.dtype == DType::I64) std::for_each_n(static_cast<const int64_t*>(data), n, check);
  if (indices.dtype == DType::I32) std::for_each_n(static_cast<const int32_t*>(data), n, check);
}

// Same for gather_nd and scatter_nd, whose positions consist of one index per axis.
void check_positions(Op op, const AttributeMap& attributes, const std::vector<HTensor>& inputs) {
  const TensorType x = type_of(inputs[0]);
  const HTensor indices = cast(inputs[1], DType::I64);
  const auto batch = static_cast<uint32_t>(attributes.integer("batch_axes", 0));
  const int64_t k = indices.shape().back();
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices.data<int64_t>()[i];
    const uint32_t axis = batch + static_cast<uint32_t>(i % k);
    if (index < 0 || index >= x.shape[axis])
      throw Error(ErrorKind::Shape, std::string(op_name(op)) + ": index " + std::to_string(index) +
                                        " is out of range for axis " + std::to_string(axis) + " of " + x.str());
  }
}

[[noreturn]] void unknown(std::string_view op) {
  std::vector<std::string> known;
  for (const OpRow& row : op_rows())
    if (find_op(row.name)) known.emplace_back(row.name);
  for (std::string& name : FunctionalTable::global().names()) known.push_back(std::move(name));
  Error error(ErrorKind::Name, "there is no operation '" + std::string(op) + "'");
  if (auto near = nearest(op, known)) error.note("did you mean '" + *near + "'?");
  throw error;
}

}  // namespace

std::vector<HTensor> apply(std::string_view op, const AttributeMap& attributes, const std::vector<HTensor>& inputs) {
  bool traced = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].empty())
      throw Error(ErrorKind::Internal, std::string(op) + ": operand " + std::to_string(i + 1) + " is an empty tensor");
    traced = traced || inputs[i].raw()->traced();
  }
  const OpRow* row = find_op(op);
  if (!row) {
    const FunctionalPtr functional = FunctionalTable::global().find(op);
    if (!functional) unknown(op);
    if (traced) return record_call(*functional, attributes, inputs);
    check_call(*functional, attributes, inputs.size());
    return functional->body(attributes, inputs);
  }
  if (row->op == Op::full || row->op == Op::iota) traced = Tracer::current() != nullptr;
  const std::vector<TensorType> types = infer(*row, attributes, types_of(inputs));
  if (traced) {
    Node node{};
    node.op = row->op;
    node.attributes = attributes;
    return tracer_of(op).append(std::move(node), inputs, types);
  }
  if (row->op == Op::gather || row->op == Op::scatter_add) check_indices(row->op, attributes, inputs);
  if (row->op == Op::gather_nd || row->op == Op::scatter_nd) check_positions(row->op, attributes, inputs);
  return evaluate_op(row->op, attributes, types, inputs);
}

}  // namespace harmonics::engine
