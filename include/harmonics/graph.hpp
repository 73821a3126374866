// Graphs for programs that embed Harmonics: parse a flow, bind streams, train, infer, save.
//
//   harmonics::HarmonicGraph g = harmonics::parse_hmx("mnist.hmx");
//   g.bindProducer("images", std::make_shared<MyProducer>(...));
//   g.fit(std::chrono::minutes(5));
//   harmonics::HTensor y = g.infer(x);
//
// Link Harmonics::harmonics. Every failure is a harmonics::Error. A graph must be used by one thread at a time. While
// fit() runs, only infer(), configure_layer() and stop_fit() can be called, from any thread; other calls throw
// ErrorKind::Usage.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/function.hpp>
#include <harmonics/graph_abi.h>
#include <harmonics/registering.hpp>
#include <harmonics/stream.hpp>
#include <harmonics/wrappers.hpp>

namespace harmonics {

// The number formats that a graph may use.
class PrecisionPolicy {
 public:
  enum class Kind { full, automatic };
  explicit PrecisionPolicy(Kind kind = Kind::full) : kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};
// Returns a policy as with `--precision auto`: products of sizes at which it is faster round their operands. The notes
// of fit() give the choice and the reason. FitOptions::precision takes precedence.
HARMONICS_FACE inline PrecisionPolicy make_auto_policy() { return PrecisionPolicy(PrecisionPolicy::Kind::automatic); }

enum class Backend { Auto, CPU, GPU, FPGA };

// Hardware for the graph whose flow has this name; overrides the descriptor. A host that splits work over several
// graphs passes the samples between them.
struct PartitionOptions {
  std::string name;
  Backend backend = Backend::Auto;
  bool fallback = true;
};

struct DeploymentDescriptor {
  Backend backend = Backend::Auto;
  bool fallback = true;  // use the CPU if the hardware or its driver is missing
  std::vector<PartitionOptions> partitions = {};
};

// <harmonics/deploy.hpp>
HARMONICS_FACE inline std::string device_for(const DeploymentDescriptor& deploy);

struct FitProgress {
  int64_t epoch = 0, epochs = 0;  // current epoch, from 0; planned epochs, 0: open-ended
  int64_t step = 0, samples = 0;
  double seconds = 0, samples_per_second = 0;
  double fraction = -1;            // of the whole run; below 0: open-ended
  double loss = 0, accuracy = -1;  // means of the last 100 steps; accuracy below 0: none
};

// Unset members have the flow's setting, or the default (AdamW, batches of 64, 10 epochs).
struct FitOptions {
  std::optional<int64_t> epochs, steps, batch, seed, accumulate;
  std::optional<double> seconds, lr, clip;
  std::string optimizer, schedule, device, precision;  // as the flags of the command line
  std::optional<DeploymentDescriptor> deployment;      // instead of `device`, for this fit
  std::vector<std::string> until;                      // "loss<0.05"
  int threads = 0;                                     // 0: all
  bool deterministic = false;
  // Called about ten times a second, on a thread of fit(). False or an exception stops the run after its current step;
  // fit() then throws the exception.
  std::function<bool(const FitProgress&)> progress;

