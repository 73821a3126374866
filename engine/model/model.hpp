// Model: named computations over one set of weights. Created by front ends, and used by plans, sessions and tools
// independently of its origin.
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

// Sizes and options for tracing an entry. Shapes in programs are concrete, so each set of sizes gives another program.
struct EntrySizes {
  int64_t batch = 1;           // samples or sequences
  int64_t tokens = 1;          // positions per sequence and run
  int64_t capacity = 1;        // positions that fit in the caches
  bool training = false;       // training mode: dropout is active, running statistics are updated
  bool parts = false;          // training: separate objectives for parts of the loss with different counts
  bool metric_inputs = false;  // add the outputs "LAYER.prediction" and "LAYER.target", the inputs of metrics
  bool sample_losses = false;  // add the outputs "LAYER.sample_loss" described by LossInfo
  // Above 0, for models with Model::paged: caches are pools of this many pages, each of `page_rows` positions. The
  // input "pages" i32 [batch, capacity / page_rows] contains the pages of each sequence; -1: none.
  int64_t pages = 0, page_rows = 0;
  int64_t scored = 0;       // with pages: number of leading sequences that have results; 0: all
  bool operations = false;  // also add "value:..." for each operation of a block, if the front end has operations
  // Without caches: the input "documents" i32 [batch, tokens] contains the document number of each token, in ascending
  // order. Tokens attend only to their own document, whose positions begin at 0.
  bool documents = false;
  bool frozen = false;  // with training: frozen weights, as of a teacher; no dropout, no auxiliary loss
};

// Memory that belongs to one session and persists between runs, such as a cache.
struct ModelState {
  std::string name;
  std::function<TensorType(const EntrySizes&)> type;
  uint32_t growing_axis = 1;  // the axis of EntrySizes::capacity
};

// One computation. Its leaves are inputs, and the model's parameters and states. Its outputs are results, and values
// for observers named "value:...". Common names: "forward" computes results from inputs; "loss" has the scalar output
// "loss".
struct Entry {
  using Body = std::function<void(Tracer&, const EntrySizes&, EntryResults&)>;
  Entry(std::string entry, Body traces) : name(std::move(entry)), body(std::move(traces)) {}
  // For a body that leaves EntryResults empty.
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
  int64_t context = 0;  // maximum number of positions in a sequence
  // Returns the number of positions that scaled rotary embeddings cover; empty, and at least: `context`.
  std::function<int64_t()> covered;
  int64_t vocabulary = 0;
  std::shared_ptr<ParameterStore> parameters = std::make_shared<ParameterStore>();
  std::vector<ModelState> states;
  std::vector<Entry> entries;
  bool paged = false;  // prefill, decode and states support EntrySizes::pages and any batch size
  ModelLimits limits;  // limits of the programs
  // Called for every program of the model; may be empty. The front end may throw, for example if weights are missing.
  std::function<void(const Entry&, const EntrySizes&, const Program&)> made;
  std::shared_ptr<const TrainedAdapter> adapter;  // if set, training changes only this adapter

  // Throws ErrorKind::Name, with the nearest name, for an unknown entry.
  const Entry& entry(const std::string& name) const;
  const Entry* find(const std::string& name) const;  // null: unknown name
  // Returns the entry's program for these sizes, named MODEL/ENTRY, with all outputs for observers.
  Program trace(const Entry& entry, const EntrySizes& sizes) const;
};

}  // namespace harmonics::engine
