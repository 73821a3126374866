// What a training step keeps from the forward pass until the backward pass reads it, and how much of it presets of
// recomputation leave: read off plans that do not run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

struct KeptValue {
  std::string scope;      // NodeScope::text() of what makes it
  std::string layer;      // "blk.3", by the value's scope; "": of no block
  std::string operation;  // the rest of the scope: "QKV"; of a flow's layer the whole scope
  // "ln1.output", "qkv_output", "lse", ...: the usual name of what operations of .ndsl files keep; of others the
  // operation's
  std::string name;
  std::vector<std::string> inputs;  // usual names of the maps that read it: "qkv_input", "mlp_up_input"; often none
  TensorType type;
  bool statistic = false;  // a mean, rstd or lse, which stays f32 in any precision

  uint64_t bytes() const { return type.bytes(); }
  // With floating-point results in 16 bits.
  uint64_t bytes_in_16_bits() const;
};

// "blk.3" and "QKV" of the scope "blk.3.QKV", "x.y.blk.3" and "QKV" of one in a flow; "" and the whole scope of others.
std::pair<std::string, std::string> layer_and_operation(const std::string& path);

// Of a program after its last pass, in its order. Each value counts once, views of it do not.
std::vector<KeptValue> kept_values(const Program& program);

struct StepMemory {
  std::string recompute;  // the preset; "none"
  std::vector<KeptValue> kept;
  MemoryReport plan;  // arena_bytes: the most memory that results need at one time

  uint64_t kept_bytes() const;
  // Mean over the layers "blk.N"; 0: there are none.
  uint64_t bytes_per_layer() const;
  uint64_t bytes_per_layer_in_16_bits() const;
};

// Plans of the step for these settings of --recompute ("none", "attention", ...), none of which runs. `binding`: of
// tensors that may have no memory (ParameterStore::reserve_only).
std::vector<StepMemory> step_memory(const Program& step, TensorBinding& binding, const CompileOptions& compile,
                                    const std::vector<std::string>& recompute);

// A model with the same entries whose parameters have addresses, but no memory: numbers that are not trained keep their
// types and stay frozen, others are weights.
Model planned_model(const Model& model, const EntrySizes& sizes);

}  // namespace harmonics::engine