  // Checkpoints: weights, moments and stream positions in one file. A resumed run is bit-identical to an uninterrupted
  // one. Written concurrently and at the end. With a producer that cannot seek, checkpoints cannot be resumed.
  std::string checkpoint;       // their folder, used by one fit at a time; "": none
  std::string every;            // "90s", "5m", "500steps", "1epoch"; "": every 5 minutes
  std::optional<int64_t> keep;  // number of newest checkpoints to keep; default 3
  // A checkpoint, or a folder, whose newest undamaged checkpoint is used; "": from the beginning. If it is the folder
  // of `checkpoint` and empty, the run starts at the beginning. If that folder has checkpoints, it must be given here.
  std::string resume;
  // "f1", "topk(5)": additional metrics of training, validation and test().
  std::vector<std::string> metrics;
};

// By name: "loss", "f1", or "output.f1" if several layers are measured. NaN: undefined.
using Figures = std::map<std::string, double>;

struct EpochFigures {
  int64_t epoch = 0, steps = 0, samples = 0;  // epoch from 1
  double seconds = 0, loss = 0, accuracy = -1, learning_rate = 0;
  Figures metrics;     // FitOptions::metrics over the epoch
  Figures validation;  // on the streams bound for validation, after the epoch; empty: none
};

// Samples of a stream that the last pass left unread, because another stream ended first.
struct LeftOverSamples {
  std::string producer;
  uint64_t samples = 0;
};

struct FitReport {
  int64_t epochs = 0, steps = 0, samples = 0;
  double seconds = 0, loss = 0, accuracy = -1;
  std::string stopped_by;
  std::vector<std::string> notes;
  Figures metrics;  // at the end of the run
  // All epochs, including those before the checkpoint from which the run resumed. At most 1,024 entries: longer runs
  // have every second, every fourth epoch and so on, and the last one.
  std::vector<EpochFigures> by_epoch;
  int64_t resumed_at = 0;  // step of the checkpoint from which the run resumed; 0: none
  std::string checkpoint;  // file of the newest checkpoint; "": none
  std::vector<LeftOverSamples> left_over;
};

struct TestReport {
  int64_t samples = 0;
  double loss = 0, accuracy = -1;
  Figures figures;  // the same, and the metrics of the last FitOptions::metrics
  std::vector<LeftOverSamples> left_over = {};
};

struct LayerInfo {
  std::string name;
  Shape shape;         // of one sample's value
  std::string reason;  // reason for the shape
};

namespace detail::calls {

HARMONICS_FACE inline const hx_graph_api& graphs() { return *harmonics_graphs(); }
HARMONICS_FACE inline const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }
// FitOptions::progress of a running fit, and what it threw: exceptions do not cross the library.
struct Watcher {
  const std::function<bool(const FitProgress&)>& progress;
  std::exception_ptr thrown = nullptr;
};
HARMONICS_FACE inline int32_t call_progress(void* context, const hx_progress* p) {
  auto& watcher = *static_cast<Watcher*>(context);
  try {
    return watcher.progress({p->epoch, p->epochs, p->step, p->samples, p->seconds, p->samples_per_second, p->fraction,
                             p->loss, p->accuracy});
  } catch (...) {
    watcher.thrown = std::current_exception();
    return 0;
  }
}

// Throws if the library is older and lacks a function.
HARMONICS_FACE inline void expect(bool has, const char* what) {
  if (has) return;
  throw Error(ErrorKind::Plugin, std::string("the Harmonics library that this program runs with has no ") + what +
                                     ": it is older than contract 1.5");
}
// Returns the value of a setting of fit(), or -1 for one that is not set.
template <typename T>
HARMONICS_FACE inline T setting(const char* name, const std::optional<T>& value, bool may_be_zero = true) {
  if (!value) return T(-1);
  if (*value > T(0) || (may_be_zero && *value == T(0))) return *value;  // NaN is neither
  throw Error(ErrorKind::Usage, std::string("the setting '") + name + "' is " + std::to_string(*value))
      .note(may_be_zero ? "give a number that is not negative, or none for the flow's setting"
                        : "give a number above 0, or none for the flow's setting");
}
// Throws the errors of a flow as one message, with their lines and remedies. The first error alone would hide the
// others.
HARMONICS_FACE inline void check(hx_status status) {
  try {
    harmonics::detail::check(status);
  } catch (const Error& e) {
    std::string report = e.what();
    if (report.find(": error: ") == std::string::npos) throw;
    for (const std::string& line : e.notes()) report += "\n" + line;
    throw Error(e.kind(), report);
  }
}
HARMONICS_FACE inline Figures figures(const hx_figure* first, uint64_t count) {
  Figures all;
  for (uint64_t i = 0; i < count; ++i) all[first[i].name] = first[i].value;
  return all;
}
HARMONICS_FACE inline std::vector<EpochFigures> epochs(const hx_fit_report& report) {
  std::vector<EpochFigures> all;
  const char* at = reinterpret_cast<const char*>(report.by_epoch);
  for (uint32_t i = 0; i < report.n_epochs; ++i) {
    const auto& e = *reinterpret_cast<const hx_epoch*>(at);
    all.push_back({e.epoch, e.steps, e.samples, e.seconds, e.loss, e.accuracy, e.learning_rate,
                   figures(e.figures, e.n_figures), figures(e.validation, e.n_validation)});
    at += e.struct_size;
  }
  return all;
}
HARMONICS_FACE inline std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

struct DestroyGraph {
  void operator()(hx_graph* graph) const { graphs().destroy(graph); }
};

}  // namespace detail::calls

