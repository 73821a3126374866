// HarmonicGraph: a flow with its streams, its weights and what is known about them. The object every front end works
// on.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/flow/compiled_step.hpp"
#include "engine/flow/graph.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/model/parameter_store.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/streams/streams.hpp"
#include "engine/training/schedule.hpp"

namespace harmonics {

// Settings of a run; what is absent comes from the cycle's parentheses, then from the defaults.
struct RunSettings : DeviceSettings {
  std::optional<int64_t> epochs, steps, batch, seed;
  std::optional<int64_t> accumulate;  // micro-batches in a step
  std::optional<double> seconds, lr, clip, clip_value;
  std::optional<std::string> optimizer, schedule;
  std::vector<std::string> until;    // "loss<0.05"
  std::vector<std::string> metrics;  // "topk(5)": measured besides what the task suggests
  bool confusion = false;            // testing and validation count truth by prediction
  int threads = 0;                   // 0: all the machine has
  std::optional<int64_t> window;     // samples of test-then-train; 1000 where streams are live
  bool shuffle = true;
  bool goes_on = false;        // another run goes on in the streams that are read once, where this one stops
  bool deterministic = false;  // refuse what the clock or the arrival of samples would decide
};

struct ResolvedSettings : UpdateSettings {
  std::optional<int64_t> epochs, steps;
  std::optional<double> seconds;
  std::vector<Comparison> until;
  int64_t batch = 64;
  int64_t accumulate = 1;
  uint64_t seed = 0;
  std::optional<Unpaired> unpaired;  // where no address says
  Schedule schedule;
  // "adamw(lr=0.001, ...), schedule cosine(...), clip 1, 4 batches a step"
  std::string training() const;
};

// "loss<0.05", "output.accuracy >= 0.98"; throws ErrorKind::Usage.
Comparison parse_comparison(const std::string& text);

// Where a cycle of live streams stopped, for the next one that reads them.
struct LiveReading {
  std::vector<int> producers;
  std::unique_ptr<JointReader> reader;
  std::vector<char> restored;  // by live producer: it has positions, and hears what is durable
  std::string not_resumable;
};

class HarmonicGraph {
 public:
  explicit HarmonicGraph(Graph graph, Registry* outer = nullptr);
  HarmonicGraph(const HarmonicGraph&) = delete;
  HarmonicGraph& operator=(const HarmonicGraph&) = delete;

  const Graph& graph() const { return graph_; }
  // `graph`: the same flow with its functions looked up anew. Programs compiled before keep the old ones.
  void replace_functions(Graph graph);
  Registry& registry() { return registry_; }
  ParameterStore& store() { return store_; }
  StreamSet& streams() { return streams_; }                        // --producer
  StreamSet& test_streams() { return test_streams_; }              // --test
  StreamSet& validation_streams() { return validation_streams_; }  // --validate
  void bind_consumer(const std::string& name,
                     Address address);  // "": the graph's only unbound consumer, else the unnamed one
  void bind_consumer(int node, Sink sink);
  std::map<int, std::unique_ptr<Sink>>& sinks() { return sinks_; }
  std::optional<LiveReading>& live_reading() { return live_reading_; }

  // Stream types, then widths; once bound. Types of unbound producers come from the loaded weights or the other set.
  const Widths& widths();
  const std::map<int, StreamType>& types();
  // Types declared in the file itself ({28, 28} and such), for explaining a graph without data.
  void assume_declared_streams();

  // What a new build of a library registers in place of what it had registered, in the graph and in the registry;
  // without `keep` both have the former ones again when the result is destroyed. Throws ErrorKind::Plugin where
  // arguments are no longer the same.
  class Replaced;
  Replaced replace_functions(const std::vector<std::shared_ptr<Item>>& items);

  ResolvedSettings settings(int cycle, const RunSettings& run) const;
  Executor& executor(int threads);
  CompileOptions compile_options(const DeviceSettings& device, bool training = false);
  // With loaded weights, a parameter they lack is ErrorKind::Weights listing all that are missing (training: a note).
  Lowered lower(const LoweringOptions& options);
  // The nodes whose values a cycle hands out: consumers with an arrow, and layers at the end without one.
  std::vector<int> results(int cycle) const;

  // Weights and what is needed to use them (streams, symbols, graph text) as one safetensors file.
  void load_weights(const std::string& path);
  void load_weights(TensorFile file,
                    const std::string& name);  // `name` for messages; what it views must outlive the call
  TensorFile weights() const;
  // Before there are any: will a file of them be one that can be read? Throws ErrorKind::Stream.
  void expect_savable();
  // What a checkpoint holds of the model: the same, with moments as "moment/NAME", copied; memory of `into` that fits
  // is used again.
  void snapshot(TensorFile& into) const;
  // Takes what snapshot gave over into the parameters that are declared and those that will be.
  void restore(const TensorFile& snapshot);
  // Once parameters are declared: what of it found no place, which is forgotten, and what the graph has that was not in
  // it; for people. `branches`: some moments are declared later, when a branch is first taken.
  std::vector<std::string> end_restore(const TensorFile& snapshot, bool branches);
  // How the bound streams differ from those the loaded weights learned from, for people; each is told once.
  std::vector<std::string> take_stream_notes() { return std::exchange(stream_notes_, {}); }
  // The text of the flow that the loaded weights learned in; empty: they do not say.
  const std::string& learned_flow() const { return learned_flow_; }
  // What it may take until it runs, from now on.
  void set_limits(const ModelLimits& limits);
  // Files that the flow names with weights= may lie there too.
  void allow_weights_in(std::string folder) { graph_.weights_folders.push_back(std::move(folder)); }
  // "surplus: a.b.affine.weight" and such, for people; filled by lower().
  const std::vector<std::string>& weight_notes() const { return weight_notes_; }

 private:
  void check_belonging() const;

  Graph graph_;
  mutable Registry registry_;  // finding a name may open a library
  ParameterStore store_;
  StreamSet streams_, test_streams_, validation_streams_;
  std::map<int, std::unique_ptr<Sink>> sinks_;
  std::optional<LiveReading> live_reading_;  // reads streams_, so it goes before them
  std::map<int, StreamType> recorded_;       // from the weights file
  std::map<int, StreamType> types_;
  std::optional<Widths> widths_;
  LoadedShapes loaded_;
  std::set<std::string> fresh_;  // not in the loaded file, but part of a training step since
  std::string weights_path_;
  std::vector<std::string> weight_notes_, stream_notes_;
  std::string learned_flow_;
  ModelLimits limits_;
  std::unique_ptr<Executor> executor_;
  int executor_threads_ = 0;
};

class HarmonicGraph::Replaced {
 public:
  Replaced(HarmonicGraph& graph, const std::vector<std::shared_ptr<Item>>& items);
  ~Replaced();
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;
  // May what the graph computes have changed?
  bool concerns_programs() const { return !former_.empty() || chosen_by_name_; }
  void keep() { kept_ = true; }

 private:
  HarmonicGraph& graph_;
  std::vector<std::pair<ItemPtr, ItemPtr>> registered_;
  std::vector<std::pair<BoundCall*, ItemPtr>> former_;
  bool chosen_by_name_ = false;  // functionals, implementations, optimizers: looked for when programs are made
  bool kept_ = false;
};

}  // namespace harmonics
