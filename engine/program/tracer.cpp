#include "engine/program/tracer.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "engine/base/spelling.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

thread_local Tracer* innermost = nullptr;

uint64_t next_generation() {
  static std::atomic<uint64_t> count{0};
  return ++count;
}

HTensor copy_of(const HTensor& numbers) {
  const TensorType type = type_of(numbers);
  auto storage = std::make_shared<Storage>(type.bytes());
  if (type.bytes()) std::memcpy(storage->data(), numbers.raw()->storage->data(), type.bytes());
  return make_value(type, std::move(storage));
}

}  // namespace

Tracer::Tracer(std::string name) : generation_(next_generation()), outer_(innermost) {
  program_.name = std::move(name);
  innermost = this;
}

Tracer::Tracer(Program program) : Tracer(std::string(program.name)) {
  program_ = std::move(program);
  for (const Node& node : program_.nodes) {
    if (is_named_leaf(node.op)) leaves_.emplace(std::pair(node.op, node.callee), node.outputs.at(0));
    if (node.op == Op::literal && node.literal.raw()->storage->owned())
      literals_.emplace(node.literal.raw(), std::pair(node.literal, node.outputs.at(0)));
  }
  for (size_t i = 0; i < program_.scopes.size(); ++i) scopes_.emplace(program_.scopes[i], static_cast<uint32_t>(i));
  for (size_t i = 0; i < program_.outputs.size(); ++i) outputs_.emplace(program_.outputs[i].name, i);
  for (size_t i = 0; i < program_.updates.size(); ++i) updates_.emplace(program_.updates[i].name, i);
}

Tracer::~Tracer() { close(); }

void Tracer::close() {
  if (!open_) return;
  open_ = false;
  if (innermost == this) {
    innermost = outer_;
    return;
  }
  for (Tracer* t = innermost; t; t = t->outer_)
    if (t->outer_ == this) t->outer_ = outer_;
}

Tracer* Tracer::current() { return innermost; }

HTensor Tracer::leaf(Op op, const std::string& name, const TensorType& type) {
  const auto [it, fresh] = leaves_.try_emplace({op, name}, 0);
  if (fresh) {
    Node node{};
    node.op = op;
    node.callee = name;
    it->second = id_of(append(std::move(node), {}, {type}).at(0));
  } else if (program_.type(it->second) != type) {
    throw Error(ErrorKind::Shape, std::string(op_name(op)) + " '" + name + "' is " + program_.type(it->second).str() +
                                      " already; it cannot be " + type.str() + " as well");
  }
  return handle(it->second);
}

void Tracer::output(const std::string& name, const HTensor& value) {
  if (!outputs_.emplace(name, program_.outputs.size()).second)
    throw Error(ErrorKind::Internal, "program '" + program_.name + "' has an output '" + name + "' already");
  program_.outputs.push_back({name, id_of(value)});
}

void Tracer::update(const std::string& name, const HTensor& value) {
  const ValueId id = id_of(value);
  const auto [at, fresh] = updates_.emplace(name, program_.updates.size());
  if (fresh)
    program_.updates.push_back({name, id});
  else
    program_.updates[at->second].value = id;
}

HTensor Tracer::result(const std::string& name) {
  if (const auto at = outputs_.find(name); at != outputs_.end()) return handle(program_.outputs[at->second].value);
  std::vector<std::string> known;
  for (const NamedValue& output : program_.outputs) known.push_back(output.name);
  throw unknown("output", name, known);
}

HTensor Tracer::parameter(const std::string& name) {
  if (const auto at = leaves_.find({Op::parameter, name}); at != leaves_.end()) return handle(at->second);
  std::vector<std::string> known;
  for (const auto& [leaf, id] : leaves_)
    if (leaf.first == Op::parameter) known.push_back(leaf.second);
  throw unknown("parameter", name, known);
}

Error Tracer::unknown(const char* what, const std::string& name, const std::vector<std::string>& known) const {
  Error error(ErrorKind::Name, "program '" + program_.name + "' has no " + what + " '" + name + "'");
  if (const auto near = nearest(name, known)) error.note("did you mean '" + *near + "'?");
  return error;
}

