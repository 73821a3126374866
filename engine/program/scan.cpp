#include "engine/program/scan.hpp"

#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "engine/program/interpret.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

[[noreturn]] void refuse(ErrorKind kind, const std::string& what) { throw Error(kind, "scan: " + what); }

std::string operand_text(size_t i, const TensorType& type) {
  return "operand " + std::to_string(i + 1) + ", " + type.str();
}

TensorType slice_of(const TensorType& xs) { return {xs.dtype, xs.shape.from(1)}; }

TensorType stacked(const TensorType& slice, int64_t length) {
  if (slice.shape.rank() == HX_MAX_RANK)
    refuse(ErrorKind::Shape, "the result of " + slice.str() + " would have more than 8 dimensions");
  std::vector<int64_t> dims{length};
  dims.insert(dims.end(), slice.shape.begin(), slice.shape.end());
  try {
    return from_c(make_type(slice.dtype, Shape(dims)));
  } catch (const Error& e) {
    refuse(e.kind(), e.what());
  }
}

// Returns the body's input for operand i, or null if the body does not read it.
const Node* leaf_of(const Program& body, size_t i) { return body.leaf(Op::input, std::to_string(i)); }

void expect_inputs(const Program& body, const ScanLayout& at, const std::vector<TensorType>& inputs) {
  size_t found = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node* leaf = leaf_of(body, i);
    if (!leaf) continue;
    ++found;
    const TensorType given = i < at.steady() ? inputs[i] : slice_of(inputs[i]), wanted = body.type(leaf->outputs[0]);
    if (given != wanted)
      refuse(ErrorKind::Shape, operand_text(i, inputs[i]) + " gives the body " + given.str() + "; its input '" +
                                   std::to_string(i) + "' is " + wanted.str());
  }
  if (body.leaves(Op::input).size() != found)
    refuse(ErrorKind::Type, "the body's inputs must be named \"0\" to \"" + std::to_string(inputs.size()) +
                                "\" exclusive, after the operands");
  for (const Op op : {Op::parameter, Op::state})
    if (!body.leaves(op).empty())
      refuse(ErrorKind::Type, "the body has the " + std::string(op_name(op)) + " '" + body.leaves(op)[0]->callee +
                                  "'; make it an operand, which is a constant");
  if (!body.updates.empty()) refuse(ErrorKind::Type, "the body must not have updates");
}

}  // namespace

ScanLayout::ScanLayout(const Node& node)
    : length(node.attributes.integer("length")), reverse(node.attributes.flag("reverse", false)) {
  if (!node.body) refuse(ErrorKind::Internal, "there is no body");
  const int64_t first = node.attributes.integer("carries"), second = node.attributes.integer("constants", 0);
  const auto operands = static_cast<int64_t>(node.inputs.size()),
             results = static_cast<int64_t>(node.body->outputs.size());
  if (first < 0 || second < 0 || first > operands || second > operands - first)
    refuse(ErrorKind::Type, "carries = " + std::to_string(first) + " and constants = " + std::to_string(second) +
                                " exceed the " + quantity(operands, "operand"));
  if (results < first)
    refuse(ErrorKind::Type,
           "the body gives " + quantity(results, "result") + ", fewer than carries = " + std::to_string(first));
  if (length < 0) refuse(ErrorKind::Shape, "length = " + std::to_string(length) + " must not be negative");
  carries = static_cast<size_t>(first);
  constants = static_cast<size_t>(second);
  xs = static_cast<size_t>(operands) - steady();
  ys = static_cast<size_t>(results) - carries;
}

