// Tracing: while a Tracer is open on a thread, operations on its values append nodes instead of computing.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <harmonics/budget.hpp>

#include "engine/program/program.hpp"

namespace harmonics {

class Tracer {
 public:
  explicit Tracer(std::string name);  // becomes the innermost tracer of this thread
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Every node takes a step of it, from now on; null: none. It must outlive the trace.
  void set_budget(Budget* steps) { steps_ = steps; }

  static Tracer* current();  // innermost on this thread; null: none

  Program& program() { return program_; }
  HTensor input(const std::string& name, const TensorType& type) { return leaf(Op::input, name, type); }
  // The same name and kind gives the same value; another type for it is an error.
  HTensor parameter(const std::string& name, const TensorType& type) { return leaf(Op::parameter, name, type); }
  HTensor state(const std::string& name, const TensorType& type) { return leaf(Op::state, name, type); }
  void output(const std::string& name, const HTensor& value);
  void update(const std::string& name, const HTensor& value);  // replaces an earlier update of that name

  // Appends a node; concrete inputs become literals.
  std::vector<HTensor> append(Node node, const std::vector<HTensor>& inputs, const std::vector<TensorType>& types);
  // The id of a value of this tracer (a literal is made of numbers); stale handles are an error.
  ValueId id_of(const HTensor& value);
  HTensor handle(ValueId id);  // a traced handle to an existing value

  // Nodes appended while a scope is set carry it. Returns the former.
  std::string set_scope(const std::string& path);
  const std::string& scope() const { return scope_; }

  // The program, verified, values in the order of its nodes. Ends the trace: its handles are stale from here on.
  Program take();

 private:
  HTensor leaf(Op op, const std::string& name, const TensorType& type);
  ValueId literal(const HTensor& numbers);
  void close();  // no longer on this thread's stack

  Program program_;
  uint64_t generation_;
  Tracer* outer_;
  bool open_ = true;
  Budget* steps_ = nullptr;
  std::string scope_;
  uint32_t scope_index_ = 0;
  std::map<std::pair<Op, std::string>, ValueId> leaves_;
  std::unordered_map<std::string, uint32_t> scopes_{{"", 0}};  // places in program_.scopes
  std::unordered_map<std::string, size_t> outputs_, updates_;  // places in those of program_
  // Literals already made, by the numbers' handle; holding it keeps the numbers from being written.
  std::unordered_map<const hx_value*, std::pair<HTensor, ValueId>> literals_;
};

// RAII for Tracer::set_scope on the current tracer (nothing when none is open).
class TraceScope {
 public:
  explicit TraceScope(const std::string& path);
  ~TraceScope();

 private:
  Tracer* tracer_;
  std::string former_;
};

// RAII: while it lives, no tracer is open on this thread; numbers are computed at once.
class TracePause {
 public:
  TracePause();
  ~TracePause();
  TracePause(const TracePause&) = delete;
  TracePause& operator=(const TracePause&) = delete;

 private:
  Tracer* paused_;
};

// One operation by name on values of any kind: traced when an input is traced or a source op is applied inside a tracer,
// else evaluated by the reference. Functionals: a call node when traced, else the body runs.
std::vector<HTensor> apply(std::string_view op, const AttributeMap& attributes, const std::vector<HTensor>& inputs);

}  // namespace harmonics
