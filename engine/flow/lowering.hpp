// Lowers a graph to programs: resolves widths, then traces each entry once per batch size and set of active branches.
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

// The type of a bound stream.
struct StreamType {
  DType dtype = DType::F32;
  Shape sample;            // as given by the source, or as declared if both have the same number of elements
  uint32_t positions = 0;  // leading sequence axes of a sample
  int64_t classes = 0;     // for integers: number of classes or symbols; 0 if unknown
  std::vector<std::string> symbols;
  uint64_t numbers = 0;  // count of numbers scanned for classes; 0 if unknown or not scanned
};

// The shape of a layer per sample (position axes first) and the reason for it.
struct Width {
  Shape shape;
  uint32_t positions = 0;
  std::string reason;  // "declared", "1/2 of hidden", "classes of labels", ...
};

struct Widths {
  std::map<int, Width> of;         // node index -> width
  std::vector<std::string> notes;  // "layer 'output' is 10 wide ... not 196"
};

// Shapes of loaded weights by parameter name; they have the highest priority.
using LoadedShapes = std::map<std::string, Shape>;

// Resolves the widths of a graph. `streams` holds sample types by the node index of the producer; producers not used in
// `cycles` may be absent. Throws an Error with its location if a width contradicts another, cannot be determined or
// exceeds the limits; SourceErrors for several. Widths that depend on a refused one are not reported.
Widths resolve_widths(const Graph& graph, const std::map<int, StreamType>& streams, const LoadedShapes& loaded,
                      const ModelLimits& limits = {});

// Returns up to twenty errors, in the order of the text, of widths that depend neither on a refused node nor on a
// producer without a type.
std::vector<Error> width_errors(const Graph& graph, const std::map<int, StreamType>& streams,
                                const LoadedShapes& loaded, std::set<int> refused, const ModelLimits& limits = {});

// How a graph uses the numbers of a producer.
struct StreamUse {
  bool compared = false;   // the loss of a tap takes them as classes
  bool looked_up = false;  // a function, such as embed, takes them as row indices
  bool computed = false;   // an arrow takes them as numbers
  bool tokens = false;     // a model reads them, or its scores are compared with them
};
StreamUse use_of(const Graph& graph, int producer);
// Returns whether the graph computes with such samples or compares them as numbers. Bytes are then scaled to [0, 1].
bool read_as_numbers(const Graph& graph, int producer, const StreamType& type);
// Returns the sample type of a producer: the type of the source, modified by the declaration.
StreamType declared_stream(const GraphNode& node, const StreamType& source, const StreamUse& use);
// Returns CountedPositions::key of a loss that ignores a class, or "" if every position counts.
std::string counted_by(const Graph& graph, const GraphTap& tap, const BoundCall& loss);

// The part of a flow that a program computes.
struct FlowPart {
  int cycle = 0;
  std::set<int> branches;   // active branch literals; see GraphEdge::branches
  std::vector<int> wanted;  // layers and consumers whose values are results; empty for none
  uint64_t seed = 0;        // for initial weights
  ModelLimits limits;       // set by BoundGraph
};

struct LoweringOptions : StepOptions, FlowPart {};

// Traces one entry of a flow: forward, and the losses unless the mode is infer. Inputs: "NAME" [batch, sample...] for
// each producer used, and the counter (see StepInput) if there are random nodes. Outputs: "out:NAME" for wanted values,
// "value:LAYER", "loss", "LAYER.loss" (and their parts, if there are several), "LAYER.correct"; with
// `sizes.metric_inputs` "LAYER.prediction" and "LAYER.target"; in training "objective:N". Updates: states, in training.
// Numbers in `results` are node indices of the graph.
void trace_entry(Tracer& tracer, const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 ParameterStore& store, const FlowPart& part, Mode mode, const EntrySizes& sizes,
                 EntryResults& results);

// Lowers the model of this part over `store`, which must outlive the call.
Lowered lower(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths, ParameterStore& store,
              const LoweringOptions& options);

}  // namespace harmonics::engine
