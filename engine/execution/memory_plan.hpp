// Memory plan: the location of every value while a program runs. Locations are inputs, parameters and states,
// constants, and one shared arena.
//
// Reshapes and contiguous slices are views. A step may overwrite an input that it is the last to use. The new value of
// a parameter is written into the parameter's memory if no later step reads the old value; otherwise it is copied there
// at the end.
#pragma once

#include <string>
#include <vector>

#include "engine/execution/placement.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// A step in execution order, and what its kernel allows.
struct PlannedStep {
  uint32_t node = 0;
  uint64_t workspace = 0;
  uint32_t in_place = 0;  // bit i: output 0 may share the memory of input i
  // For optimizer steps (w, g, moments...) -> w', moments'..., of one or several parameters: results per parameter,
  // which may overwrite the old values. 0 for other steps.
  uint32_t update_results = 0;
  uint32_t gradient_operands = 1;  // for optimizer steps: 1 for g, 2 for the factors of g
  // May run at the same time as the step before it, and as those that this one joins: they share no memory.
  bool joins = false;
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
  std::vector<uint32_t> inputs;      // nodes
  std::vector<State> states;         // parameters and states, once per name
  std::vector<Location> values;      // by value
  std::vector<Location> outputs;     // by Program::outputs
  std::vector<Location> workspaces;  // by step
  std::vector<bool> in_place;        // by step: output 0 shares the memory of an input
  std::vector<PlannedCopy> saves;    // before the first step: old values needed at the end
  std::vector<PlannedCopy> commits;  // after the last step
  std::vector<BufferSpan> buffers;   // of the arena
  Placement placement;
  uint64_t unshared_bytes = 0, workspace_bytes = 0;
};

// Returns whether the node is only a view of its input.
bool is_view(const Program& program, const Node& node);
// Plans the memory. Steps before `rest` must not change a parameter or state. rest == steps.size() if all steps belong
// to the forward pass.
MemoryPlan plan_memory(const Program& program, const std::vector<PlannedStep>& steps, uint32_t rest);

}  // namespace harmonics::engine
