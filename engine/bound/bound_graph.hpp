// BoundGraph: a flow with its streams, its weights and their metadata. Every front end works on this object.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
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

// Settings of a run. Absent ones come from the cycle's parentheses, then from the defaults.
struct RunSettings : DeviceSettings {
  std::optional<int64_t> epochs, steps, batch, seed;
  std::optional<int64_t> accumulate;  // micro-batches in a step
  std::optional<double> seconds, lr, clip, clip_value;
  std::optional<std::string> optimizer, schedule;
  std::vector<std::string> until;          // "loss<0.05"
  std::vector<std::string> metrics;        // "topk(5)": measured in addition to the task's defaults
  bool confusion = false;                  // testing and validation count truth by prediction
  int threads = 0;                         // 0: all threads of the machine
  std::optional<int64_t> patience;         // validations without a smaller loss that end the run
  std::optional<int64_t> validate_every;   // steps between validations of streams that are read once
  std::optional<int64_t> window;           // samples of test-then-train; default 1000 for live streams
  std::optional<LossGuardSettings> guard;  // null: a loss that is not finite ends the run
  bool shuffle = true;
  bool goes_on = false;        // a later run continues the streams that can be read only once
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
  std::optional<Unpaired> unpaired;  // if no address gives one
  Schedule schedule;
  // "adamw(lr=0.001, ...), schedule cosine(...), clip 1, 4 batches a step"
  std::string training() const;
};

// "loss<0.05", "output.accuracy >= 0.98"; throws ErrorKind::Usage.
Comparison parse_comparison(const std::string& text);

// State of a stopped cycle over live streams, for the next cycle that reads them.
struct LiveReading {
  std::vector<int> producers;
  std::unique_ptr<JointReader> reader;
  std::vector<char> restored;  // by live producer: it has positions, and receives durable()
  std::string not_resumable;
};

class BoundGraph {
 public:
  explicit BoundGraph(Graph graph, Registry* outer = nullptr);
  BoundGraph(const BoundGraph&) = delete;
  BoundGraph& operator=(const BoundGraph&) = delete;

  const Graph& graph() const { return graph_; }
  // `graph`: the same flow with its functions looked up again. Programs compiled before keep the old ones.
  void replace_functions(Graph graph);
  // `graph`: the same flow with other arguments. Returns the former one. Programs compiled before keep the old ones.
  Graph exchange(Graph graph);
  Registry& registry() { return registry_; }
  ParameterStore& store() { return *store_; }
  StreamSet& streams() { return streams_; }                        // --producer
  StreamSet& test_streams() { return test_streams_; }              // --test
  StreamSet& validation_streams() { return validation_streams_; }  // --validate
  // Streams bound after these calls number words as the weights' metadata say, and test and validation streams as the
  // training streams do.
  void expect_words(const std::map<std::string, std::string>& metadata, const std::string& file);
  void share_words();
  void bind_consumer(const std::string& name,
                     Address address);  // "": the graph's only unbound consumer, else the unnamed one
  void bind_consumer(int node, Sink sink);
  std::map<int, std::unique_ptr<Sink>>& sinks() { return sinks_; }
  std::optional<LiveReading>& live_reading() { return live_reading_; }

  // Resolves stream types, then widths, once streams are bound. Types of unbound producers come from the loaded
  // weights or the other stream set.
  const Widths& widths();
  const std::map<int, StreamType>& types();
  // Returns the errors of streams and widths in a graph with refused parts that do not depend on these, up to twenty.
  // `assume_declared`: as after assume_declared_streams().
  std::vector<Error> shape_errors(const GraphErrors::Rest& rest, bool assume_declared);
  // Assumes the types declared in the file itself ({28, 28} and such), to explain a graph without data.
  void assume_declared_streams();

  // Replaces the items that an earlier build of a library registered, in the graph and in the registry. Without
  // `keep`, the destructor of the result restores the former items. Throws ErrorKind::Plugin if arguments have
  // changed.
  class Replaced;
  Replaced replace_functions(const std::vector<std::shared_ptr<Item>>& items);