class HarmonicGraph : public Registering<HarmonicGraph> {
 public:
  // ---- streams ----
  // The graph owns a reference to the producer; threads of the run call it, one at a time.
  HARMONICS_FACE void bindProducer(const std::string& name, std::shared_ptr<Producer> producer) {
    bind(name, HX_FOR_TRAINING, std::move(producer));
  }
  HARMONICS_FACE void bindTest(const std::string& name, std::shared_ptr<Producer> producer) {
    bind(name, HX_FOR_TEST, std::move(producer));
  }
  // Binds a stream that is evaluated after every epoch of fit().
  HARMONICS_FACE void bindValidation(const std::string& name, std::shared_ptr<Producer> producer) {
    expect_validation();
    bind(name, HX_FOR_VALIDATION, std::move(producer));
  }
  HARMONICS_FACE void bindConsumer(const std::string& name, std::shared_ptr<Consumer> consumer) {
    if (!consumer) throw Error(ErrorKind::Usage, "consumer '" + name + "' is bound to nothing");
    check(api().bind_consumer(graph(), name.c_str(), harmonics::detail::consumer_vt(),
                              new std::shared_ptr<Consumer>(std::move(consumer))));
  }
  // Binds an address as on the command line: "file:train-images.idx?shuffle=8192".
  HARMONICS_FACE void bindProducer(const std::string& name, const std::string& address) {
    check(api().bind_producer_address(graph(), detail::calls::or_null(name), HX_FOR_TRAINING, address.c_str()));
  }
  HARMONICS_FACE void bindTest(const std::string& name, const std::string& address) {
    check(api().bind_producer_address(graph(), detail::calls::or_null(name), HX_FOR_TEST, address.c_str()));
  }
  HARMONICS_FACE void bindValidation(const std::string& name, const std::string& address) {
    expect_validation();
    check(api().bind_producer_address(graph(), detail::calls::or_null(name), HX_FOR_VALIDATION, address.c_str()));
  }
  HARMONICS_FACE void bindConsumer(const std::string& name, const std::string& address) {
    check(api().bind_consumer_address(graph(), detail::calls::or_null(name), address.c_str()));
  }

  // ---- functions of this graph ----
  // registerActivation() and the others of registering.hpp replace any item of that name; later plugins do not override
  // them. A name in the flow that is not registered elsewhere must be registered before the first stream is bound.
  // registry() returns the registry as harmonics_register receives it.
  HARMONICS_FACE FunctionRegistry& registry() {
    registration_ = {sizeof(hx_registration), harmonics_api(), api().registry(graph())};
    return reinterpret_cast<FunctionRegistry&>(registration_);  // a view of the struct, as in plugins
  }