std::vector<HTensor> Tracer::append(Node node, const std::vector<HTensor>& inputs,
                                    const std::vector<TensorType>& types) {
  if (!open_) throw Error(ErrorKind::Internal, "the trace of program '" + program_.name + "' has ended");
  if (steps_ && steps_->left() == 0)
    steps_->refuse(1, scope_.path.empty() ? "the flow" : "'" + scope_.text() + "'", "its next operation");
  if (steps_) steps_->take(1, {}, {});
  node.inputs.clear();
  for (const HTensor& t : inputs) node.inputs.push_back(id_of(t));
  node.scope = scope_index_;
  const uint32_t index = program_.append(std::move(node), types);
  std::vector<HTensor> results;
  for (ValueId v : program_.nodes[index].outputs) results.push_back(handle(v));
  return results;
}

ValueId Tracer::literal(const HTensor& numbers) {
  const bool stable = numbers.raw()->storage->owned();
  if (stable)
    if (const auto it = literals_.find(numbers.raw()); it != literals_.end()) return it->second.second;
  Node node{};
  node.op = Op::literal;
  node.literal = stable ? numbers : copy_of(numbers);
  node.scope = scope_index_;
  const uint32_t index = program_.append(std::move(node), {type_of(numbers)});
  const ValueId id = program_.nodes[index].outputs[0];
  if (stable) literals_.emplace(numbers.raw(), std::pair(numbers, id));
  return id;
}

bool Tracer::encloses(uint64_t generation) const {
  for (const Tracer* t = outer_; t; t = t->outer_)
    if (t->generation_ == generation) return true;
  return false;
}

ValueId Tracer::id_of(const HTensor& value) {
  if (value.empty())
    throw Error(ErrorKind::Internal, "an empty tensor cannot be part of program '" + program_.name + "'");
  const hx_value& v = *value.raw();
  if (!v.traced()) return literal(value);
  if (v.generation != generation_ && capture_ && encloses(v.generation)) return id_of(capture_(value));
  if (v.generation != generation_)
    throw Error(ErrorKind::Plugin,
                "a traced value of type " + v.type.str() + " is used outside the trace it belongs to", {},
                {"keep numbers between calls, not the tensors that an operation gave while it was traced"});
  return v.id;
}

HTensor Tracer::handle(ValueId id) { return make_traced(program_.type(id), generation_, id); }

NodeScope Tracer::set_scope(NodeScope scope) {
  NodeScope former = std::exchange(scope_, std::move(scope));
  if (former == scope_) return former;
  const auto [at, fresh] = scopes_.emplace(scope_, static_cast<uint32_t>(program_.scopes.size()));
  scope_index_ = at->second;
  if (fresh) program_.scopes.push_back(scope_);
  return former;
}

Program Tracer::take() {
  close();
  generation_ = next_generation();
  leaves_.clear();
  scopes_ = {{NodeScope(), 0}};
  outputs_.clear();
  updates_.clear();
  literals_.clear();
  scope_ = {};
  scope_index_ = 0;
  Program taken = std::exchange(program_, {});
  program_.name = taken.name;
  renumber(taken);
  verify(taken);
  return taken;
}

TraceScope::TraceScope(std::string_view text) : tracer_(Tracer::current()) {
  if (!tracer_) return;
  NodeScope scope = scope_of_text(text);
  if (scope.phase == Phase::forward) scope.phase = tracer_->scope().phase;
  scope.origin = tracer_->scope().origin;
  former_ = tracer_->set_scope(std::move(scope));
}

TraceScope::TraceScope(NodeScope scope) : tracer_(Tracer::current()) {
  if (tracer_) former_ = tracer_->set_scope(std::move(scope));
}

TraceScope::~TraceScope() {
  if (tracer_) tracer_->set_scope(std::move(former_));
}

TracePause::TracePause() : paused_(std::exchange(innermost, nullptr)) {}

TracePause::~TracePause() { innermost = paused_; }

}  // namespace harmonics::engine
