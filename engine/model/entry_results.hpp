// Description of the program that an entry traces: its losses, its results and what training differentiates.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace harmonics::engine {

// A floating-point scalar output of a program, and the parameters to differentiate it with respect to.
struct Objective {
  std::string loss;
  std::vector<std::string> wrt;
};

struct TrainedParameter {
  std::string name;
  bool hidden = true;  // see update_rule: false for lookup tables and for arrows into tapped layers
};

// A call of a plugin's function in the program.
struct PluginCall {
  std::string name;                   // "activation 'my_act' of plugin 'my_act'"
  std::vector<std::string> from, to;  // program outputs that hold its inputs and its results
};

// Values that metrics compare at a tapped layer, from its first tap.
struct MetricInputs {
  bool classes = false;  // targets are class indices (i32); otherwise they have the shape of the predictions (f32)
  bool shifts = false;   // the target of a position is the class of the next one; the last position has none
  int64_t rows = 0;      // rows of predictions: samples times positions
  int64_t outputs = 0, n_classes = 0;
  int64_t sequence = 1;            // rows per sequence
  std::optional<int64_t> ignored;  // rows with this class do not count
  std::string activation;          // the last activation of the layer's arrow
};

// The counted positions of a batch: those whose target class is not ignored.
struct CountedPositions {
  std::string key;     // identifies these positions in all programs of a graph
  std::string output;  // output with their number, f32
  int64_t places = 0;  // all positions in the batch
};

// Sum of those terms of a loss that are means over the same positions. The loss is the sum of its parts.
struct LossPart {
  std::string output;
  int counted = -1;  // index in EntryResults::counted; -1: every position counts
};

// A statistic that a loss reports besides its value, such as a reward margin.
struct LossFigure {
  std::string name;    // "rewards/margins"
  std::string output;  // output with its mean over the samples of the batch, f32
};

struct LossInfo {
  int layer;
  std::string name;       // of the layer
  bool accuracy = false;  // "LAYER.correct" is an output: the number of correct classes in the batch
  int64_t counted = 0;    // samples times positions, including ignored ones
  int accuracy_of = -1;   // index in EntryResults::counted of the positions used for accuracy; -1: all
  std::vector<LossPart> parts = {};
  std::vector<LossFigure> figures = {};
  bool sample_losses = false;  // "LAYER.sample_loss" [batch] is an output: its mean is the layer's loss
  std::optional<MetricInputs> metric_inputs = std::nullopt;  // with EntrySizes::metric_inputs
};

// All members are optional. Numbers of inputs, layers and values are defined by the front end, such as node numbers of
// a flow.
struct EntryResults {
  std::vector<int> inputs;       // numbers of the sample inputs, in program order; empty: counted from 0
  std::vector<LossInfo> losses;  // one per tapped layer
  std::vector<LossPart> parts;   // of "loss"
  std::vector<CountedPositions> counted;
  std::map<int, std::string> values;  // by number: the output with this result
  std::vector<PluginCall> plugins;
  // In training: objectives by part of the loss, and the trainable parameters in the order of use. Without objectives,
  // "loss" is differentiated with respect to every weight that is not frozen.
  std::vector<std::vector<Objective>> objectives;
  std::vector<TrainedParameter> parameters;
};

// Returns the name of a result. All outputs of the entry "forward" are results, except those for observers; flows name
// them "out:NAME".
inline std::string result_name(const std::string& output) {
  return output.starts_with("out:") ? output.substr(4) : output;
}
// Scalar output of an entry without a loss. In training it is added to the loss of the entry's results.
inline constexpr const char* kAuxiliaryLoss = "auxiliary_loss";
// Name prefixes of outputs for observers, which are removed unless they are observed:
inline constexpr const char* kValueOutput = "value:";        // result of a layer or block
inline constexpr const char* kFunctionOutput = "function:";  // see EntryResults::plugins
// Name prefix of EntryResults::objectives, which are removed after differentiation:
inline constexpr const char* kObjectiveOutput = "objective:";

}  // namespace harmonics::engine
