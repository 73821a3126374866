// Activation memory of a training step: the values kept from the forward pass for the backward pass, under each
// recomputation preset. Taken from plans, without running them.
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
  std::string scope;      // NodeScope::text() of the producer
  std::string layer;      // "blk.3"; "": outside of blocks
  std::string operation;  // the rest of the scope, such as "QKV"; outside of blocks the whole scope
  // "ln1.output", "qkv_output", "lse", ...: the conventional name for operations of .ndsl files; for others the name
  // of the operation.
  std::string name;
  std::vector<std::string> inputs;  // conventional names as an input of maps: "qkv_input", "mlp_up_input"; often none
  TensorType type;
  bool statistic = false;  // a mean, rstd or lse, which stays f32 in any precision

  uint64_t bytes() const { return type.bytes(); }
  // Size if floating-point values had 16 bits.
  uint64_t bytes_in_16_bits() const;
};

// Splits "blk.3.QKV" into "blk.3" and "QKV", and "x.y.blk.3.QKV", as in flows, into "x.y.blk.3" and "QKV". For other
// scopes, returns "" and the whole scope.
std::pair<std::string, std::string> layer_and_operation(const std::string& path);

// Returns the kept values of a program after its last pass, in program order. Views are counted as the value they
// alias.
std::vector<KeptValue> kept_values(const Program& program);

struct StepMemory {
  std::string recompute;  // the preset; "none"
  std::vector<KeptValue> kept;
  MemoryReport plan;  // arena_bytes: peak memory of results

  uint64_t kept_bytes() const;
  // Mean over the layers "blk.N"; 0 if there are none.
  uint64_t bytes_per_layer() const;
  uint64_t bytes_per_layer_in_16_bits() const;
};

// Plans the step for each of these settings of --recompute ("none", "attention", ...), without running it. Tensors of
// `binding` need no memory (ParameterStore::reserve_only).
std::vector<StepMemory> step_memory(const Program& step, TensorBinding& binding, const CompileOptions& compile,
                                    const std::vector<std::string>& recompute);

// Returns a model with the same entries whose parameters have addresses but no memory. Floating-point parameters become
// weights; those of integer and quantized types stay frozen.
Model planned_model(const Model& model, const EntrySizes& sizes);

}  // namespace harmonics::engine