std::vector<TensorType> infer_scan(const Node& node, const std::vector<TensorType>& inputs) {
  const ScanLayout at(node);
  const Program& body = *node.body;
  for (size_t i = at.steady(); i < inputs.size(); ++i)
    if (inputs[i].shape.rank() == 0 || inputs[i].shape[0] != at.length)
      refuse(ErrorKind::Shape,
             operand_text(i, inputs[i]) + ", must have a first axis of length = " + std::to_string(at.length));
  expect_inputs(body, at, inputs);
  std::vector<TensorType> types;
  for (size_t i = 0; i < body.outputs.size(); ++i) {
    if (body.outputs[i].name != std::to_string(i))
      refuse(ErrorKind::Type, "result " + std::to_string(i) + " of the body is named '" + body.outputs[i].name +
                                  "'; results are named by their number");
    const TensorType& type = body.type(body.outputs[i].value);
    if (i < at.carries && type != inputs[i])
      refuse(ErrorKind::Shape,
             "the body turns the carry " + inputs[i].str() + " into " + type.str() + "; a carry keeps its type");
    types.push_back(i < at.carries ? type : stacked(type, at.length));
  }
  return types;
}

Values evaluate_scan(const Node& node, const std::vector<TensorType>& types, const Values& inputs) {
  const ScanLayout at(node);
  Values results(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(at.carries));
  for (size_t i = at.carries; i < types.size(); ++i)
    results.push_back(make_value(types[i], std::make_shared<Storage>(types[i].bytes())));
  std::map<std::string, HTensor> leaves;
  for (size_t i = at.carries; i < at.steady(); ++i) leaves[std::to_string(i)] = inputs[i];
  const auto piece = [&](const HTensor& whole, int64_t place) {
    const TensorType type = slice_of(type_of(whole));
    const auto& storage = whole.raw()->storage;
    return view_of(type, static_cast<std::byte*>(storage->data()) + static_cast<size_t>(place) * type.bytes(), storage);
  };
  for (int64_t step = 0; step < at.length; ++step) {
    const int64_t place = at.place(step);
    for (size_t i = 0; i < at.carries; ++i) leaves[std::to_string(i)] = results[i];
    for (size_t i = at.steady(); i < inputs.size(); ++i) leaves[std::to_string(i)] = piece(inputs[i], place);
    const Values now = interpret(*node.body, leaves);
    for (size_t i = 0; i < at.carries; ++i) results[i] = now[i];
    for (size_t i = at.carries; i < now.size(); ++i) {
      const size_t bytes = type_of(now[i]).bytes();
      auto* to = static_cast<std::byte*>(results[i].raw()->storage->data());
      if (bytes) std::memcpy(to + static_cast<size_t>(place) * bytes, now[i].raw()->storage->data(), bytes);
    }
  }
  return results;
}

namespace {

Values apply_scan(Node node, const Values& operands) {
  node.op = Op::scan;
  node.inputs.resize(operands.size());
  const std::vector<TensorType> types = infer_scan(node, types_of(operands));
  for (const HTensor& x : operands) {
    if (!x.raw()->traced()) continue;
    if (Tracer* tracer = Tracer::current()) return tracer->append(std::move(node), operands, types);
    refuse(ErrorKind::Plugin, "an operand is a traced value, but its trace has ended");
  }
  return evaluate_scan(node, types, operands);
}

Node scan_node(std::shared_ptr<const Program> body, size_t carries, size_t constants, int64_t length, bool reverse) {
  Node node{};
  node.op = Op::scan;
  node.body = std::move(body);
  node.attributes.set("carries", static_cast<int64_t>(carries))
      .set("constants", static_cast<int64_t>(constants))
      .set("length", length)
      .set("reverse", reverse);
  return node;
}

Values together(std::initializer_list<const Values*> lists) {
  Values all;
  for (const Values* list : lists) all.insert(all.end(), list->begin(), list->end());
  return all;
}

}  // namespace

namespace {

// Values of enclosing traces that a body uses. Each becomes an input of the body.
class Captures {
 public:
  explicit Captures(Tracer& tracer) : tracer_(tracer) {}

