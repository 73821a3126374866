// BoundGraph: a flow with its streams, its weights and their metadata. All front ends use this class.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/bound/loss_guard.hpp"
#include "engine/execution/executable.hpp"
#include "engine/flow/compiled_step.hpp"
#include "engine/flow/flow_model.hpp"
#include "engine/flow/graph.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/model/parameter_store.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/model/weights_version.hpp"
#include "engine/streams/streams.hpp"
#include "engine/training/schedule.hpp"

namespace harmonics::engine {

// Settings of a run. An absent setting is that of the cycle in the flow, else the default.
struct RunSettings : DeviceSettings {
  std::optional<int64_t> epochs, steps, batch, seed;
  std::optional<int64_t> accumulate;  // micro-batches in a step
  std::optional<double> seconds, lr, clip, clip_value;
  std::optional<std::string> optimizer, schedule;
  std::vector<std::string> until;          // "loss<0.05"
  std::vector<std::string> metrics;        // "topk(5)": measured in addition to the task's defaults
  bool confusion = false;                  // tests and validations compute the confusion matrix
  int threads = 0;                         // 0: all threads of the machine
  std::optional<int64_t> patience;         // end the run after this many validations without a smaller loss
  std::optional<int64_t> validate_every;   // steps between validations of streams that are read once
  std::optional<int64_t> window;           // samples in the test-then-train window; default 1000 for live streams
  std::optional<LossGuardSettings> guard;  // null: a loss that is not finite ends the run
  bool shuffle = true;
  bool goes_on = false;        // a later run continues the live streams
  bool deterministic = false;  // refuse settings whose result depends on the clock or on arrival times
};

struct ResolvedSettings : UpdateSettings {
  std::optional<int64_t> epochs, steps;
  std::optional<double> seconds;
  std::vector<Comparison> until;
  std::optional<int64_t> patience;
  int64_t batch = 64;
  int64_t accumulate = 1;
  uint64_t seed = 0;
  std::optional<Unpaired> unpaired;  // used if no address specifies it
  Schedule schedule;
  // Returns "adamw(lr=0.001, ...), schedule cosine(...), clip 1, 4 batches a step".
  std::string training() const;
};

// Parses "loss<0.05" or "output.accuracy >= 0.98". Throws ErrorKind::Usage.
Comparison parse_comparison(const std::string& text);

// State of a stopped cycle over live streams, for the next cycle that reads them.
struct LiveReading {
  std::vector<int> producers;
  std::unique_ptr<JointReader> reader;
  std::vector<char> restored;  // by live producer: it has positions and gets calls of durable()
  std::string not_resumable;
};

class BoundGraph {
 public:
  explicit BoundGraph(Graph graph, Registry* outer = nullptr);
  BoundGraph(const BoundGraph&) = delete;
  BoundGraph& operator=(const BoundGraph&) = delete;

  const Graph& graph() const { return graph_; }
  // Replaces the graph by the same flow with its functions looked up again. Existing programs keep the old functions.
  void replace_functions(Graph graph);
  // Replaces the graph by the same flow with other arguments, and returns the old graph. Existing programs keep the old
  // arguments.
  Graph exchange(Graph graph);
  Registry& registry() { return registry_; }
  ParameterStore& store() { return *store_; }
  StreamSet& streams() { return streams_; }                        // --producer
  StreamSet& test_streams() { return test_streams_; }              // --test
  StreamSet& validation_streams() { return validation_streams_; }  // --validate
  // After expect_words(), streams are bound with the vocabulary in the metadata of a weights file; after share_words(),
  // test and validation streams are bound with the vocabulary of the training streams.
  void expect_words(const std::map<std::string, std::string>& metadata, const std::string& file);
  void share_words();
  // Binds a consumer of the graph. An empty name is the first unbound consumer, or else the unnamed consumer.
  void bind_consumer(const std::string& name, Address address);
  void bind_consumer(int node, Sink sink);
  std::map<int, std::unique_ptr<Sink>>& sinks() { return sinks_; }
  std::optional<LiveReading>& live_reading() { return live_reading_; }

  // Return the resolved types of streams and the widths; call them after binding streams. An unbound training stream
  // has the type of the validation or test stream, else the one recorded with the loaded weights.
  const Widths& widths();
  const std::map<int, StreamType>& types();
  // Returns the widths of the same flow with other arguments.
  Widths widths_of(const Graph& other);
  // Returns the errors of streams and up to twenty of widths in a graph with refused parts, without errors that depend
  // on these parts. `assume_declared`: as after assume_declared_streams().
  std::vector<Error> shape_errors(const GraphErrors::Rest& rest, bool assume_declared);
  // Gives unbound producers the types that the flow declares, such as {28, 28}, to explain a graph without data.
  void assume_declared_streams();

  // Replaces items in the graph and in the registry by those of a newer build of their library. The destructor of the
  // result restores the old items unless keep() was called. Throws ErrorKind::Plugin if the arguments of an item have
  // changed.
  class Replaced;
  Replaced replace_functions(const std::vector<std::shared_ptr<Item>>& items);