  // ---- training and testing ----
  // Selects the hardware of later fits, tests and predictions. The descriptor's last options for `partition` override
  // its own. FitOptions::device and FitOptions::deployment take precedence. Throws the errors of device_for(). Must not
  // be called during fit().
  HARMONICS_FACE void deploy(const DeploymentDescriptor& descriptor, const std::string& partition = "");
  HARMONICS_FACE FitReport fit(const FitOptions& options = {}, PrecisionPolicy policy = PrecisionPolicy()) {
    const std::vector<const char*> until = detail::calls::pointers(options.until),
                                   metrics = detail::calls::pointers(options.metrics);
    if (!options.checkpoint.empty() || !options.resume.empty() || !metrics.empty())
      detail::calls::expect(newer(), "checkpoints and metrics for fit()");
    hx_fit_settings s{};
    s.struct_size = sizeof s;
    s.threads = options.threads;
    s.epochs = detail::calls::setting("epochs", options.epochs);
    s.steps = detail::calls::setting("steps", options.steps);
    s.batch = detail::calls::setting("batch", options.batch);
    s.seed = detail::calls::setting("seed", options.seed);
    s.accumulate = detail::calls::setting("accumulate", options.accumulate);
    s.seconds = detail::calls::setting("seconds", options.seconds, false);
    s.lr = detail::calls::setting("lr", options.lr, false);
    s.clip = detail::calls::setting("clip", options.clip);
    s.optimizer = detail::calls::or_null(options.optimizer);
    s.schedule = detail::calls::or_null(options.schedule);
    const std::string device =
        options.device.empty() && options.deployment ? device_for(*options.deployment) : options.device;
    s.device = detail::calls::or_null(device);
    const bool automatic = options.precision.empty() && policy.kind() == PrecisionPolicy::Kind::automatic;
    s.precision = automatic ? "auto" : detail::calls::or_null(options.precision);
    s.until = until.data();
    s.n_until = static_cast<uint32_t>(until.size());
    s.deterministic = options.deterministic;
    s.checkpoint = detail::calls::or_null(options.checkpoint);
    s.every = detail::calls::or_null(options.every);
    s.resume = detail::calls::or_null(options.resume);
    s.keep = options.keep ? detail::calls::setting("keep", options.keep) : 0;
    s.metrics = metrics.data();
    s.n_metrics = static_cast<uint32_t>(metrics.size());
    detail::calls::Watcher watcher{options.progress};
    if (options.progress) {
      s.progress = detail::calls::call_progress;
      s.context = &watcher;
    }
    hx_fit_report r{};
    r.struct_size = sizeof r;
    changed();
    const hx_status status = api().fit(graph(), &s, &r);
    if (watcher.thrown) std::rethrow_exception(watcher.thrown);
    check(status);
    FitReport report{r.epochs,
                     r.steps,
                     r.samples,
                     r.seconds,
                     r.loss,
                     r.accuracy,
                     r.stopped_by,
                     {r.notes, r.notes + r.n_notes},
                     detail::calls::figures(r.metrics, r.n_metrics),
                     detail::calls::epochs(r),
                     r.resumed_at,
                     r.checkpoint ? r.checkpoint : "",
                     left_over(r.left_over, r.n_left_over)};
    return report;
  }
  // Trains for this time, in repeated passes over the streams.
  template <typename Rep, typename Period>
  HARMONICS_FACE FitReport fit(std::chrono::duration<Rep, Period> time, PrecisionPolicy policy = PrecisionPolicy()) {
    FitOptions options;
    options.seconds = std::chrono::duration<double>(time).count();
    return fit(options, policy);
  }
  // Returns loss and accuracy over one pass of the streams bound for tests.
  HARMONICS_FACE TestReport test() {
    hx_evaluation e{};
    e.struct_size = sizeof e;
    check(api().evaluate(graph(), &e));
    return {e.samples, e.loss, e.accuracy, detail::calls::figures(e.figures, e.n_figures),
            left_over(e.left_over, e.n_left_over)};
  }

  // ---- inference on demand ----
  // Computes the results by name, in evaluation mode. Inputs by producer: one sample each, or a batch along a new first
  // axis. Callable from any thread; while fit() runs, the weights are a snapshot taken at the end of a step.
  HARMONICS_FACE std::map<std::string, HTensor> infer(const std::map<std::string, HTensor>& inputs) {
    const char* const* known = nullptr;
    uint32_t count = 0, given = 0;
    check(api().results(graph(), &known, &count));
    const std::vector<std::string> results(known, known + count);
    std::vector<const char*> names;
    std::vector<hx_value*> values;
    for (const auto& [name, value] : inputs) {
      if (!value) throw Error(ErrorKind::Usage, "'" + name + "' is given an empty tensor");
      names.push_back(name.c_str());
      values.push_back(value.raw());
    }
    std::vector<hx_value*> outs(count);
    check(api().infer(graph(), names.data(), values.data(), static_cast<uint32_t>(values.size()), outs.data(), count,
                      &given));
    std::map<std::string, HTensor> out;
    for (uint32_t i = 0; i < given; ++i) out.emplace(results[i], HTensor::adopt(outs[i]));
    return out;
  }
  // Likewise for a graph with one producer and one result.
  HARMONICS_FACE HTensor infer(const HTensor& x) {
    std::map<std::string, HTensor> out = infer(std::map<std::string, HTensor>{{"", x}});
    if (out.size() != 1)
      throw Error(ErrorKind::Usage, "the graph has " + std::to_string(out.size()) + " results; infer by names");
    return std::move(out.begin()->second);
  }