  ResolvedSettings settings(int cycle, const RunSettings& run) const;
  Executor& executor(int threads);
  CompileOptions compile_options(const DeviceSettings& device, bool training = false);
  // With loaded weights, throws ErrorKind::Weights listing all missing parameters (in training: adds a note).
  Lowered lower(const LoweringOptions& options);
  // The model of a cycle with its results, or of a part, over this graph's weights; it must not outlive the graph, nor
  // a change of its streams or functions. `seed`: of weights that are not declared yet. Programs made of it are checked
  // as lower() checks them.
  Model model(int cycle, uint64_t seed = 0);
  Model model(FlowPart part);
  // Returns the nodes whose values a cycle returns: consumers with an arrow, and final layers without one.
  std::vector<int> results(int cycle) const;

  // Weights and the metadata needed to use them (streams, symbols, graph text) as one safetensors file.
  void load_weights(const std::string& path);
  void load_weights(TensorFile file,
                    const std::string& name);  // `name` for messages; the memory that `file` views must outlive the
                                               // call
  TensorFile weights() const;
  // The step that changed the weights last: that of the loaded file, then that of training. Null: unknown, or none.
  const std::optional<WeightsVersion>& version() const { return version_; }
  void set_version(const WeightsVersion& version) { version_ = version; }
  // Checks before training that a weights file could be read again; throws ErrorKind::Stream.
  void expect_savable();
  // Copies the model's part of a checkpoint: weights, metadata, and moments as "moment/NAME". Reuses memory of `into`
  // that fits.
  void snapshot(TensorFile& into) const;
  // Restores a snapshot into the parameters declared now or later.
  void restore(const TensorFile& snapshot);
  // Called once parameters are declared: forgets tensors without a parameter, and returns them and the parameters
  // missing from the snapshot, as messages. `branches`: some moments are declared later, when a branch is first taken.
  std::vector<std::string> end_restore(const TensorFile& snapshot, bool branches);
  // Differences between the bound streams and those of the loaded weights, as messages; each is reported once.
  std::vector<std::string> take_stream_notes() { return std::exchange(stream_notes_, {}); }
  // Text of the flow that the loaded weights were trained in; empty if unknown.
  const std::string& learned_flow() const { return learned_flow_; }
  // Sets the limits of the model for later calls.
  void set_limits(const ModelLimits& limits);
  // Adds a folder that may hold files named with weights= in the flow.
  void allow_weights_in(std::string folder) { graph_.weights_folders.push_back(std::move(folder)); }
  // Messages such as "surplus: a.b.affine.weight"; filled by lower().
  const std::vector<std::string>& weight_notes() const { return weight_notes_; }

 private:
  std::map<std::string, std::string> metadata() const;
  void assume_declared_types(const std::function<bool(int)>& is_doubted);
  void check_belonging() const;
  bool is_frozen(const std::string& name) const;
  // Marks the parameters that no program of this graph changes.
  void fix_parameters(const Program& program);
  // Compares a program's weights with those of the loaded file. Throws, or fills weight_notes_, as lower() says.
  void compare_with_file(const Program& program, int cycle, Mode mode);

  Graph graph_;
  mutable Registry registry_;  // looking up a name may open a library
  std::shared_ptr<ParameterStore> store_ = std::make_shared<ParameterStore>();
  StreamSet streams_, test_streams_, validation_streams_;
  std::map<int, std::unique_ptr<Sink>> sinks_;
  std::optional<LiveReading> live_reading_;  // reads streams_, so it is destroyed first
  std::map<int, StreamType> recorded_;       // from the weights file
  std::map<int, StreamType> types_;
  std::optional<Widths> widths_;
  LoadedShapes loaded_;
  std::set<std::string> fresh_;  // missing from the loaded file, but trained since
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
  // Whether programs of the graph may compute something else now.
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
