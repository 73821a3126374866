#include "engine/embed/embedded_graph.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "dsl/load.hpp"
#include "engine/base/address.hpp"
#include "engine/base/spelling.hpp"
#include "engine/bound/all_errors.hpp"
#include "engine/cycle/cycle_plan.hpp"
#include "engine/embed/fit_checkpoints.hpp"
#include "engine/execution/device_choice.hpp"
#include "engine/model/sealed_file.hpp"
#include "engine/plugin/pending_items.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

// Returns the type of one sample of a producer, as passed to a program.
TensorType sample_type(const StreamType& type) { return {type.dtype, type.sample}; }

template <typename T>
std::optional<T> given(T value, T least = 0) {
  return value >= least ? std::optional<T>(value) : std::nullopt;
}
std::optional<std::string> given(const char* text) { return text ? std::optional<std::string>(text) : std::nullopt; }

RunSettings run_settings(const hx_fit_settings& s) {
  RunSettings r;
  r.epochs = given(s.epochs);
  r.steps = given(s.steps);
  r.batch = given(s.batch);
  r.seed = given(s.seed);
  r.accumulate = given(s.accumulate);
  if (s.seconds > 0) r.seconds = s.seconds;
  if (s.lr > 0) r.lr = s.lr;
  r.clip = given(s.clip);
  r.optimizer = given(s.optimizer);
  r.schedule = given(s.schedule);
  if (s.device) r.device = s.device;
  if (r.device == "auto") r.device = choose_device(Registry::global()).device;
  if (s.precision) r.precision = parse_precision(s.precision);
  r.until.assign(s.until, s.until + s.n_until);
  r.metrics.assign(s.metrics, s.metrics + s.n_metrics);
  constexpr int kMostThreads = 1024;
  if (s.threads < 0 || s.threads > kMostThreads)
    throw Error(ErrorKind::Usage, fmt::format("the setting 'threads' is {}", s.threads), {},
                {fmt::format("give 1 to {}, or 0 for all", kMostThreads)});
  r.threads = s.threads;
  r.deterministic = s.deterministic != 0;
  return r;
}

// Returns the errors of shapes that follow from the declarations of a graph alone.
std::vector<Error> shape_errors(const GraphErrors::Rest& rest, Registry& names) {
  return BoundGraph(rest.graph, &names).shape_errors(rest, true);
}

// Returns the errors of names and shapes of the harmonic to open in a text with syntax errors.
std::vector<Error> later_errors(Flow flow, const std::string& name, Registry& names) {
  flow.unread.names = true;  // the program may register unknown names once it has the graph
  for (const Harmonic& harmonic : flow.harmonics) {
    if (!name.empty() && harmonic.name.text != name) continue;
    Examined examined = examine(flow, harmonic, names);
    for (Error& e : shape_errors(examined.rest, names)) examined.errors.push_back(std::move(e));
    return std::move(examined.errors);
  }
  return {};
}

hx_progress to_c(const Progress& p) {
  return {sizeof(hx_progress),  p.epoch,    p.epochs, p.step,    p.samples, p.seconds,
          p.samples_per_second, p.fraction, p.loss,   p.accuracy};
}

}  // namespace

hx_graph::hx_graph(const Flow& flow, const std::string& name)
    : name_(name), registered_(&Registry::global()), flow_(flow) {}

std::unique_ptr<hx_graph> hx_graph::parsed(const std::function<Flow()>& parse, const std::string& name) {
  try {
    return std::make_unique<hx_graph>(parse(), name);
  } catch (const FlowErrors& e) {
    hx_graph read(e.read(), name);
    read.chain_.relink();
    refuse(e, later_errors(e.read(), name, read.chain_.innermost()));
  }
}

std::unique_ptr<hx_graph> hx_graph::restored(const void* data, uint64_t bytes) {
  const std::string kept(static_cast<const char*>(data), bytes);
  const TensorFile file = read_weights(kept.data(), kept.size(), "the saved graph");
  const auto text = file.metadata.find("harmonics.graph"), name = file.metadata.find("harmonics.name");
  if (text == file.metadata.end() || text->second.empty())
    throw Error(ErrorKind::Weights, "these weights were saved without the text of their graph", {},
                {"parse the flow's file and load the weights with it"});
  const Flow flow = parse_flow(std::make_shared<SourceText>("the saved graph", text->second));
  auto graph = std::make_unique<hx_graph>(flow, name == file.metadata.end() ? "" : name->second);
  graph->weights_ = kept;
  return graph;
}