  HTensor inner(const HTensor& value) {
    const auto [at, fresh] = places_.try_emplace({value.raw()->generation, value.raw()->id}, values.size());
    if (fresh) values.push_back(value);
    return tracer_.input(name(at->second), type_of(value));
  }
  // Renames inputs so that captured values follow the first `steady` operands.
  void number(Program& body, size_t steady, size_t xs) const {
    std::map<std::string, std::string> renamed;
    for (size_t i = 0; i < values.size(); ++i) renamed[name(i)] = std::to_string(steady + i);
    for (size_t i = steady; i < steady + xs; ++i) renamed[std::to_string(i)] = std::to_string(i + values.size());
    for (Node& node : body.nodes)
      if (const auto at = renamed.find(node.callee); node.op == Op::input && at != renamed.end())
        node.callee = at->second;
  }

  Values values;

 private:
  static std::string name(size_t i) { return "captured " + std::to_string(i); }

  Tracer& tracer_;
  std::map<std::pair<uint64_t, ValueId>, size_t> places_;
};

}  // namespace

Values scan(const ScanBody& body, const Values& carries, const Values& constants, const Values& xs, bool reverse,
            int64_t length) {
  const size_t steady = carries.size() + constants.size();
  const Values given = together({&carries, &constants, &xs});
  for (size_t i = steady; i < given.size(); ++i)
    if (given[i].rank() == 0)
      refuse(ErrorKind::Shape, operand_text(i, type_of(given[i])) + ", has no axis to go along");
  if (length < 0 && xs.empty()) refuse(ErrorKind::Usage, "without xs its length must be given");
  if (length < 0) length = xs[0].shape()[0];
  Tracer tracer("scan");
  Captures captured(tracer);
  tracer.set_capture([&](const HTensor& value) { return captured.inner(value); });
  Values handles;
  for (size_t i = 0; i < given.size(); ++i) {
    const TensorType type = type_of(given[i]);
    handles.push_back(tracer.input(std::to_string(i), i < steady ? type : slice_of(type)));
  }
  const Values results = body(handles);
  for (size_t i = 0; i < results.size(); ++i) tracer.output(std::to_string(i), results[i]);
  Program program = tracer.take();
  captured.number(program, steady, xs.size());
  return apply_scan(scan_node(std::make_shared<const Program>(std::move(program)), carries.size(),
                              constants.size() + captured.values.size(), length, reverse),
                    together({&carries, &constants, &captured.values, &xs}));
}

namespace {

// Returns the result that contains carry i before every step: a y that is directly the body's input.
std::optional<size_t> saved_result(const Node& node, const ScanLayout& at, size_t carry) {
  const Node* leaf = leaf_of(*node.body, carry);
  for (size_t i = at.carries; leaf && i < node.body->outputs.size(); ++i)
    if (node.body->outputs[i].value == leaf->outputs[0]) return i;
  return std::nullopt;
}

// Appends a program's nodes to the trace. Returns its values by id.
Values replay(Tracer& tracer, const Program& program, const std::map<std::string, HTensor>& leaves) {
  Values values(program.values.size());
  for (const Node& node : program.nodes) {
    if (node.op == Op::input) {
      values[node.outputs[0]] = leaves.at(node.callee);
      continue;
    }
    Values inputs;
    for (ValueId v : node.inputs) inputs.push_back(values[v]);
    const Values results = tracer.append(node, inputs, output_types(program, node));
    for (size_t i = 0; i < results.size(); ++i) values[node.outputs[i]] = results[i];
  }
  return values;
}

}  // namespace

void save_carries(Program& program, Node& node) {
  const ScanLayout at(node);
  auto body = std::make_shared<Program>(*node.body);
  for (size_t i = 0; i < at.carries; ++i) {
    const Node* leaf = leaf_of(*body, i);
    if (!leaf || saved_result(node, at, i)) continue;
    const ValueId v = leaf->outputs[0];
    body->outputs.push_back({std::to_string(body->outputs.size()), v});
    node.outputs.push_back(static_cast<ValueId>(program.values.size()));
    program.values.push_back({stacked(body->type(v), at.length), 0, 0});
  }
  node.body = std::move(body);
}

