// What an entry says about the program it traces: which outputs are losses, and what training differentiates.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace harmonics::engine {

// A floating-point scalar output of a program and the parameters to differentiate it by.
struct Objective {
  std::string loss;
  std::vector<std::string> wrt;
};

struct TrainedParameter {
  std::string name;
  bool hidden = true;  // see update_rule: false for lookup tables and for arrows into tapped layers
};

// Inputs and results of a plugin's function in the program.
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
  int counted = -1;  // EntryResults::counted; -1: every position counts
};

// A number that a loss shows beside its value, such as the margin of preferences.
struct LossFigure {
  std::string name;    // "rewards/margins"
  std::string output;  // its mean over the batch's samples, f32
};

struct LossInfo {
  int layer;
  std::string name;       // the layer's
  bool accuracy = false;  // "LAYER.correct" is an output: the number of correct classes in the batch
  int64_t counted = 0;    // samples times positions, including ignored ones
  int accuracy_of = -1;   // EntryResults::counted, of the positions that accuracy counts; -1: all
  std::vector<LossPart> parts = {};
  std::vector<LossFigure> figures = {};
  bool sample_losses = false;  // "LAYER.sample_loss" [batch] is an output: its mean is the layer's loss
  std::optional<MetricInputs> metric_inputs = std::nullopt;  // with EntrySizes::metric_inputs
};

// Everything may stay empty. Numbers of inputs, layers and values are the front end's own: a flow's nodes.
struct EntryResults {
  std::vector<int> inputs;       // of the inputs for samples, in the order of the program; empty: counted from 0
  std::vector<LossInfo> losses;  // one per tapped layer
  std::vector<LossPart> parts;   // of "loss"
  std::vector<CountedPositions> counted;
  std::map<int, std::string> values;  // results: number -> output
  std::vector<PluginCall> plugins;
  // In training: what is differentiated, by part of the loss, and the parameters that may learn, in the order of use.
  // Without objectives "loss" is differentiated by every weight that is not frozen.
  std::vector<std::vector<Objective>> objectives;
  std::vector<TrainedParameter> parameters;
};

// Every output of the entry "forward" is a result, except those for observers. A flow's are named "out:NAME".
inline std::string result_name(const std::string& output) {
  return output.starts_with("out:") ? output.substr(4) : output;
}
// In training an entry without a loss may have one that is added to the loss of its results, a scalar.
inline constexpr const char* kAuxiliaryLoss = "auxiliary_loss";
// Outputs that begin so are for observers, and dropped unless they are observed:
inline constexpr const char* kValueOutput = "value:";        // a layer's or block's result
inline constexpr const char* kFunctionOutput = "function:";  // of EntryResults::plugins
// of EntryResults::objectives, dropped once differentiated:
inline constexpr const char* kObjectiveOutput = "objective:";

}  // namespace harmonics::engine
