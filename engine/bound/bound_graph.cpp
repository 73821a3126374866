#include "engine/bound/bound_graph.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <thread>

#include <fmt/core.h>
#include <harmonics/quantity.hpp>

#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/bound/recorded_streams.hpp"
#include "engine/bound/torch_names.hpp"
#include "engine/execution/compiled_plan.hpp"
#include "engine/execution/selection.hpp"
#include "engine/flow/bind_call.hpp"
#include "engine/flow/run_edge.hpp"
#include "formats/safetensors.hpp"
#include "engine/model/weights_file.hpp"
#include "engine/streams/check_streams.hpp"

namespace harmonics::engine {

namespace {

const std::string kMoment = "moment/";

// Returns whether the elements are read from a model's file at every start.
bool is_in_model_file(const StoredTensor& stored) { return stored.of_model && stored.fixed; }

// Tensors, one per line; of many only the first ones.
class TensorLines {
 public:
  void add(std::string line) {
    if (count_++ < kShown) lines_ += "\n  " + std::move(line);
  }
  bool empty() const { return count_ == 0; }
  std::string text() const {
    return count_ <= kShown ? lines_ : fmt::format("{}\n  and {} more", lines_, count_ - kShown);
  }

 private:
  static constexpr size_t kShown = 6;
  std::string lines_;
  size_t count_ = 0;
};

size_t symbol_bytes(const StreamType& type) {
  size_t bytes = 0;
  for (const std::string& word : type.symbols) bytes += word.size();
  return bytes;
}

}  // namespace

Comparison parse_comparison(const std::string& text) {
  const size_t at = text.find_first_of("<>");
  const auto trim = [](std::string s) {
    const size_t a = s.find_first_not_of(' '), b = s.find_last_not_of(' ');
    return a == std::string::npos ? std::string() : s.substr(a, b - a + 1);
  };
  Comparison c;
  if (at != std::string::npos) {
    c.metric = trim(text.substr(0, at));
    c.op = text.substr(at, at + 1 < text.size() && text[at + 1] == '=' ? 2 : 1);
    const std::string number = trim(text.substr(at + c.op.size()));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), c.value);
    if (!c.metric.empty() && error == std::errc() && end == number.data() + number.size() && std::isfinite(c.value))
      return c;
  }
  throw Error(ErrorKind::Usage, fmt::format("'{}' is not a condition", text), {},
              {"write METRIC<NUMBER, e.g. 'loss<0.05' or 'output.accuracy>=0.98'"});
}

BoundGraph::BoundGraph(Graph graph, Registry* outer)
    : graph_(std::move(graph)), registry_(outer ? outer : &Registry::global()) {}

void BoundGraph::set_limits(const ModelLimits& limits) {
  limits_ = limits;
  store_->set_limits(limits);
}

void BoundGraph::replace_functions(Graph graph) {
  graph.weights_folders = std::move(graph_.weights_folders);
  graph_ = std::move(graph);
  types_.clear();
  widths_.reset();
}

Graph BoundGraph::exchange(Graph graph) {
  graph.weights_folders = graph_.weights_folders;
  widths_.reset();
  return std::exchange(graph_, std::move(graph));
}

void BoundGraph::expect_words(const std::map<std::string, std::string>& metadata, const std::string& file) {
  for (const auto& [n, type] : read_recorded_streams(graph_, metadata, file))
    if (!type.symbols.empty())
      for (StreamSet* streams : {&streams_, &test_streams_, &validation_streams_})
        streams->expect_words(graph_.nodes[static_cast<size_t>(n)].name, type.symbols);
}

void BoundGraph::share_words() {
  for (int n : graph_.nodes_of(DeclarationKind::Producer)) {
    if (!streams_.bound(n) || streams_.source(n).info().symbols.empty()) continue;
    for (StreamSet* streams : {&test_streams_, &validation_streams_})
      streams->expect_words(graph_.nodes[static_cast<size_t>(n)].name, streams_.source(n).info().symbols);
  }
}

