// Implements hx_graph: a graph, its streams, and the results of the last call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <harmonics/graph_abi.h>

#include "engine/cycle/cycle_runtime.hpp"
#include "engine/embed/figure_lists.hpp"
#include "engine/embed/fit_checkpoints.hpp"
#include "engine/embed/concurrent_inference.hpp"
#include "engine/embed/name_scope.hpp"
#include "engine/flow/compiled_step.hpp"
#include "engine/flow/configure.hpp"
#include "engine/plugin/registry.hpp"

struct hx_graph {
 public:
  // `name` selects a harmonic of the flow; "" selects the first.
  hx_graph(const harmonics::engine::Flow& flow, const std::string& name);
  // Calls `parse` and creates the graph. If the text has syntax errors, throws them together with errors of names and
  // shapes that are certain despite them.
  static std::unique_ptr<hx_graph> parsed(const std::function<harmonics::engine::Flow()>& parse,
                                          const std::string& name);
  // Restores a graph from the result of save().
  static std::unique_ptr<hx_graph> restored(const void* data, uint64_t bytes);

  hx_registry* registry() { return &pending_; }
  // `options`: the part of an address after its '?'.
  void bind_producer(const char* name, uint32_t purpose, harmonics::engine::Source source, const std::string& options);
  void bind_producer(const char* name, uint32_t purpose, const std::string& address);
  void bind_consumer(const char* name, harmonics::engine::Sink sink);
  void bind_consumer(const char* name, const std::string& address);
  void fit(const hx_fit_settings& settings, hx_fit_report& report);
  void stop_fit();  // callable from any thread
  void evaluate(hx_evaluation& out);
  // Changes arguments of a layer. Returns the values that undo the change.
  const std::vector<const char*>& configure_layer(const std::string& layer,
                                                  const std::vector<harmonics::engine::ArgumentText>& changes);
  void set_device(const std::string& device);
  void load(const std::string& path);
  void save(const std::string& path);
  void open_scope(std::shared_ptr<harmonics::engine::NameScope> scope);
  void close_scope(const std::shared_ptr<harmonics::engine::NameScope>& scope);
  // Callable from any thread, also during fit().
  std::vector<harmonics::HTensor> infer(const char* const* names, hx_value* const* inputs, uint32_t n_inputs);
  const std::vector<const char*>& results();
  const std::string& save();
  const std::vector<hx_layer_info>& layers();
  const std::vector<const char*>& weights();
  harmonics::HTensor weight(const std::string& name);
  std::string set_override(const std::string& functional, const std::string& implementation);
  // Returns the name of the producer addressed by a bind call, for error messages.
  std::string stream_name(const char* name) const;

 private:
  struct Inference {
    int64_t batch = 0;
    std::unique_ptr<harmonics::engine::CompiledStep> step;
  };

  // One request for inference.
  struct Asked {
    std::map<int, harmonics::HTensor> inputs;  // by producer
    int64_t batch = 1;
    bool stacked = false;  // with a leading batch axis
  };
  // A running cycle and its concurrent inference.
  struct Running {
    Running(harmonics::engine::BoundGraph& graph, int cycle, const harmonics::engine::RunSettings& settings)
        : runtime(graph, cycle, settings), inference(graph, runtime, settings) {}
    harmonics::engine::CycleRuntime runtime;
    harmonics::engine::ConcurrentInference inference;
    const std::thread::id thread = std::this_thread::get_id();  // the thread of fit()
  };
  class Run;

  harmonics::engine::BoundGraph& graph();
  harmonics::engine::Graph resolved(harmonics::engine::Registry& names) const;
  void take_graph(harmonics::engine::Graph graph);
  void report_figures(const harmonics::engine::CycleReport& result, hx_fit_report& report);
  harmonics::engine::CycleReport run_cycle(Run& run, int cycle, const hx_fit_settings& settings,
                                           harmonics::engine::FitCheckpoints& checkpoints, bool& stopped,
                                           std::vector<std::string>& notes);
  Asked asked(const char* const* names, hx_value* const* inputs, uint32_t n_inputs);
  std::vector<harmonics::HTensor> infer_alone(const char* const* names, hx_value* const* inputs, uint32_t n_inputs);
  std::shared_ptr<Running> running();
  // Locks owner_. Throws ErrorKind::Usage while a cycle runs, which uses the graph without the lock.
  std::unique_lock<std::recursive_mutex> between_fits();
  harmonics::engine::StreamSet& streams(uint32_t purpose);
  int node_named(const char* name, uint32_t purpose);
  harmonics::engine::CompiledStep& step_of(int64_t batch);
  std::vector<const char*>& handed(const std::vector<std::string>& texts);
  static void hand_out(const std::vector<harmonics::engine::LeftOver>& all, std::vector<hx_left_over>& out);

  std::string name_;
  harmonics::engine::Registry registered_;  // layered over the global registry
  hx_registry pending_;
  harmonics::engine::NameChain chain_{registered_};
  bool stale_ = false;  // names have changed since the graph resolved them
  harmonics::engine::Flow flow_;
  std::unique_ptr<harmonics::engine::BoundGraph>
      graph_;                            // created by the first call that needs it, after registrations
  std::string weights_;                  // initial weights of a restored graph; kept because tensors are views into it
  std::string device_;                   // device of later calls; "" if each uses its own
  harmonics::engine::RunSettings last_;  // settings of the last fit; later calls use its threads, device and precision
  Inference inference_;

  // Held by every call that uses the graph, and by fit() except while a cycle runs. During a cycle, calls that read the
  // graph go through running_.
  std::recursive_mutex owner_;
  std::mutex state_;  // guards running_
  std::condition_variable changed_;
  std::shared_ptr<Running> running_;
  std::atomic<bool> stops_{false};  // of the running fit

  std::vector<std::string> texts_;
  std::vector<const char*> pointers_;
  std::vector<std::string> undo_;
  std::vector<const char*> undo_pointers_;
  std::vector<hx_layer_info> layers_;
  std::vector<hx_epoch> epochs_;
  harmonics::engine::FigureLists figures_;
  std::string saved_, stopped_by_, checkpoint_;
  std::vector<harmonics::engine::LeftOver> left_over_, left_over_tested_;
  std::vector<hx_left_over> left_over_of_fit_, left_over_of_test_;
};
