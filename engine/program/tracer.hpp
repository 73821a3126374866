// Tracing: while a Tracer is open on a thread, operations on its values append nodes instead of computing results.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <harmonics/budget.hpp>

#include "engine/program/program.hpp"

namespace harmonics::engine {

class Tracer {
 public:
  explicit Tracer(std::string name);  // becomes the innermost tracer of this thread
  // Continues a program. Values keep their ids; leaves, outputs, updates, scopes and literals are reused.
  explicit Tracer(Program program);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Charges `steps` for every node appended after this call; null: no budget. The budget must outlive the trace.
  void set_budget(Budget* steps) { steps_ = steps; }

  static Tracer* current();  // innermost of this thread, or null

  Program& program() { return program_; }
  HTensor input(const std::string& name, const TensorType& type) { return leaf(Op::input, name, type); }
  // Returns the same value for the same name and kind. Throws if the type differs.
  HTensor parameter(const std::string& name, const TensorType& type) { return leaf(Op::parameter, name, type); }
  HTensor state(const std::string& name, const TensorType& type) { return leaf(Op::state, name, type); }
  void output(const std::string& name, const HTensor& value);
  void update(const std::string& name, const HTensor& value);  // replaces an earlier update of this name
  HTensor result(const std::string& name);  // the value of an output; throws ErrorKind::Name if it does not exist
  // Returns an existing parameter. Throws ErrorKind::Name, with the nearest name, if it does not exist.
  HTensor parameter(const std::string& name);

  // Appends a node; concrete inputs become literals.
  std::vector<HTensor> append(Node node, const std::vector<HTensor>& inputs, const std::vector<TensorType>& types);
  // Returns the id of a value of this trace; tensors become literals. Throws for stale handles.
  ValueId id_of(const HTensor& value);
  HTensor handle(ValueId id);  // handle of an existing value

  // Sets the scope of nodes appended after this call. Returns the previous one.
  NodeScope set_scope(NodeScope scope);
  const NodeScope& scope() const { return scope_; }

  // Replaces values of enclosing traces by `inner(value)`, a value of this trace. Called at every use.
  void set_capture(std::function<HTensor(const HTensor& value)> inner) { capture_ = std::move(inner); }

  // Returns the verified program, with values in node order, and ends the trace. Its handles become stale.
  Program take();

 private:
  HTensor leaf(Op op, const std::string& name, const TensorType& type);
  ValueId literal(const HTensor& numbers);
  Error unknown(const char* what, const std::string& name, const std::vector<std::string>& known) const;
  bool encloses(uint64_t generation) const;  // whether it belongs to an outer open trace
  void close();                              // removes it from this thread's stack

  Program program_;
  uint64_t generation_;
  Tracer* outer_;
  bool open_ = true;
  Budget* steps_ = nullptr;
  std::function<HTensor(const HTensor&)> capture_;
  NodeScope scope_;
  uint32_t scope_index_ = 0;
  std::map<std::pair<Op, std::string>, ValueId> leaves_;
  std::map<NodeScope, uint32_t> scopes_{{NodeScope(), 0}};     // indices into program_.scopes
  std::unordered_map<std::string, size_t> outputs_, updates_;  // indices into program_.outputs, program_.updates
  // Existing literals by tensor handle. Keeping the handle prevents writes to the tensor.
  std::unordered_map<const hx_value*, std::pair<HTensor, ValueId>> literals_;
};

// RAII for Tracer::set_scope on the current tracer; no-op if none is open. Texts are parsed as by scope_of_text(), but
// keep the current origin, and the current phase if they contain none.
class TraceScope {
 public:
  explicit TraceScope(std::string_view text);
  explicit TraceScope(NodeScope scope);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Tracer* tracer_;
  NodeScope former_;
};

// RAII: hides all tracers of this thread, so that operations compute immediately.
class TracePause {
 public:
  TracePause();
  ~TracePause();
  TracePause(const TracePause&) = delete;
  TracePause& operator=(const TracePause&) = delete;

 private:
  Tracer* paused_;
};

// Applies an operation by name. Traces it if an input is traced, or if it is a source while a tracer is open; otherwise
// evaluates it with the reference. A traced functional becomes a call node; otherwise its body is evaluated.
std::vector<HTensor> apply(std::string_view op, const AttributeMap& attributes, const std::vector<HTensor>& inputs);

}  // namespace harmonics::engine