void BoundGraph::bind_consumer(const std::string& name, Address address) {
  int node = -1;
  std::vector<std::string> known;
  for (int n : graph_.nodes_of(DeclarationKind::Consumer)) {
    known.push_back(graph_.nodes[static_cast<size_t>(n)].name);
    if (name.empty() ? node < 0 && !sinks_.count(n) : graph_.nodes[static_cast<size_t>(n)].name == name) node = n;
  }
  if (node < 0 && !name.empty()) {
    Error e(ErrorKind::Usage, fmt::format("'{}' has no consumer named '{}'", graph_.name, name));
    const int other = graph_.find(name);
    if (auto near = nearest(name, known))
      e.note("did you mean '" + *near + "'?");
    else if (other >= 0 && graph_.nodes[static_cast<size_t>(other)].kind == DeclarationKind::Layer)
      e.note(
          fmt::format("'{}' is a layer: declare a consumer behind it, 'consumer results;' and '{} -> results;', or "
                      "omit the name if no other arrow leaves the layer",
                      name, name));
    else if (known.empty())
      e.note("it declares no consumer: omit the name to bind the results of the last layers");
    throw e;
  }
  // Node -1 is the unnamed consumer: the target of final layers without a consumer.
  if (sinks_.count(node))
    throw Error(ErrorKind::Usage, node < 0 ? std::string("the unnamed consumer is bound twice")
                                           : fmt::format("consumer '{}' is bound twice", name));
  bind_consumer(node,
                open_sink(registry_, node < 0 ? address.str() : graph_.nodes[static_cast<size_t>(node)].name, address));
}

void BoundGraph::bind_consumer(int node, Sink sink) { sinks_[node] = std::make_unique<Sink>(std::move(sink)); }

const std::map<int, StreamType>& BoundGraph::types() {
  if (types_.empty()) {
    std::map<int, StreamType> types = recorded_;
    std::vector<Error> errors;
    std::set<int> refused;
    for (const StreamSet* streams : {&test_streams_, &validation_streams_, &streams_})
      for (auto& [n, t] : streams->types(graph_, [&](int producer, const Error&e) {
             if (refused.insert(producer).second) errors.push_back(e);
           }))
        types[n] = std::move(t);
    if (!errors.empty()) {
      for (Error& e : width_errors(graph_, types, loaded_, std::move(refused), limits_)) errors.push_back(std::move(e));
      throw_errors(graph_.source.get(), std::move(errors));
    }
    types_ = std::move(types);
    stream_notes_ = check_recorded(graph_, recorded_, types_, weights_path_);
  }
  return types_;
}

namespace {

// Returns whether the numbers of this stream may be class indices. Its uses then decide, and with them its shape.
bool may_be_classes(const StreamInfo& info) {
  return is_integer(info.dtype) && (info.sample.rank() <= 1 || info.sample.back() == 1);
}

}  // namespace

std::vector<Error> BoundGraph::shape_errors(const GraphErrors::Rest& rest, bool assume_declared) {
  std::vector<Error> errors;
  std::set<int> refused = rest.refused;
  const auto doubted = [&](int n) {
    return rest.refused.count(n) || (rest.doubted.count(n) && may_be_classes(streams_.source(n).info()));
  };
  types_ = streams_.types(graph_, [&](int n, const Error& e) {
    if (!doubted(n)) errors.push_back(e);
  });
  std::erase_if(types_, [&](const auto& type) { return doubted(type.first); });
  if (assume_declared) assume_declared_types([&](int n) { return rest.refused.count(n) || rest.doubted.count(n); });
  try {
    check_meaning(graph_, types_);
    for (Error& e : width_errors(graph_, types_, loaded_, std::move(refused), limits_)) errors.push_back(std::move(e));
  } catch (const Error& e) {
    errors.push_back(e);
  }
  return errors;
}

void BoundGraph::assume_declared_streams() {
  types();
  assume_declared_types([](int) { return false; });
}

void BoundGraph::assume_declared_types(const std::function<bool(int)>& is_doubted) {
  for (int n : graph_.nodes_of(DeclarationKind::Producer)) {
    const GraphNode& node = graph_.nodes[static_cast<size_t>(n)];
    if (types_.count(n) || !node.has_shape || node.shape.front() < 0 || is_doubted(n)) continue;
    StreamType t;
    const StreamUse use = use_of(graph_, n);
    if (use.tokens && !use.computed && node.shape.size() == 1) {  // the declared shape is the number of tokens
      t.dtype = DType::I32;
      t.sample = Shape(node.shape);
      t.positions = 1;
    } else if (use.compared && node.shape.size() == 1) {
      t.dtype = DType::I32;
      t.classes = node.shape.front();
    } else {
      t.sample = Shape(node.shape);
    }
    types_[n] = t;
  }
}