// Throws errors of names, functions, settings and shapes together.
Graph hx_graph::resolved(Registry& names) const {
  try {
    return make_graph(flow_, names, name_);
  } catch (const GraphErrors& e) {
    refuse(*flow_.source, e.errors(), shape_errors(e.rest(), names));
  }
}

BoundGraph& hx_graph::graph() {
  stale_ = stale_ || !pending_.pending.empty();
  commit_pending(pending_, registered_);
  stale_ = chain_.relink() || stale_;
  Registry& names = chain_.innermost();
  if (graph_ && stale_) {
    inference_.step.reset();
    graph_->registry().set_outer(&names);
    graph_->replace_functions(resolved(names));
    stale_ = false;
  }
  if (graph_) return *graph_;
  graph_ = std::make_unique<BoundGraph>(resolved(names), &names);
  stale_ = false;
  if (!weights_.empty())
    graph_->load_weights(read_weights(weights_.data(), weights_.size(), "the saved graph"), "the saved graph");
  return *graph_;
}

StreamSet& hx_graph::streams(uint32_t purpose) {
  if (purpose > HX_FOR_VALIDATION) throw Error(ErrorKind::Usage, fmt::format("streams have no purpose {}", purpose));
  BoundGraph& g = graph();
  return purpose == HX_FOR_TEST         ? g.test_streams()
         : purpose == HX_FOR_VALIDATION ? g.validation_streams()
                                        : g.streams();
}

std::string hx_graph::stream_name(const char* name) const { return name ? name : "producer"; }

int hx_graph::node_named(const char* name, uint32_t purpose) {
  const Graph& g = graph().graph();
  std::vector<std::string> known;
  for (int n : g.nodes_of(DeclarationKind::Producer)) {
    known.push_back(g.nodes[static_cast<size_t>(n)].name);
    if (name ? known.back() == name : !streams(purpose).bound(n)) return n;
  }
  if (!name) throw Error(ErrorKind::Usage, fmt::format("'{}' has no unbound producer left", g.name));
  Error e(ErrorKind::Usage, fmt::format("'{}' has no producer named '{}'", g.name, name));
  if (auto near = nearest(name, known)) e.note("did you mean '" + *near + "'?");
  throw e;
}

void hx_graph::bind_producer(const char* name, uint32_t purpose, Source source, const std::string& options) {
  const auto lock = between_fits();
  const int node = node_named(name, purpose);
  if (streams(purpose).bound(node))
    throw Error(ErrorKind::Usage, fmt::format("producer '{}' is bound twice", stream_name(name)));
  streams(purpose).bind(graph().graph(), graph().registry(), node, std::move(source), options);
}

void hx_graph::bind_producer(const char* name, uint32_t purpose, const std::string& address) {
  const auto lock = between_fits();
  graph().share_words();
  streams(purpose).bind(graph().graph(), graph().registry(), name ? name : "", parse_address(address));
}

void hx_graph::bind_consumer(const char* name, Sink sink) {
  const auto lock = between_fits();
  const Graph& g = graph().graph();
  const int node = name && *name ? g.find(name) : -1;
  if (name && *name && (node < 0 || g.nodes[static_cast<size_t>(node)].kind != DeclarationKind::Consumer))
    throw Error(ErrorKind::Usage, fmt::format("'{}' has no consumer named '{}'", g.name, name));
  graph().bind_consumer(node, std::move(sink));
}

void hx_graph::bind_consumer(const char* name, const std::string& address) {
  const auto lock = between_fits();
  graph().bind_consumer(name ? name : "", parse_address(address));
}

// The time in which a cycle of fit() runs. Meanwhile other threads can request inference.
class hx_graph::Run {
 public:
  explicit Run(hx_graph& graph) : graph_(graph), owner_(graph.between_fits()) {}
  ~Run() { end(); }
  void begin(std::shared_ptr<Running> running) {
    {
      const std::lock_guard<std::mutex> lock(graph_.state_);
      graph_.running_ = std::move(running);
    }
    owner_.unlock();
  }
  void end() {
    if (owner_.owns_lock()) return;
    {
      const std::lock_guard<std::mutex> lock(graph_.state_);
      graph_.running_.reset();
    }
    graph_.changed_.notify_all();
    owner_.lock();
  }

 private:
  hx_graph& graph_;
  std::unique_lock<std::recursive_mutex> owner_;
};

std::shared_ptr<hx_graph::Running> hx_graph::running() {
  const std::lock_guard<std::mutex> lock(state_);
  return running_;
}

std::unique_lock<std::recursive_mutex> hx_graph::between_fits() {
  std::unique_lock<std::recursive_mutex> lock(owner_);
  if (running())
    throw Error(
        ErrorKind::Usage, "fit() of this graph is running", {},
        {"meanwhile only infer(), configure_layer() and stop_fit() can be called; call this one before or after "
         "it"});
  return lock;
}

