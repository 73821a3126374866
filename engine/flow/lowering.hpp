// Lowers a graph to programs: widths first, then one trace per mode, batch size and set of active branches.
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
#include "engine/training/update.hpp"

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
};
StreamUse use_of(const Graph& graph, int producer);
// Whether the graph computes with the numbers of such samples, or compares them as numbers. Bytes are then scaled to
// [0, 1].
bool read_as_numbers(const Graph& graph, int producer, const StreamType& type);
// Returns a producer's sample type: the source's type with the declaration applied.
StreamType declared_stream(const GraphNode& node, const StreamType& source, const StreamUse& use);
// CountedPositions::key of a loss that ignores a class; empty: every position counts.
std::string counted_by(const Graph& graph, const GraphTap& tap, const BoundCall& loss);

enum class Mode { train, evaluate, infer };

struct LoweringOptions : UpdateSettings {  // UpdateSettings: train only
  DeviceSettings
      device;  // train: the step's device, which decides which device or library computes a call and its gradient
  Chooser* chooser = nullptr;  // decides it; set by BoundGraph::lower
  Mode mode = Mode::train;
  int cycle = 0;
  int64_t batch = 1;
  uint64_t seed = 0;
  ModelLimits limits;          // set by BoundGraph::lower
  std::set<int> branches;      // active branch literals; see GraphEdge::branches
  double accumulate = 0;       // train: if above 0, gradients are scaled by this and accumulated, without an update
  bool by_count = true;        // with `accumulate`: parts of the loss separately, each times its counted share
  std::vector<int> wanted;     // infer: layers whose values are returned; empty: terminal layers and consumers' sources
  bool observe = false;        // return every layer's value as "value:LAYER"
  bool metric_inputs = false;  // return the inputs of metrics, as "LAYER.prediction" and "LAYER.target"
  bool sample_losses = false;  // return the loss of each sample, as "LAYER.sample_loss", where LossInfo says so
};

// Inputs and results of a plugin's function in the program, with LoweringOptions::observe.
struct PluginCall {
  std::string name;                   // "activation 'my_act' of plugin 'my_act'"
  std::vector<std::string> from, to;  // outputs of the program: its inputs and results
};

// Values that metrics compare at a tapped layer, by its first tap.
struct MetricInputs {
  bool classes = false;  // targets are class numbers (i32), else as many numbers as predictions (f32)
  bool shifts = false;   // the target of a position is the class of the next; the last of a sequence has none
  int64_t rows = 0;      // of predictions: samples times positions
  int64_t outputs = 0, n_classes = 0;
  int64_t sequence = 1;            // consecutive rows of one sequence
  std::optional<int64_t> ignored;  // rows with this class do not count
  std::string activation;          // the last activation of the layer's arrow
};

// Target positions that count in a batch: those whose class is not ignored.
struct CountedPositions {
  std::string key;     // equal for equal positions in every program of a graph
  std::string output;  // their number, f32
  int64_t places = 0;  // positions in the batch, counted or not
};

// Terms of a loss that are means over the same positions; the loss is the sum of its parts.
struct LossPart {
  std::string output;
  int counted = -1;  // Lowered::counted; -1: every position counts
};

struct LossInfo {
  int layer;
  std::string name;       // the layer's
  bool accuracy = false;  // "LAYER.correct" is an output: the number of correct classes in the batch
  int64_t counted = 0;    // samples times positions, including ignored ones
  int accuracy_of = -1;   // Lowered::counted, of the positions that accuracy counts; -1: all
  std::vector<LossPart> parts = {};
  bool sample_losses = false;  // "LAYER.sample_loss" [batch] is an output: its mean is the layer's loss
  std::optional<MetricInputs> metric_inputs = std::nullopt;  // with LoweringOptions::metric_inputs
};

struct Lowered {
  Program program;
  std::vector<int> inputs;  // producers, in the order of the program's stream inputs (named after them)
  std::vector<int64_t>
      index_limits;              // by input: number of classes or symbols its numbers index; 0: they are not indices
  std::vector<LossInfo> losses;  // one per tapped layer
  std::vector<LossPart> parts;   // of "loss"
  std::vector<CountedPositions> counted;
  std::map<int, std::string> values;      // infer: node (layer or consumer) -> output name
  std::vector<Selected> opened;           // calls replaced by their differentiated bodies
  std::vector<TrainedParameter> trained;  // parameters this program has gradients for
  std::vector<PluginCall> plugins;        // with `observe`
};

// Traces one entry of a flow: forward, and the losses unless the mode is infer. Inputs: one per producer used ("NAME":
// [batch, sample...]), and the counter (see StepInput) if there are random nodes. Outputs: "out:NAME" for the wanted
// values, "value:LAYER", "loss", "LAYER.loss" (and their parts, if there are several), "LAYER.correct", with
// `metric_inputs` "LAYER.prediction" and "LAYER.target". Updates: states, in training.
void trace_entry(Tracer& tracer, const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 ParameterStore& store, const LoweringOptions& options);

// An entry with what its callers need: "value:LAYER" only if `observe` asks for it; in training differentiated, and
// updated from the gradients or accumulating them. Further updates: parameters and moments.
Lowered lower(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths, ParameterStore& store,
              const LoweringOptions& options);

}  // namespace harmonics::engine
