// Lowers a graph to programs: widths first, then one trace per entry, batch size and set of active branches.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/flow/graph.hpp"
#include "engine/model/parameter_store.hpp"
#include "engine/program/program.hpp"
#include "engine/training/lower.hpp"

namespace harmonics::engine {

// Type of a bound stream.
struct StreamType {
  DType dtype = DType::F32;
  Shape sample;            // as given by the source, or as declared if the element counts are equal
  uint32_t positions = 0;  // leading sequence axes of a sample
  int64_t classes = 0;     // integers: classes or symbols; 0: unknown
  std::vector<std::string> symbols;
  uint64_t numbers = 0;  // count of numbers scanned for classes; 0: unknown, or not scanned
};

// A layer's shape per sample (its position axes first) and why.
struct Width {
  Shape shape;
  uint32_t positions = 0;
  std::string reason;  // "declared", "1/2 of hidden", "classes of labels", ...
};

struct Widths {
  std::map<int, Width> of;         // node index -> width
  std::vector<std::string> notes;  // "layer 'output' is 10 wide ... not 196"
};

// Shapes of already loaded weights by parameter name; they have the highest priority.
using LoadedShapes = std::map<std::string, Shape>;

// Producers' sample types come from `streams` (node index); producers unused in `cycles` may be absent. Throws an
// Error with its location if a width contradicts another, cannot be determined or exceeds the limits; SourceErrors if
// there are several. A width that depends on a refused one is not an error.
Widths resolve_widths(const Graph& graph, const std::map<int, StreamType>& streams, const LoadedShapes& loaded,
                      const ModelLimits& limits = {});

// Returns the errors of widths that depend on no refused node and on no producer without a type, up to twenty in order
// of the text.
std::vector<Error> width_errors(const Graph& graph, const std::map<int, StreamType>& streams,
                                const LoadedShapes& loaded, std::set<int> refused, const ModelLimits& limits = {});

// How a graph uses a producer's numbers.
struct StreamUse {
  bool compared = false;   // a tap's loss takes them as classes
  bool looked_up = false;  // a function takes them as row indices, as embed does
  bool computed = false;   // an arrow takes them as numbers
  bool tokens = false;     // a model reads them, or its scores are compared with them
};
StreamUse use_of(const Graph& graph, int producer);
// Whether the graph computes with the numbers of such samples, or compares them as numbers. Bytes are then scaled to
// [0, 1].
bool read_as_numbers(const Graph& graph, int producer, const StreamType& type);
// Returns a producer's sample type: the source's type with the declaration applied.
StreamType declared_stream(const GraphNode& node, const StreamType& source, const StreamUse& use);
// CountedPositions::key of a loss that ignores a class; empty: every position counts.
std::string counted_by(const Graph& graph, const GraphTap& tap, const BoundCall& loss);

// The part of a flow that a model computes.
struct FlowPart {
  int cycle = 0;
  std::set<int> branches;   // active branch literals; see GraphEdge::branches
  std::vector<int> wanted;  // layers and consumers whose values are results; empty: none
  uint64_t seed = 0;        // of initial weights
  ModelLimits limits;       // set by BoundGraph
};

struct LoweringOptions : StepOptions, FlowPart {};

// Traces one entry of a flow: forward, and the losses unless the mode is infer. Inputs: one per producer used ("NAME":
// [batch, sample...]), and the counter (see StepInput) if there are random nodes. Outputs: "out:NAME" for the wanted
// values, "value:LAYER", "loss", "LAYER.loss" (and their parts, if there are several), "LAYER.correct"; with
// `sizes.metric_inputs` "LAYER.prediction" and "LAYER.target"; to train "objective:N". Updates: states, in training.
// Numbers in `results` are nodes of the graph.
void trace_entry(Tracer& tracer, const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 ParameterStore& store, const FlowPart& part, Mode mode, const EntrySizes& sizes,
                 EntryResults& results);

// lower() of the model of this part over a store that outlives the call.
Lowered lower(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths, ParameterStore& store,
              const LoweringOptions& options);

}  // namespace harmonics::engine