// `notes` receives the notes on the weights at the start of training, because inference during the run replaces them.
CycleReport hx_graph::run_cycle(Run& run, int cycle, const hx_fit_settings& settings, FitCheckpoints& checkpoints,
                                bool& stopped, std::vector<std::string>& notes) {
  inference_.step.reset();
  const auto running = std::make_shared<Running>(graph(), cycle, last_);
  CycleRuntime& runtime = running->runtime;
  if (graph().graph().trains(cycle)) checkpoints.attach(runtime);
  runtime.on_start([&](const std::vector<std::string>&, const Beginning&) {
    notes = graph_->weight_notes();
    run.begin(running);
    if (stops_) runtime.stop();  // stop_fit() was called before there was a run to stop
  });
  runtime.on_progress([&](const Progress& p) {
    const hx_progress c = to_c(p);
    if (!stopped && settings.progress && !settings.progress(settings.context, &c)) runtime.stop(), stopped = true;
  });
  try {
    CycleReport report = runtime.run();
    run.end();
    return report;
  } catch (...) {
    run.end();
    throw;
  }
}

void hx_graph::stop_fit() {
  stops_ = true;
  if (const auto current = running()) current->runtime.stop();
}

void hx_graph::fit(const hx_fit_settings& settings, hx_fit_report& report) {
  Run run(*this);
  stops_ = false;
  BoundGraph& g = graph();
  last_ = run_settings(settings);
  if (!settings.device && !device_.empty()) last_.device = device_;
  last_.goes_on = true;
  CycleReport result;
  bool stopped = false;
  const int cycles = static_cast<int>(g.graph().cycles.size());
  for (int cycle = 0; cycle < cycles; ++cycle) expect_validation(g, cycle, g.settings(cycle, last_));
  FitCheckpoints checkpoints(settings, g);
  std::vector<std::string> notes = checkpoints.notes(), of_weights;
  for (int cycle = 0; cycle < cycles && !stopped && !stops_; ++cycle) {
    if (checkpoints.over(cycle)) {
      if (g.graph().trains(cycle)) CycleRuntime(g, cycle, last_).declare_parameters();
      continue;
    }
    CycleReport one = run_cycle(run, cycle, settings, checkpoints, stopped, of_weights);
    notes.insert(notes.end(), one.notes.begin(), one.notes.end());
    if (g.graph().trains(cycle) || cycle == 0) result = std::move(one);
  }
  for (auto& [node, sink] : g.sinks()) sink->finish();
  if (!result.precision_reason.empty())
    notes.push_back(fmt::format("precision auto: {}, as {}", result.precision, result.precision_reason));
  if (!result.no_checkpoint.empty()) notes.push_back("the last checkpoint was not written: " + result.no_checkpoint);
  notes.insert(notes.end(), of_weights.begin(), of_weights.end());
  stopped_by_ = result.stopped_by;
  handed(notes);
  report.epochs = result.epochs;
  report.steps = result.steps;
  report.samples = result.samples;
  report.seconds = result.seconds;
  report.loss = result.loss;
  report.accuracy = result.accuracy;
  report.stopped_by = stopped_by_.c_str();
  report.notes = pointers_.data();
  report.n_notes = static_cast<uint32_t>(pointers_.size());
  checkpoint_ = checkpoints.newest();
  report.checkpoint = checkpoint_.c_str();
  report_figures(result, report);
  left_over_ = result.left_over;
  hand_out(left_over_, left_over_of_fit_);
  report.left_over = left_over_of_fit_.data();
  report.n_left_over = static_cast<uint32_t>(left_over_of_fit_.size());
}

void hx_graph::report_figures(const CycleReport& result, hx_fit_report& report) {
  figures_.clear();
  epochs_.clear();
  for (const EpochReport& e : result.by_epoch) {
    const std::vector<hx_figure>& figures = figures_.add(e.figures);
    const std::vector<hx_figure>& validation =
        figures_.add(e.validation ? e.validation->all() : std::map<std::string, double>());
    epochs_.push_back({sizeof(hx_epoch), static_cast<uint32_t>(figures.size()),
                       static_cast<uint32_t>(validation.size()), 0, e.epoch, e.steps, e.samples, e.seconds, e.loss,
                       e.accuracy, e.learning_rate, figures.data(), validation.data()});
  }
  const std::vector<hx_figure>& metrics = figures_.add(result.metrics);
  report.metrics = metrics.data();
  report.n_metrics = static_cast<uint32_t>(metrics.size());
  report.by_epoch = epochs_.data();
  report.n_epochs = static_cast<uint32_t>(epochs_.size());
  report.resumed_at = result.resumed_at;
}

