// Architectures of imported models: built-in specs by `general.architecture`, or a spec of the user.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsl/spec/spec.hpp"
#include "engine/model/imported.hpp"
#include "engine/model/model.hpp"
#include "engine/transformer/resolved_spec.hpp"
#include "engine/transformer/trained_adapter.hpp"

namespace harmonics::engine {

struct ModelOptions {
  // Type to convert matrices to in memory, if their row length is a multiple of its block size; none: unchanged.
  std::optional<DType> weights;
  DType cache = DType::F32;         // or F16, Q8_0
  std::optional<specs::Spec> spec;  // none: that of the architecture
  SpecOverrides set;                // values for variables of the spec
  int64_t length = 0;               // maximum length of sequences in tokens; 0: the model's context
  std::vector<AdapterFile> adapters = {};
  std::optional<LoraSettings> lora = {};  // an adapter to train, in addition to `adapters`
};

// Returns the architectures that builtin_spec() knows, sorted.
std::vector<std::string> builtin_architectures();
bool has_builtin_spec(const ModelMetadata& metadata);
// Returns the spec of a model's architecture. Throws ErrorKind::Weights, with the known ones, if it is unknown; `model`
// is for the message.
specs::Spec builtin_spec(const ModelMetadata& metadata, const std::string& model);

// Applies the spec to the model's metadata and tensors. Checks everything that can be checked before reading data,
// including every entry's program for one token.
std::shared_ptr<ResolvedSpec> resolve_spec(const ImportedModel& imported, const ModelOptions& options = {});

// Returns a view of one matrix of the stack `all`.
HTensor expert_of(const HTensor& all, int64_t number);

// Calls `body` once for each parameter of the model, with a view of its elements in the file.
void each_weight(const ImportedModel& imported, const ResolvedSpec& resolved,
                 const std::function<void(const std::string& parameter, const HTensor& elements)>& body);

// Returns the model on views of the tensors in their file. Entries: "prefill" and "decode" as required by Decoder;
// "loss", without caches, with the inputs "tokens" and "targets" i32 [batch, tokens]; "forward", without caches, with
// the spec's outputs after each of the "tokens"; "embed", likewise, with the output "hidden" if the spec has it. For a
// spec without caches, only the last two.
Model model_of(const ImportedModel& imported, const ModelOptions& options = {});

// Adds these entries to a model in memory that has metadata and parameters. With `lora`, only its adapter is trained.
void add_architecture_entries(Model& model, DType cache = DType::F32, const std::optional<LoraSettings>& lora = {});

}  // namespace harmonics::engine
