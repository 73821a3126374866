// Where every value of a program lives while it runs: inputs, parameters and states, constants, one shared arena.
//
// Reshapes and contiguous slices are views. A step may write over an input that dies with it. The new value of a parameter
// is written into the parameter's memory when nothing reads the old value later; else it is copied there at the end.
#pragma once

#include <string>
#include <vector>

#include "engine/execution/placement.hpp"
#include "engine/program/program.hpp"

namespace harmonics {

// A node that runs, in order, and what its kernel allows.
struct PlannedStep {
  uint32_t node = 0;
  uint64_t workspace = 0;
  uint32_t in_place = 0;        // bit i: output 0 may be the memory of input i
  // An optimizer's (w, g, moments...) -> w', moments'..., for one parameter or several side by side: so many results for each, which may be
  // the memory of the old ones. 0: it is none.
  uint32_t update_results = 0;
};

enum class Place : uint8_t { nowhere, input, state, constant, arena };

struct Location {
  Place place = Place::nowhere;
  uint32_t index = 0;   // input: into inputs; state: into states; constant: the node
  uint64_t offset = 0;  // bytes
};

struct PlannedCopy {
  Location from, to;
  uint64_t bytes = 0;
};

struct MemoryPlan {
  struct State {
    std::string name;
    TensorType type;
  };
  std::vector<uint32_t> inputs;          // nodes
  std::vector<State> states;             // parameters and states, by name once
  std::vector<Location> values;          // by value
  std::vector<Location> outputs;         // by Program::outputs
  std::vector<Location> workspaces;      // by step
  std::vector<bool> in_place;            // by step: output 0 lies in an input's memory
  std::vector<PlannedCopy> saves;        // before the first step: old values that are read at the end
  std::vector<PlannedCopy> commits;      // after the last step
  std::vector<BufferSpan> buffers;       // of the arena
  Placement placement;
  uint64_t unshared_bytes = 0, workspace_bytes = 0;
};

// Is this node only another view of its input?
bool is_view(const Program& program, const Node& node);
// Steps before `rest` may change no parameter or state; rest == steps.size(): there are none after.
MemoryPlan plan_memory(const Program& program, const std::vector<PlannedStep>& steps, uint32_t rest);

}  // namespace harmonics