void hx_graph::hand_out(const std::vector<LeftOver>& all, std::vector<hx_left_over>& out) {
  out.clear();
  for (const LeftOver& left : all) out.push_back({sizeof(hx_left_over), 0, left.producer.c_str(), left.samples});
}

void hx_graph::evaluate(hx_evaluation& out) {
  const auto lock = between_fits();
  BoundGraph& g = graph();
  const Evaluation e = harmonics::engine::evaluate(g, 0, g.test_streams(), last_);
  out.samples = e.samples;
  out.loss = e.loss;
  out.accuracy = e.accuracy;
  figures_.clear();
  const std::vector<hx_figure>& figures = figures_.add(e.all());
  out.figures = figures.data();
  out.n_figures = figures.size();
  left_over_tested_ = e.left_over;
  hand_out(left_over_tested_, left_over_of_test_);
  out.left_over = left_over_of_test_.data();
  out.n_left_over = static_cast<uint32_t>(left_over_of_test_.size());
}

void hx_graph::set_device(const std::string& device) {
  const auto lock = between_fits();
  inference_.step.reset();
  device_ = device;
  last_.device = device;
}

void hx_graph::load(const std::string& path) {
  const auto lock = between_fits();
  BoundGraph& g = graph();
  inference_.step.reset();
  g.load_weights(path);
}

void hx_graph::save(const std::string& path) {
  const auto lock = between_fits();
  save_sealed(graph().weights(), path);
}

void hx_graph::open_scope(std::shared_ptr<NameScope> scope) {
  const std::lock_guard<std::recursive_mutex> lock(owner_);
  chain_.of_graph.push_back(std::move(scope));
}

void hx_graph::close_scope(const std::shared_ptr<NameScope>& scope) {
  const std::lock_guard<std::recursive_mutex> lock(owner_);
  std::erase(chain_.of_graph, scope);
}

std::string hx_graph::set_override(const std::string& functional, const std::string& implementation) {
  const std::lock_guard<std::recursive_mutex> lock(owner_);
  inference_.step.reset();
  return registered_.set_override(functional, implementation);
}

CompiledStep& hx_graph::step_of(int64_t batch) {
  if (inference_.step && inference_.batch == batch) return *inference_.step;
  BoundGraph& g = graph();
  inference_.step = std::make_unique<CompiledStep>(g.lower(inference_options(g, batch)), g.store(),
                                                   g.executor(last_.threads), g.compile_options(last_));
  inference_.batch = batch;
  return *inference_.step;
}

// Checks the inputs of a request and returns them by producer. Reads only the graph; stream types must be known.
hx_graph::Asked hx_graph::asked(const char* const* names, hx_value* const* inputs, uint32_t n_inputs) {
  BoundGraph& g = *graph_;
  const std::vector<int> producers = g.graph().producers_used(0, false);
  const auto name_of = [&](int n) { return g.graph().nodes[static_cast<size_t>(n)].name; };
  Asked asked;
  for (uint32_t i = 0; i < n_inputs; ++i) {
    const bool only = !*names[i] && producers.size() == 1;
    const int n = only ? producers.front() : g.graph().find(names[i]);
    if (std::find(producers.begin(), producers.end(), n) == producers.end())
      throw Error(ErrorKind::Usage,
                  *names[i] ? fmt::format("no producer '{}' feeds the results of '{}'", names[i], g.graph().name)
                            : fmt::format("{} producers feed the results of '{}': name them", producers.size(),
                                          g.graph().name));
    const auto known = g.types().find(n);
    if (known == g.types().end())
      throw Error(ErrorKind::Usage, fmt::format("the sample type of producer '{}' is unknown", name_of(n)), {},
                  {"bind it, restore a trained graph, or declare its shape"});
    const HTensor x = HTensor::borrow(inputs[i]);
    const TensorType sample = sample_type(known->second), got = type_of(x);
    Shape stacked{got.shape.rank() ? got.shape[0] : 0};
    for (int64_t d : sample.shape) stacked.push_back(d);
    const bool one = got.shape == sample.shape;
    if (got.dtype != sample.dtype || (!one && (got.shape != stacked || stacked[0] < 1)))
      throw Error(ErrorKind::Shape, fmt::format("producer '{}' takes {}, or several along a new first axis, not {}",
                                                name_of(n), sample.str(), got.str()));
    const int64_t count = one ? 1 : stacked[0];
    if (!asked.inputs.empty() && (count != asked.batch || one == asked.stacked))
      throw Error(ErrorKind::Shape, fmt::format("the inputs differ in number: {} and {} samples", asked.batch, count));
    asked.batch = count;
    asked.stacked = !one;
    asked.inputs[n] = x;
  }
  for (int n : producers)
    if (!asked.inputs.count(n))
      throw Error(ErrorKind::Usage, fmt::format("no value is given for producer '{}'", name_of(n)));
  return asked;
}