  // ---- weights ----
  // Returns a safetensors file in memory (weights, streams and the flow's text), built by the first call after a fit().
  // parse_blob() restores the graph from it.
  HARMONICS_FACE const void* data() const { return blob().first; }
  HARMONICS_FACE std::size_t size() const { return static_cast<std::size_t>(blob().second); }
  // Writes this file atomically. Throws ErrorKind::Output on failure.
  HARMONICS_FACE void save(const std::string& path) const {
    detail::calls::expect(newer(), "save()");
    check(api().save_file(graph(), path.c_str()));
  }
  // Replaces the weights by those of a safetensors file or checkpoint, before or after streams are bound. Loaded
  // weights determine shapes. Throws ErrorKind::NoInput for a missing file, ErrorKind::Weights if the weights are
  // damaged or of another graph. Parameters missing in the file are an error of the next infer() or test(); fit()
  // initialises them and lists them in its notes.
  HARMONICS_FACE void load(const std::string& path) {
    detail::calls::expect(newer(), "load()");
    changed();
    check(api().load(graph(), path.c_str()));
  }
  HARMONICS_FACE std::vector<std::string> weights() const {
    const char* const* names = nullptr;
    uint32_t count = 0;
    check(api().weights(graph(), &names, &count));
    return {names, names + count};
  }
  // Returns a copy of a weight.
  HARMONICS_FACE HTensor weight(const std::string& name) const {
    hx_value* value = nullptr;
    check(api().weight(graph(), name.c_str(), &value));
    return HTensor::adopt(value);
  }
  // Returns the layers. Streams must be bound.
  HARMONICS_FACE std::vector<LayerInfo> layers() const {
    const hx_layer_info* infos = nullptr;
    uint32_t count = 0;
    check(api().layers(graph(), &infos, &count));
    std::vector<LayerInfo> result;
    for (uint32_t i = 0; i < count; ++i)
      result.push_back({infos[i].name, Shape(infos[i].dims, infos[i].dims + infos[i].rank), infos[i].reason});
    return result;
  }

  // Sets arguments of the functions on arrows into a layer, in the syntax of flows: {{"rate", "0.3"}}, or
  // {{"dropout.rate", "0.3"}} if several functions have a 'rate'; "" restores the default. Values are validated like
  // the flow's text: names, ranges, widths and weights. Throws Error and changes nothing if one is invalid. During
  // fit() any thread and the progress callback may call it; the change takes effect between two steps. Returns the
  // former values; passing them to this function restores them.
  HARMONICS_FACE std::map<std::string, std::string> configure_layer(
      const std::string& layer, const std::map<std::string, std::string>& arguments) {
    detail::calls::expect(api().struct_size >= offsetof(hx_graph_api, configure_layer) + sizeof(void*),
                          "layers that change");
    std::vector<const char*> names, values;
    for (const auto& [name, value] : arguments) {
      names.push_back(name.c_str());
      values.push_back(value.c_str());
    }
    const char* const* before = nullptr;
    check(api().configure_layer(graph(), layer.c_str(), names.data(), values.data(),
                                static_cast<uint32_t>(names.size()), &before));
    changed();
    std::map<std::string, std::string> undo;
    for (std::size_t i = 0; i < names.size(); ++i) undo[names[i]] = before[i];
    return undo;
  }

  // Stops the running fit() after its current step, also if it waits for samples of a live stream. Any thread may call
  // it. No effect if no fit runs.
  HARMONICS_FACE void stop_fit() {
    detail::calls::expect(api().struct_size >= offsetof(hx_graph_api, stop_fit) + sizeof(void*), "graph.stop_fit()");
    check(api().stop_fit(graph()));
  }

  HARMONICS_FACE explicit HarmonicGraph(hx_graph* graph) : graph_(graph) {}

