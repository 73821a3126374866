// Model: named computations over one set of weights. Front ends make it; plans, sessions and tools work on it without
// knowing where it came from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/model_limits.hpp"
#include "engine/model/entry_results.hpp"
#include "engine/model/imported.hpp"
#include "engine/model/parameter_store.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

// What one trace of an entry is made for. Shapes in programs are concrete, so other sizes are another program.
struct EntrySizes {
  int64_t batch = 1;           // samples or sequences
  int64_t tokens = 1;          // positions of each sequence that one run computes
  int64_t capacity = 1;        // positions that the caches hold
  bool training = false;       // as in a training step: dropout drops, running statistics move
  bool parts = false;          // training: objectives by parts of the loss with different counts, instead of its sum
  bool metric_inputs = false;  // "LAYER.prediction" and "LAYER.target", the inputs of metrics, are outputs
  bool sample_losses = false;  // "LAYER.sample_loss" is an output where LossInfo says so
  // Above 0, of a model with Model::paged: the caches are pools of so many pages, each of `page_rows` positions. The
  // input "pages" i32 [batch, capacity / page_rows] names the pages of each sequence; -1: none.
  int64_t pages = 0, page_rows = 0;
  int64_t scored = 0;       // with pages: results for the first so many sequences; 0: for all
  bool operations = false;  // "value:..." of each operation of a block, too, where a front end has such
  // Without caches: the input "documents" i32 [batch, tokens] numbers the documents packed into each sequence, rising.
  // A token sees its own document only, whose positions begin at 0.
  bool documents = false;
  bool frozen = false;  // with training: frozen weights, as of a teacher; no dropout, no auxiliary loss
};

// Memory that each session has for itself and that lasts from run to run.
struct ModelState {
  std::string name;
  std::function<TensorType(const EntrySizes&)> type;
  uint32_t growing_axis = 1;  // the axis of EntrySizes::capacity
};

// One computation: its leaves are inputs, the model's parameters and its states. Its outputs are its results and the
// values that can be observed, named "value:...". Names used by several front ends: "forward" computes results from
// inputs; "loss" has the scalar output "loss".
struct Entry {
  using Body = std::function<void(Tracer&, const EntrySizes&, EntryResults&)>;
  Entry(std::string entry, Body traces) : name(std::move(entry)), body(std::move(traces)) {}
  // A body that says nothing about its results.
  Entry(std::string entry, std::function<void(Tracer&, const EntrySizes&)> traces)
      : name(std::move(entry)),
        body([traces = std::move(traces)](Tracer& t, const EntrySizes& sizes, EntryResults&) { traces(t, sizes); }) {}

  std::string name;
  Body body;
};

struct TrainedAdapter;  // engine/transformer/trained_adapter.hpp

struct Model {
  std::string name;  // "stories260K.bin"
  ModelMetadata metadata;
  int64_t context = 0;  // most positions of a sequence
  int64_t vocabulary = 0;
  std::shared_ptr<ParameterStore> parameters = std::make_shared<ParameterStore>();
  std::vector<ModelState> states;
  std::vector<Entry> entries;
  bool paged = false;  // prefill, decode and states take EntrySizes::pages, and any batch
  ModelLimits limits;  // of the programs
  // The front end looks at every program made of the model: it may refuse it, for weights that a file lacks. May be
  // empty.
  std::function<void(const Entry&, const EntrySizes&, const Program&)> made;
  std::shared_ptr<const TrainedAdapter> adapter;  // that training changes, and nothing else; null: there is none

  // Throws ErrorKind::Name with the nearest entry.
  const Entry& entry(const std::string& name) const;
  const Entry* find(const std::string& name) const;  // null: there is none
  // The entry's program for these sizes, with everything that can be observed. Named MODEL/ENTRY.
  Program trace(const Entry& entry, const EntrySizes& sizes) const;
};

}  // namespace harmonics::engine