const Widths& BoundGraph::widths() {
  if (!widths_) widths_ = widths_of(graph_);
  return *widths_;
}

Widths BoundGraph::widths_of(const Graph& other) {
  check_meaning(other, types());
  return resolve_widths(other, types(), loaded_, limits_);
}

namespace {

bool same_arguments(const Item& a, const Item& b) {
  const auto same = [](const ArgumentSpec& x, const ArgumentSpec& y) { return x.name == y.name && x.type == y.type; };
  return std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(), same);
}

}  // namespace

BoundGraph::Replaced BoundGraph::replace_functions(const std::vector<std::shared_ptr<Item>>& items) {
  return Replaced(*this, items);
}

BoundGraph::Replaced::Replaced(BoundGraph& graph, const std::vector<std::shared_ptr<Item>>& items) : graph_(graph) {
  std::vector<BoundCall*> calls;
  for (GraphEdge& edge : graph.graph_.edges)
    for (BoundCall& call : edge.calls) calls.push_back(&call);
  for (GraphTap& tap : graph.graph_.taps)
    for (BoundCall& call : tap.losses) calls.push_back(&call);
  for (const std::shared_ptr<Item>& item : items)
    for (BoundCall* call : calls) {
      const Item& old = *call->item;
      if (old.kind == item->kind && old.name == item->name && old.path == item->path && !same_arguments(old, *item))
        throw Error(ErrorKind::Plugin,
                    fmt::format("the arguments of {} '{}' have changed", kind_name(item->kind), item->name), {},
                    {"restart the run with --resume"});
    }
  registered_ = graph.registry_.replace(items);
  for (const std::shared_ptr<Item>& item : items) {
    chosen_by_name_ =
        chosen_by_name_ || item->kind == HX_FUNCTIONAL || item->kind == HX_IMPLEMENTATION || item->kind == HX_OPTIMIZER;
    for (BoundCall* call : calls) {
      if (call->item->kind != item->kind || call->item->name != item->name || call->item->path != item->path) continue;
      former_.emplace_back(call, call->item);
      call->item = item;
    }
  }
}

BoundGraph::Replaced::~Replaced() {
  if (kept_) return;
  for (auto& [call, item] : former_) call->item = item;
  graph_.registry_.put_back(registered_);
}

ResolvedSettings BoundGraph::settings(int cycle, const RunSettings& run) const {
  const CycleSettings& c = graph_.cycles.at(static_cast<size_t>(cycle));
  ResolvedSettings r;
  r.epochs = run.epochs ? run.epochs : c.epochs;
  r.steps = run.steps ? run.steps : c.steps;
  r.seconds = run.seconds ? run.seconds : c.seconds;
  r.until = c.until;
  r.patience = run.patience;
  if (!run.until.empty()) {
    r.until.clear();
    for (const std::string& text : run.until) {
      r.until.push_back(parse_comparison(text));
      check_metric(r.until.back(), graph_, registry_);
    }
  }
  r.batch = run.batch          ? *run.batch
            : c.batch          ? *c.batch
            : streams_.batch() ? static_cast<int64_t>(*streams_.batch())
                               : 64;
  if (r.batch < 1)
    throw Error(ErrorKind::Usage, fmt::format("a batch of {} samples is not possible", r.batch), {},
                {"the minimum is 1"});
  if (r.epochs.value_or(0) < 0 || r.steps.value_or(0) < 0)
    throw Error(ErrorKind::Usage, "epochs and steps cannot be negative");
  r.seed = static_cast<uint64_t>(run.seed ? *run.seed : c.seed.value_or(0));
  r.optimizer = parse_optimizer(run.optimizer ? *run.optimizer : c.optimizer.value_or("adamw"), registry_);
  if (run.lr)
    r.optimizer.lr = *run.lr;
  else if (c.lr && !r.optimizer.settings.given("lr"))
    r.optimizer.lr = *c.lr;
  r.schedule = parse_schedule(run.schedule ? *run.schedule : c.schedule.value_or("constant"), registry_);
  r.clip = run.clip ? *run.clip : c.clip.value_or(0);
  r.clip_value = run.clip_value ? *run.clip_value : c.clip_value.value_or(0);
  if (!(r.clip >= 0) || !(r.clip_value >= 0))
    throw Error(ErrorKind::Usage, "clip and clip_value cannot be negative", {},
                {"give a number above 0, or 0 for no clipping"});
  if (c.unpaired) r.unpaired = parse_unpaired(*c.unpaired);
  r.accumulate = run.accumulate ? *run.accumulate : c.accumulate.value_or(1);
  if (r.accumulate < 1)
    throw Error(ErrorKind::Usage, fmt::format("a step of {} batches is not possible", r.accumulate), {},
                {"the minimum is 1"});
  return r;
}

