// The architectures of imported models: specs that the program carries, by `general.architecture`, or a user's.
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
  // Type to convert matrices to, in memory, whose rows are whole blocks of it; none: as they are in the file.
  std::optional<DType> weights;
  DType cache = DType::F32;         // or F16, Q8_0
  std::optional<specs::Spec> spec;  // none: the one of the architecture
  SpecOverrides set;                // variables of the spec
  int64_t length = 0;               // tokens that sequences may have; 0: the model's context
  std::vector<AdapterFile> adapters = {};
  std::optional<LoraSettings> lora = {};  // an adapter to train, on top of these
};

// The names that builtin_spec() knows, sorted.
std::vector<std::string> builtin_architectures();
// Throws ErrorKind::Weights, with the known architectures, for another one; `model` is for the message.
specs::Spec builtin_spec(const std::string& architecture, const std::string& model);

// The spec applied to the model's metadata and tensors. Checks all that can be known before data moves: also every
// entry's program for one token.
std::shared_ptr<ResolvedSpec> resolve_spec(const ImportedModel& imported, const ModelOptions& options = {});

// One of the matrices that lie behind each other in `all`, where it lies.
HTensor expert_of(const HTensor& all, int64_t number);

// Calls `body` once for each parameter of the model, with its elements where they lie in the file.
void each_weight(const ImportedModel& imported, const ResolvedSpec& resolved,
                 const std::function<void(const std::string& parameter, const HTensor& elements)>& body);

// The model over the tensors where they lie in their file. Its entries: "prefill" and "decode" as Decoder needs them;
// "loss", without caches, of the inputs "tokens" and "targets" i32 [batch, tokens]; "forward", the spec's outputs after
// each of the "tokens" without caches; "embed", the output "hidden" of a spec that has it, likewise. A spec without
// caches gives the last two alone.
Model model_of(const ImportedModel& imported, const ModelOptions& options = {});

// The same for a model in memory, which has metadata and parameters; with `lora` only its adapter is trained.
void add_architecture_entries(Model& model, DType cache = DType::F32, const std::optional<LoraSettings>& lora = {});

}  // namespace harmonics::engine
