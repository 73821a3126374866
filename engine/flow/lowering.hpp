// From a graph to programs: widths first, then one trace per mode, batch size and set of active branches.
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

namespace harmonics {

// What is known of a bound stream.
struct StreamType {
  DType dtype = DType::F32;
  Shape sample;            // as the source gives it, or as declared when counts are equal
  uint32_t positions = 0;  // leading sequence axes of a sample
  int64_t classes = 0;     // integers: classes or symbols; 0: unknown
  std::vector<std::string> symbols;
  uint64_t numbers = 0;  // that its classes were counted from; 0: unknown, or they were not counted
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

// Shapes of already loaded weights by parameter name; the strongest anchor.
using LoadedShapes = std::map<std::string, Shape>;

// Producers' sample types come from `streams` (node index); producers nothing in `cycles` uses may be absent.
// Throws an Error with place when something disagrees, cannot be known or is beyond the limits.
Widths resolve_widths(const Graph& graph, const std::map<int, StreamType>& streams, const LoadedShapes& loaded,
                      const ModelLimits& limits = {});

// What a graph does with a producer's numbers as they are.
struct StreamUse {
  bool compared = false;   // a tap's loss takes them as classes
  bool looked_up = false;  // a function takes them as rows of a table, as embed does
  bool computed = false;   // an arrow takes them as numbers
};
StreamUse use_of(const Graph& graph, int producer);
// Does the graph compute with the numbers of such samples, or compare them as numbers? Bytes are scaled to [0, 1] then.
bool read_as_numbers(const Graph& graph, int producer, const StreamType& type);
// The sample type of a producer after its declaration was applied to what the source says.
StreamType declared_stream(const GraphNode& node, const StreamType& source, const StreamUse& use);
// CountedPlaces::key of a loss that leaves out a class; empty: every place counts.
std::string counted_by(const Graph& graph, const GraphTap& tap, const BoundCall& loss);

enum class Mode { train, evaluate, infer };

struct LoweringOptions : UpdateSettings {  // those: train
  DeviceSettings
      device;  // train: what the step will run on, so that who computes a call can be settled with its gradient
  Chooser* chooser = nullptr;  // who settles it; set by HarmonicGraph::lower
  Mode mode = Mode::train;
  int cycle = 0;
  int64_t batch = 1;
  uint64_t seed = 0;
  ModelLimits limits;       // set by HarmonicGraph::lower
  std::set<int> branches;   // active branch literals; see GraphEdge::branches
  double accumulate = 0;    // train: above 0 gradients times this are gathered and nothing is stepped
  bool by_count = true;     // with `accumulate`: parts of the loss apart, each times the share that counts
  std::vector<int> wanted;  // infer: layers whose values are handed out; empty: terminal layers and consumers' sources
  bool observe = false;     // hand out every layer's value as "value:LAYER"
  bool judge = false;       // hand out what metrics compare, as "LAYER.prediction" and "LAYER.target"
};

// What a function of somebody's plugin gave in the program, with LoweringOptions::observe.
struct PluginCall {
  std::string name;                   // "activation 'my_act' of plugin 'my_act'"
  std::vector<std::string> from, to;  // outputs of the program: its inputs and results
};

// What metrics compare at a tapped layer, by its first tap.
struct Judged {
  bool classes = false;  // targets are class numbers (i32), else numbers as many as predictions (f32)
  bool shifts = false;   // the target of a position is the class of the next; the last of a sequence has none
  int64_t rows = 0;      // of predictions: samples, times positions
  int64_t outputs = 0, n_classes = 0;
  int64_t sequence = 1;            // rows that follow each other
  std::optional<int64_t> ignored;  // rows with this class do not count
  std::string activation;          // what the layer's arrow ends in
};

// Places of a target that count, in a batch: those whose class is not ignored.
struct CountedPlaces {
  std::string key;     // the same for the same places in every program of a graph
  std::string output;  // how many they are, f32
  int64_t places = 0;  // of the batch, counting or not
};

// Terms of a loss that are means over the same places; the loss is the sum of its parts.
struct LossPart {
  std::string output;
  int counted = -1;  // Lowered::counted; -1: every place counts
};

struct LossInfo {
  int layer;
  std::string name;       // the layer's
  bool accuracy = false;  // "LAYER.correct" is an output: how many of the batch's (positions') classes are right
  int64_t counted = 0;    // samples times positions that accuracy counts, with those that are ignored
  int accuracy_of = -1;   // Lowered::counted, of the places that accuracy counts; -1: every one
  std::vector<LossPart> parts = {};
  std::optional<Judged> judged = std::nullopt;  // with LoweringOptions::judge
};

struct Lowered {
  Program program;
  std::vector<int> inputs;  // producers, in the order of the program's stream inputs (named after them)
  std::vector<int64_t>
      index_limits;  // by input: how many classes or symbols its numbers choose from; 0: they are not indices
  std::vector<LossInfo> losses;  // one a tapped layer
  std::vector<LossPart> parts;   // of "loss"
  std::vector<CountedPlaces> counted;
  std::map<int, std::string> values;      // infer: node (layer or consumer) -> output name
  std::vector<Selected> opened;           // calls whose bodies were differentiated: they are calls no more
  std::vector<TrainedParameter> trained;  // parameters this program has gradients for
  std::vector<PluginCall> plugins;        // with `observe`
};

// Program inputs: one per producer used ("NAME": [batch, sample...]); train also has "@lr" f32, "@step" i64; programs
// with random nodes have "@counter" i64[2] = {seed, step}; gathering gradients "@keep" bool instead of the rate and
// step. Outputs: "loss", "LAYER.loss" (and their parts, where there are several), "LAYER.correct", with `judge`
// "LAYER.prediction" and "LAYER.target"; updates: parameters, states, moments.
Lowered lower(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths, ParameterStore& store,
              const LoweringOptions& options);

}  // namespace harmonics