std::string ResolvedSettings::training() const {
  std::string s = optimizer.str();
  if (!schedule.is_constant()) s += ", schedule " + schedule.str();
  if (clip > 0) s += fmt::format(", clip {:g}", clip);
  if (clip_value > 0) s += fmt::format(", clip_value {:g}", clip_value);
  if (accumulate > 1) s += fmt::format(", {} batches per step", accumulate);
  return s;
}

CompileOptions BoundGraph::compile_options(const DeviceSettings& device, bool training) {
  CompileOptions options;
  static_cast<DeviceSettings&>(options) = device;
  options.limits = limits_;
  options.registry = &registry_;
  options.training = training;
  return options;
}

Executor& BoundGraph::executor(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (!executor_ || executor_threads_ != threads) {
    executor_ = make_team_executor(threads);
    executor_threads_ = threads;
  }
  return *executor_;
}

std::vector<int> BoundGraph::results(int cycle) const {
  std::vector<int> result;
  for (const GraphEdge& e : graph_.edges)
    if ((e.cycle < 0 || e.cycle == cycle) &&
        graph_.nodes[static_cast<size_t>(e.target)].kind == DeclarationKind::Consumer)
      result.push_back(e.target);
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  for (int n : graph_.terminal_layers(cycle)) result.push_back(n);
  return result;
}

void BoundGraph::load_weights(const std::string& path) { load_weights(read_weights(path, registry_), path); }