namespace {

// Operands of the gradient's scan, and the positions of the forward body's inputs and result gradients among them.
struct GradientOperands {
  Values all;
  size_t carries = 0, constants = 0;
  std::vector<size_t> targets;          // operands of the forward scan that have gradients: carries, constants, xs
  std::map<std::string, size_t> reads;  // by input of the forward body: operand
  std::map<size_t, size_t> of_result;   // by result of the forward body: operand with its gradient

  GradientOperands(const Node& node, const ScanLayout& at, const Values& inputs, const Values& outputs,
                   const Values& dy, const std::vector<bool>& wanted) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (is_float(inputs[i].dtype()) && (i < at.carries || wanted[i])) targets.push_back(i);
    // Carries of the gradient's scan: gradients of the carries, and sums of the gradients of the constants.
    for (const size_t i : targets) {
      if (i >= at.steady()) break;
      if (i < at.carries) of_result[i] = all.size();
      all.push_back(i < at.carries && dy[i] ? dy[i] : zeros_like(inputs[i]));
    }
    carries = all.size();
    const auto add = [&](size_t i, const HTensor& operand) {
      reads[std::to_string(i)] = all.size();
      all.push_back(operand);
    };
    for (size_t i = at.carries; i < at.steady(); ++i)
      if (leaf_of(*node.body, i)) add(i, inputs[i]);
    constants = all.size() - carries;
    for (size_t i = 0; i < at.carries; ++i)
      if (leaf_of(*node.body, i)) add(i, outputs.at(saved_result(node, at, i).value()));
    for (size_t i = at.steady(); i < inputs.size(); ++i)
      if (leaf_of(*node.body, i)) add(i, inputs[i]);
    for (size_t i = at.carries; i < dy.size(); ++i) {
      if (!dy[i]) continue;
      of_result[i] = all.size();
      all.push_back(dy[i]);
    }
  }
};

}  // namespace

std::vector<HTensor> gradient_scan(const Node& node, const std::vector<HTensor>& inputs,
                                   const std::vector<HTensor>& outputs, const std::vector<HTensor>& output_gradients,
                                   const std::vector<bool>& wanted, Chooser* chooser) {
  const ScanLayout at(node);
  const Program& body = *node.body;
  const GradientOperands operands(node, at, inputs, outputs, output_gradients, wanted);
  Tracer tracer(body.name + " gradient");
  Values handles;
  for (size_t i = 0; i < operands.all.size(); ++i) {
    const TensorType type = type_of(operands.all[i]);
    handles.push_back(
        tracer.input(std::to_string(i), i < operands.carries + operands.constants ? type : slice_of(type)));
  }
  std::map<std::string, HTensor> leaves;
  for (const auto& [name, i] : operands.reads) leaves[name] = handles[i];
  const Values values = replay(tracer, body, leaves);
  std::vector<std::pair<HTensor, HTensor>> seeds;
  for (const auto& [result, i] : operands.of_result) seeds.emplace_back(values[body.outputs[result].value], handles[i]);
  Values wrt;
  for (const size_t t : operands.targets)
    if (const auto leaf = leaves.find(std::to_string(t)); leaf != leaves.end()) wrt.push_back(leaf->second);
  const Values found = pullback(tracer, seeds, wrt, chooser);
  size_t next = 0;
  for (size_t k = 0; k < operands.targets.size(); ++k) {
    const size_t t = operands.targets[k];
    const TensorType type = type_of(inputs[t]);
    const TensorType one = t < at.steady() ? type : slice_of(type);
    HTensor g = leaves.count(std::to_string(t)) ? found[next++] : full(one.dtype, one.shape, 0);
    if (t >= at.carries && t < at.steady()) g = add(handles[k], g);
    tracer.output(std::to_string(k), g);
  }
  const auto back = std::make_shared<const Program>(tracer.take());
  const Values results =
      apply_scan(scan_node(back, operands.carries, operands.constants, at.length, !at.reverse), operands.all);
  std::vector<HTensor> gradients(inputs.size());
  for (size_t k = 0; k < operands.targets.size(); ++k) gradients[operands.targets[k]] = results[k];
  return gradients;
}

}  // namespace harmonics::engine