  ResolvedSettings settings(int cycle, const RunSettings& run) const;
  Executor& executor(int threads);
  CompileOptions compile_options(const DeviceSettings& device, bool training = false);
  // If weights were loaded and parameters are missing, throws ErrorKind::Weights that lists them; in training it adds a
  // note instead.
  Lowered lower(const LoweringOptions& options);
  // Returns the model of a cycle with its results, or of a part, that shares this graph's weights. It is valid until
  // the graph is destroyed or its streams or functions change. `seed` initialises weights that are not declared yet.
  // Lowering the model checks the loaded weights as lower() does.
  Model model(int cycle, uint64_t seed = 0);
  Model model(FlowPart part);
  // Returns the nodes whose values a cycle returns: consumers with an arrow, and final layers without one.
  std::vector<int> results(int cycle) const;

  // Load and return the weights with the metadata needed to use them (streams, symbols, flow) as a safetensors file.
  // `name` is used in messages. Memory viewed by `file` must outlive the call.
  void load_weights(const std::string& path);
  void load_weights(TensorFile file, const std::string& name);
  TensorFile weights() const;
  // Returns the last training step that changed the weights, which a loaded file may record. Null if unknown.
  const std::optional<WeightsVersion>& version() const { return version_; }
  void set_version(const WeightsVersion& version) { version_ = version; }
  // Checks before training that the metadata fits into the header of a weights file. Throws ErrorKind::Stream.
  void expect_savable();
  // Copies the weights, the metadata and the moments (as "moment/NAME") into a checkpoint. Reuses tensors of `into` of
  // the same type.
  void snapshot(TensorFile& into) const;
  // Restores a snapshot into the declared parameters, and into others when they are declared.
  void restore(const TensorFile& snapshot);
  // Ends restore() after the parameters are declared: drops tensors without a parameter. Returns messages that list
  // these tensors and the parameters missing from the snapshot. `branches`: keeps moments, which may be declared later,
  // when a branch is first taken.
  std::vector<std::string> end_restore(const TensorFile& snapshot, bool branches);
  // Returns and clears the messages about differences between the bound streams and those of the loaded weights.
  std::vector<std::string> take_stream_notes() { return std::exchange(stream_notes_, {}); }
  // Returns the text of the flow with which the loaded weights were trained; empty if unknown.
  const std::string& learned_flow() const { return learned_flow_; }
  // Sets the limits of the model for later calls.
  void set_limits(const ModelLimits& limits);
  // Allows files of this folder in weights= of the flow.
  void allow_weights_in(std::string folder) { graph_.weights_folders.push_back(std::move(folder)); }
  // Returns the messages of lower() about loaded weights, such as "in the file but not used by this graph: ...".
  const std::vector<std::string>& weight_notes() const { return weight_notes_; }

 private:
  std::map<std::string, std::string> metadata() const;
  void assume_declared_types(const std::function<bool(int)>& is_doubted);
  void check_belonging() const;
  bool is_frozen(const std::string& name) const;
  // Marks the parameters that no program of this graph changes.
  void fix_parameters(const Program& program);
  // Compares a program's weights with those of the loaded file. Throws or fills weight_notes_ as described at lower().
  void compare_with_file(const Program& program, int cycle, Mode mode);
  // Adds a note if loaded tensors that the program uses have other types in the file.
  void note_conversions(const std::set<std::string_view>& used);

  Graph graph_;
  mutable Registry registry_;  // mutable, as lookups may load a library
  std::shared_ptr<ParameterStore> store_ = std::make_shared<ParameterStore>();
  StreamSet streams_, test_streams_, validation_streams_;
  std::map<int, std::unique_ptr<Sink>> sinks_;
  std::optional<LiveReading> live_reading_;  // reads streams_, so it is destroyed first
  std::map<int, StreamType> recorded_;       // from the weights file
  std::map<int, StreamType> types_;
  std::optional<Widths> widths_;
  LoadedShapes loaded_;
  std::map<std::string, DType> loaded_types_;  // in the file
  std::set<std::string> fresh_;                // missing from the loaded file, but trained since
  std::string weights_path_;
  std::vector<std::string> weight_notes_, stream_notes_;
  std::string learned_flow_;
  std::optional<WeightsVersion> version_;
  ModelLimits limits_;
  std::unique_ptr<Executor> executor_;
  int executor_threads_ = 0;
};

class BoundGraph::Replaced {
 public:
  Replaced(BoundGraph& graph, const std::vector<std::shared_ptr<Item>>& items);
  ~Replaced();
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;
  // Returns whether programs of the graph may compute different results after the replacement.
  bool concerns_programs() const { return !former_.empty() || chosen_by_name_; }
  void keep() { kept_ = true; }

 private:
  BoundGraph& graph_;
  std::vector<std::pair<ItemPtr, ItemPtr>> registered_;
  std::vector<std::pair<BoundCall*, ItemPtr>> former_;
  bool chosen_by_name_ = false;  // functionals, implementations, optimizers: looked up when programs are made
  bool kept_ = false;
};

}  // namespace harmonics::engine