std::vector<HTensor> hx_graph::infer(const char* const* names, hx_value* const* inputs, uint32_t n_inputs) {
  for (;;) {
    if (const auto beside = running()) {
      if (beside->inference.prepare()) {
        const Asked a = asked(names, inputs, n_inputs);
        if (auto results = beside->inference.run(a.inputs, a.batch, a.stacked)) return std::move(*results);
      }
      if (beside->thread == std::this_thread::get_id())
        return infer_alone(names, inputs, n_inputs);  // this call is in the last callback of the cycle
      std::unique_lock<std::mutex> lock(state_);
      changed_.wait(lock, [&] { return running_ != beside; });  // the cycle is over: wait until running_ is reset
      continue;
    }
    const std::lock_guard<std::recursive_mutex> lock(owner_);
    if (!running()) return infer_alone(names, inputs, n_inputs);  // otherwise a cycle has started meanwhile
  }
}

// Infers with the weights of the graph; no cycle runs.
std::vector<HTensor> hx_graph::infer_alone(const char* const* names, hx_value* const* inputs, uint32_t n_inputs) {
  graph().assume_declared_streams();
  const Asked a = asked(names, inputs, n_inputs);
  return run_inference(*graph_, step_of(a.batch), a.inputs, a.stacked);
}

std::vector<const char*>& hx_graph::handed(const std::vector<std::string>& texts) {
  texts_ = texts;
  pointers_.clear();
  for (const std::string& text : texts_) pointers_.push_back(text.c_str());
  return pointers_;
}

// Thread-safe, like infer().
const std::vector<const char*>& hx_graph::results() {
  thread_local std::vector<std::string> names;
  thread_local std::vector<const char*> pointers;
  names.clear();
  pointers.clear();
  const std::shared_ptr<Running> beside = running();
  std::unique_lock<std::recursive_mutex> lock(owner_, std::defer_lock);
  if (!beside) lock.lock();
  const BoundGraph& g = beside ? *graph_ : graph();
  for (int n : g.results(0)) names.push_back(g.graph().nodes[static_cast<size_t>(n)].name);
  for (const std::string& name : names) pointers.push_back(name.c_str());
  return pointers;
}

const std::string& hx_graph::save() {
  const auto lock = between_fits();
  return saved_ = write_sealed(graph().weights());
}

const std::vector<hx_layer_info>& hx_graph::layers() {
  const auto lock = between_fits();
  BoundGraph& g = graph();
  g.assume_declared_streams();
  std::vector<std::string> texts;
  layers_.clear();
  for (int n : g.graph().order()) {
    const auto width = g.widths().of.find(n);
    const GraphNode& node = g.graph().nodes[static_cast<size_t>(n)];
    if (width == g.widths().of.end() || node.kind != DeclarationKind::Layer) continue;
    hx_layer_info info{};
    info.struct_size = sizeof info;
    info.rank = width->second.shape.rank();
    std::copy(width->second.shape.begin(), width->second.shape.end(), info.dims);
    layers_.push_back(info);
    texts.push_back(node.name);
    texts.push_back(width->second.reason);
  }
  handed(texts);
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i].name = pointers_[2 * i], layers_[i].reason = pointers_[2 * i + 1];
  return layers_;
}

const std::vector<const char*>& hx_graph::weights() {
  const auto lock = between_fits();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : graph().store().all())
    if (tensor.role != Role::moment) names.push_back(name);
  return handed(names);
}

HTensor hx_graph::weight(const std::string& name) {
  const auto lock = between_fits();
  ParameterStore& store = graph().store();
  const StoredTensor* found = store.find(name);
  if (!found || found->role == Role::moment) {
    std::vector<std::string> known;
    for (const auto& [n, t] : store.all())
      if (t.role != Role::moment) known.push_back(n);
    Error e(ErrorKind::Name, fmt::format("there is no weight '{}'", name));
    if (auto near = nearest(name, known))
      e.note("did you mean '" + *near + "'?");
    else if (known.empty())
      e.note("the first fit() or infer() creates the weights");
    throw e;
  }
  const HTensor view = store.tensor(name);
  return HTensor(view.dtype(), view.shape(), view.bytes());
}