 private:
  friend class ScopedOverride;
  friend class ScopedRegistry;
  // Whether the library has contract 1.5.
  HARMONICS_FACE static bool newer() {
    return api().struct_size >= offsetof(hx_graph_api, close_scope) + sizeof(void*);
  }
  HARMONICS_FACE static void expect_validation() { detail::calls::expect(newer(), "streams for validation"); }
  HARMONICS_FACE static const hx_graph_api& api() { return detail::calls::graphs(); }
  HARMONICS_FACE static void check(hx_status status) { detail::calls::check(status); }
  HARMONICS_FACE hx_graph* graph() const {
    if (!graph_) throw Error(ErrorKind::Usage, "the graph was moved away");
    return graph_.get();
  }
  HARMONICS_FACE void bind(const std::string& name, uint32_t purpose, std::shared_ptr<Producer> producer) {
    if (!producer) throw Error(ErrorKind::Usage, "producer '" + name + "' is bound to nothing");
    harmonics::detail::Unwrapped u = harmonics::detail::unwrapped(std::move(producer));
    check(api().bind_producer_options(graph(), detail::calls::or_null(name), purpose, harmonics::detail::producer_vt(),
                                      new harmonics::detail::HeldProducer{std::move(u.producer), std::nullopt, {}},
                                      u.options.c_str()));
  }
  HARMONICS_FACE std::pair<const void*, uint64_t> blob() const {
    hx_graph* saved = graph();
    if (!blob_.first) check(api().save(saved, &blob_.first, &blob_.second));
    return blob_;
  }
  HARMONICS_FACE void changed() {
    if (blob_.first) blob_ = {};  // null during fit(), so that concurrent configure_layer() calls only read it
  }
  HARMONICS_FACE static std::vector<LeftOverSamples> left_over(const hx_left_over* all, uint64_t n) {
    std::vector<LeftOverSamples> out;
    for (uint64_t i = 0; i < n; ++i) out.push_back({all[i].producer, all[i].samples});
    return out;
  }

  std::unique_ptr<hx_graph, detail::calls::DestroyGraph> graph_;
  hx_registration registration_{};
  mutable std::pair<const void*, uint64_t> blob_;
};

// Selects the implementation of a functional ("portable": its body) for programs compiled in its scope, on any thread.
// Compiled programs keep it. If the implementation declines a call, fit() or infer() throws an error that lists all
// reasons.
class ScopedOverride {
 public:
  // For every graph of the process.
  HARMONICS_FACE ScopedOverride(std::string functional, const std::string& implementation)
      : ScopedOverride(static_cast<hx_graph*>(nullptr), std::move(functional), implementation) {}
  // For this graph, which must outlive this object and must not be moved from.
  HARMONICS_FACE ScopedOverride(const HarmonicGraph& graph, std::string functional, const std::string& implementation)
      : ScopedOverride(graph.graph(), std::move(functional), implementation) {}
  HARMONICS_FACE ~ScopedOverride() {
    detail::calls::graphs().set_override(graph_, functional_.c_str(), before_.c_str(), nullptr);
  }
  ScopedOverride(const ScopedOverride&) = delete;
  ScopedOverride& operator=(const ScopedOverride&) = delete;

 private:
  HARMONICS_FACE ScopedOverride(hx_graph* graph, std::string functional, const std::string& implementation)
      : graph_(graph), functional_(std::move(functional)) {
    const char* before = nullptr;
    harmonics::detail::check(
        detail::calls::graphs().set_override(graph_, functional_.c_str(), implementation.c_str(), &before));
    before_ = before;
  }

  hx_graph* graph_;
  std::string functional_, before_;
};

// Create a graph from a file, a text, or the bytes of data() and size(). `name` selects one of several harmonics.
HARMONICS_FACE inline HarmonicGraph parse_hmx(const std::string& path, const std::string& name = "") {
  hx_graph* graph = nullptr;
  detail::calls::check(detail::calls::graphs().parse_file(path.c_str(), detail::calls::or_null(name), &graph));
  return HarmonicGraph(graph);
}
HARMONICS_FACE inline HarmonicGraph parse_hmx_text(const std::string& text, const std::string& name = "") {
  hx_graph* graph = nullptr;
  detail::calls::check(detail::calls::graphs().parse(text.c_str(), "text", detail::calls::or_null(name), &graph));
  return HarmonicGraph(graph);
}
HARMONICS_FACE inline HarmonicGraph parse_blob(const void* data, std::size_t size) {
  hx_graph* graph = nullptr;
  detail::calls::check(detail::calls::graphs().restore(data, size, &graph));
  return HarmonicGraph(graph);
}
// Loads a plugin for all graphs parsed later.
HARMONICS_FACE inline void load_plugin(const std::string& path) {
  detail::calls::check(detail::calls::graphs().load_plugin(path.c_str()));
}

}  // namespace harmonics

#include <harmonics/deploy.hpp>  // IWYU pragma: export