void BoundGraph::load_weights(TensorFile file, const std::string& path) {
  if (holds_state(file))  // a checkpoint: load only its weights
    std::erase_if(file.tensors, [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
  weights_path_ = path;
  recorded_ = read_recorded_streams(graph_, file.metadata, path);
  expect_words(file.metadata, path);
  version_ = read_version(file.metadata, path);
  const auto text = file.metadata.find("harmonics.graph");
  learned_flow_ = text == file.metadata.end() ? "" : text->second;
  rename_torch_norms(graph_, file);
  for (auto& [name, tensor] : file.tensors) {
    loaded_[name] = store_->adopt(name, tensor, file.mapped, Role::weight, hx_init{}).type.shape;
    loaded_types_[name] = tensor.dtype();
  }
  check_belonging();
  types_.clear();
  widths_.reset();
}

// Rejects a weights file of another graph: loading it would leave every weight at its initial value.
void BoundGraph::check_belonging() const {
  bool owns = false;
  for (const GraphEdge& e : graph_.edges)
    for (size_t i = 0; i < e.calls.size(); ++i) {
      const std::string prefix = parameter_prefix(e, i) + ".";
      const auto it = loaded_.lower_bound(prefix);
      if (it != loaded_.end() && it->first.compare(0, prefix.size(), prefix) == 0) return;
      owns =
          owns || (e.calls[i].item->kind == HX_LAYER && !(e.calls[i].item->flags & (HX_MODE_ONLY | HX_IDENTITY_SKIP)));
    }
  if (loaded_.empty() || !owns) return;
  throw Error(
      ErrorKind::Weights,
      fmt::format("none of the {} tensors of {} belongs to '{}'", loaded_.size(), weights_path_, graph_.name), {},
      {fmt::format(
          "its first is '{}'; parameters are named SOURCE.TARGET.FUNCTION..., so renamed layers need new weights",
          loaded_.begin()->first)});
}

namespace {

// Returns the prefixes of parameters that another cycle or a branch may use.
std::vector<std::string> prefixes_elsewhere(const Graph& graph, int cycle) {
  std::vector<std::string> all;
  for (const GraphEdge& e : graph.edges)
    if ((e.cycle >= 0 && e.cycle != cycle) || !e.branches.empty())
      for (size_t i = 0; i < e.calls.size(); ++i) all.push_back(parameter_prefix(e, i) + ".");
  return all;
}

}  // namespace

// Returns whether the parameter is used and every function that uses it is frozen.
bool BoundGraph::is_frozen(const std::string& name) const {
  bool frozen = false;
  for (const GraphEdge& e : graph_.edges)
    for (size_t i = 0; i < e.calls.size(); ++i) {
      const BoundCall& call = e.calls[i];
      const bool uses = name.starts_with(parameter_prefix(e, i) + ".") ||
                        (call.tied >= 0 && name == tied_prefix(graph_, call.tied, call.span) + ".weight");
      if (uses && !call.freeze) return false;
      frozen = frozen || uses;
    }
  return frozen;
}

void BoundGraph::fix_parameters(const Program& program) {
  const bool trains = !graph_.taps.empty();
  for (Op op : {Op::parameter, Op::state})
    for (const Node* leaf : program.leaves(op)) {
      StoredTensor& stored = *store_->find(leaf->callee);
      if (!stored.fixed && !is_updated(program, leaf->callee))
        stored.fixed = !trains || (op == Op::parameter && is_frozen(leaf->callee));
    }
}

void BoundGraph::compare_with_file(const Program& program, int cycle, Mode mode) {
  TensorLines missing, surplus;
  for (Op op : {Op::parameter, Op::state})
    for (const Node* leaf : program.leaves(op)) {
      const StoredTensor* stored = store_->find(leaf->callee);
      if (stored->role != Role::moment && !is_in_model_file(*stored) && !loaded_.count(leaf->callee) &&
          !(mode != Mode::train && fresh_.count(leaf->callee))) {
        missing.add(leaf->callee + " " + stored->type.str());
        if (mode == Mode::train) fresh_.insert(leaf->callee);
      }
    }
  if (!missing.empty() && mode != Mode::train)
    throw Error(ErrorKind::Weights, fmt::format("{} lacks weights the graph needs:{}", weights_path_, missing.text()),
                {}, {"these arrows were not part of the trained graph; continue training, or remove them"});
  if (mode == Mode::evaluate) return;
  weight_notes_.clear();
  if (!missing.empty()) weight_notes_.push_back("not in the file, starting fresh:" + missing.text());
  std::set<std::string_view> used;
  for (Op op : {Op::parameter, Op::state})
    for (const Node* leaf : program.leaves(op)) used.insert(leaf->callee);
  const std::vector<std::string> elsewhere = prefixes_elsewhere(graph_, cycle);
  const auto belongs_elsewhere = [&](const std::string& name) {
    return std::any_of(elsewhere.begin(), elsewhere.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  for (const auto& [name, shape] : loaded_)
    if (!used.count(name) && !belongs_elsewhere(name)) surplus.add(name + " " + shape.str());
  if (!surplus.empty()) weight_notes_.push_back("in the file but not used by this graph:" + surplus.text());
  note_conversions(used);
}

void BoundGraph::note_conversions(const std::set<std::string_view>& used) {
  std::string example;
  size_t converted = 0;
  for (const auto& [name, dtype] : loaded_types_) {
    const StoredTensor* stored = used.count(name) ? store_->find(name) : nullptr;
    if (!stored || stored->type.dtype == dtype) continue;
    if (converted++ == 0)
      example = fmt::format("'{}' from {} to {}", name, dtype_name(dtype), dtype_name(stored->type.dtype));
  }
  if (converted)
    weight_notes_.push_back(
        fmt::format("{} of {} converted, such as {}", quantity(converted, "tensor"), weights_path_, example));
}

Lowered BoundGraph::lower(const LoweringOptions& options) {
  StepOptions step = options;
  std::optional<Selection> selection;
  if (step.mode == Mode::train) selection.emplace(registry_, step.device, true);
  if (selection) step.chooser = &*selection;
  Lowered lowered = harmonics::engine::lower(model(static_cast<const FlowPart&>(options)), step);
  if (selection) lowered.opened = selection->opened();
  return lowered;
}

std::map<std::string, std::string> BoundGraph::metadata() const {
  std::map<std::string, std::string> all = record_streams(graph_, types_);
  if (version_) record_version(*version_, all);
  return all;
}

Model BoundGraph::model(int cycle, uint64_t seed) {
  FlowPart part;
  part.cycle = cycle;
  part.branches = graph_.branches(cycle);
  part.wanted = results(cycle);
  part.seed = seed;
  return model(std::move(part));
}

Model BoundGraph::model(FlowPart part) {
  const int cycle = part.cycle;
  part.limits = limits_;
  Model model = flow_model(graph_, types(), widths(), store_, std::move(part));
  model.made = [this, cycle](const Entry& entry, const EntrySizes& sizes, const Program& program) {
    fix_parameters(program);
    const Mode mode = sizes.training ? Mode::train : entry.name == "loss" ? Mode::evaluate : Mode::infer;
    if (!weights_path_.empty()) compare_with_file(program, cycle, mode);
  };
  return model;
}

TensorFile BoundGraph::weights() const {
  TensorFile file;
  file.metadata = metadata();
  for (const auto& [name, t] : store_->all())
    if (t.role != Role::moment && !is_in_model_file(t)) file.tensors[name] = store_->tensor(name);
  return file;
}

void BoundGraph::expect_savable() {
  constexpr uint64_t kMost = kLongestSafetensorsHeader / 2;  // the rest is reserved for tensor names and run figures
  const TensorFile described{record_streams(graph_, types()), {}};
  if (described.metadata.at("harmonics.streams").size() < kMost / 8) return;  // escaping enlarges it at most sixfold
  const uint64_t header = safetensors_header(described).size();
  if (header <= kMost) return;
  const auto longest = [&](const auto& a, const auto& b) { return symbol_bytes(a.second) < symbol_bytes(b.second); };
  const auto& [n, type] = *std::max_element(types_.begin(), types_.end(), longest);
  throw Error(
      ErrorKind::Stream,
      fmt::format("the words of '{}', {} of {} bytes together, cannot be saved with the weights: the limit is {} bytes",
                  graph_.nodes[static_cast<size_t>(n)].name, type.symbols.size(), symbol_bytes(type), kMost),
      {}, {"use class numbers instead of words, or remove --save and --checkpoint"});
}

void BoundGraph::snapshot(TensorFile& into) const {
  into.metadata = metadata();
  std::map<std::string, HTensor> former = std::exchange(into.tensors, {});
  for (const auto& [name, t] : store_->all()) {
    if (is_accumulator(name) || is_in_model_file(t)) continue;  // reset by every step, or read at every start
    const std::string key = t.role == Role::moment ? kMoment + name : name;
    if (t.fixed && t.layout == Layout::natural) {
      into.tensors.emplace(key, store_->tensor(name));
      continue;
    }
    const auto same = former.find(key);
    HTensor copy = same != former.end() && type_of(same->second) == t.type && same->second.raw()->storage->owned()
                       ? std::move(same->second)
                       : make_value(t.type, std::make_shared<Storage>(t.type.bytes()));
    store_->copy(name, copy.raw()->storage->data());
    into.tensors.emplace(key, std::move(copy));
  }
  for (const auto& [name, moment] : store_->expected()) into.tensors.emplace(kMoment + name, moment);
}

void BoundGraph::restore(const TensorFile& snapshot) {
  std::map<std::string, HTensor> numbers;
  for (const auto& [key, tensor] : snapshot.tensors)
    numbers.emplace(key.rfind(kMoment, 0) == 0 ? key.substr(kMoment.size()) : key, tensor);
  store_->expect(std::move(numbers));
}

std::vector<std::string> BoundGraph::end_restore(const TensorFile& snapshot, bool branches) {
  TensorLines other, surplus, fresh, lost;
  for (const auto& [name, numbers] : store_->expected()) {
    const auto declared = store_->all().find(name);
    if (snapshot.tensors.count(kMoment + name))
      lost.add(name);
    else if (declared != store_->all().end())
      other.add(fmt::format("{}: {} in the checkpoint, {} in the graph", name, type_of(numbers).str(),
                            declared->second.type.str()));
    else
      surplus.add(name + " " + type_of(numbers).str());
  }
  for (const auto& [name, t] : store_->all())
    if (t.role != Role::moment && !is_in_model_file(t) && !snapshot.tensors.count(name))
      fresh.add(name + " " + t.type.str());
  std::vector<std::string> notes;
  if (!other.empty()) notes.push_back("of another shape, starting fresh:" + other.text());
  if (!fresh.empty()) notes.push_back("not in the checkpoint, starting fresh:" + fresh.text());
  if (!surplus.empty()) notes.push_back("in the checkpoint but not used by this graph:" + surplus.text());
  if (!branches && !lost.empty())
    notes.push_back("the optimizer state of these does not fit and starts fresh:" + lost.text());
  store_->forget_expected(
      [&](const std::string& name) { return !branches || !snapshot.tensors.count(kMoment + name); });
  return notes;
}

}  // namespace harmonics::engine
