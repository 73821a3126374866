// Resolves widths. Priority: loaded weights, declared shape, rule of the layer function, target of a tap, ratio, width
// of the source.
#include <algorithm>
#include <functional>
#include <set>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/flow/declared_shape.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/flow/model_call.hpp"
#include "engine/flow/run_edge.hpp"
#include "engine/model/sealed_file.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kMostErrors = 20;

// Limits of counted classes. Up to kFewClasses are always accepted. Above kManyClasses there must be at least one
// number per kClassesPerNumber classes. More than kMostCountedClasses, as for frames, are always refused.
constexpr int64_t kFewClasses = 1000;
constexpr uint64_t kManyClasses = uint64_t{1} << 20, kClassesPerNumber = 64, kMostCountedClasses = uint64_t{1} << 24;

int64_t features(const Width& w) { return w.shape.from(w.positions).count(); }

// Thrown if a width depends on a refused one, whose error has been reported.
struct Refused {};

// Thrown if a function requests a parameter whose shape differs from the loaded one.
struct Mismatch {};

// Parameters as leaves of the scratch tracer; only their types matter.
class ScratchParameters : public ParameterSource {
 public:
  using Seen = std::function<void(const std::string& path, const TensorType& type, const BoundCall& call)>;
  // `loaded`: shapes that parameters must have; null for none. `seen`: called for every parameter; null for none.
  // `weights`: budget for the parameters of one arrow, which are allocated later.
  ScratchParameters(Tracer& tracer, Budget& weights, const LoadedShapes* loaded, const Seen* seen)
      : tracer_(tracer), weights_(weights), loaded_(loaded), seen_(seen) {}
  HTensor parameter(const std::string& path, const TensorType& type, const hx_init&, const BoundCall& call) override {
    weights_.take(type.bytes(), "'" + path + "'", type.str());
    if (seen_) (*seen_)(path, type, call);
    if (loaded_)
      if (const auto it = loaded_->find(path); it != loaded_->end() && it->second != type.shape) throw Mismatch{};
    return tracer_.parameter(path, type);
  }
  HTensor of_model(const std::string& path, const ModelParameter& what, const BoundCall& call) override {
    return parameter(path, what.parameter.type, what.parameter.init, call);
  }
  HTensor state(const std::string& path, const TensorType& type, const hx_init&) override {
    return tracer_.state(path, type);
  }
  void update(const std::string&, const HTensor&) override {}
  HTensor random(const std::string& path, const Shape& shape) override { return random_numbers(tracer_, path, shape); }
  bool training() const override { return false; }

 private:
  Tracer& tracer_;
  Budget& weights_;
  const LoadedShapes* loaded_;
  const Seen* seen_;
};

class Solver {
 public:
  Solver(const Graph& graph, const std::map<int, StreamType>& streams, const LoadedShapes& loaded,
         const ModelLimits& limits, std::set<int> refused = {})
      : graph_(graph),
        streams_(streams),
        loaded_(loaded),
        refused_(std::move(refused)),
        limits_(limits),
        all_steps_(several_programs(limits).for_steps()),
        time_(limits) {
    for (const GraphEdge& e : graph_.edges)
      for (size_t i = 0; i < e.calls.size(); ++i)
        if (!e.calls[i].weights.empty()) add_shapes_of(graph_.weights_file(e.calls[i]), parameter_prefix(e, i) + ".");
  }

  // Resolves all widths. The result is complete if there are no errors().
  Widths run() {
    for (int n : graph_.order()) {
      const GraphNode& node = graph_.nodes[static_cast<size_t>(n)];
      if (full()) break;
      if (node.kind == DeclarationKind::Producer ? streams_.count(n) == 0 : !driven(n)) continue;
      try {
        width(n);
      } catch (const Refused&) {
      }
    }
    if (!full()) check_shared();
    note_models();
    return std::move(result_);
  }
  std::vector<Error> errors() { return in_order_of_text(std::move(errors_)); }

 private:
  bool full() const { return exhausted_ || errors_.size() >= kMostErrors; }

  void report(const Error& e) {
    const auto same = [&](const Error& other) {
      return other.span().line == e.span().line && other.span().column == e.span().column &&
             std::string_view(other.what()) == e.what();
    };
    if (!full() && std::none_of(errors_.begin(), errors_.end(), same)) errors_.push_back(e);
  }

  // Allows more steps, because arrows are traced repeatedly until all widths are known.
  static ModelLimits several_programs(ModelLimits limits) {
    limits.steps = limits.steps > UINT64_MAX / 8 ? UINT64_MAX : limits.steps * 8;
    return limits;
  }

  const GraphNode& node(int n) const { return graph_.nodes[static_cast<size_t>(n)]; }

  // Adds the shapes of initial parameters of an arrow. A missing or unsuitable file is reported when it is read.
  void add_shapes_of(const std::string& file, const std::string& prefix) {
    if (const auto known = loaded_.lower_bound(prefix); known != loaded_.end() && known->first.starts_with(prefix))
      return;
    try {
      for (const auto& [name, tensor] : read_weights(file).tensors)
        if (name.starts_with(prefix) || name.find('.') == std::string::npos)
          loaded_.emplace(name.starts_with(prefix) ? name : prefix + name, tensor.shape());
    } catch (const Error&) {
      return;
    }
  }

  std::string place(Span span) const {
    return fmt::format("{}:{}:{}", graph_.source ? graph_.source->name() : graph_.name, span.line, span.column);
  }

  // Checks that functions that share a parameter agree on its shape.
  void check_shared() {
    std::set<std::string> prefixes;
    bool shared = false;
    for (const GraphEdge& e : graph_.edges)
      for (size_t i = 0; i < e.calls.size(); ++i)
        shared = shared || e.calls[i].tied >= 0 || !prefixes.insert(parameter_prefix(e, i)).second;
    if (!shared) return;
    struct Use {
      TensorType type;
      Span span;
    };
    std::map<std::string, Use> first;
    std::optional<Error> conflict;
    const GraphEdge* edge = nullptr;
    const ScratchParameters::Seen see = [&](const std::string& path, const TensorType& type, const BoundCall& call) {
      const Span span = call.span.line ? call.span : edge->span;
      const auto [at, fresh] = first.emplace(path, Use{type, span});
      if (fresh || at->second.type == type || conflict) return;
      conflict.emplace(
          ErrorKind::Shape,
          fmt::format("'{}' is shared, and is {} here, but {} where it is used first", path, type.str(),
                      at->second.type.str()),
          span,
          std::vector<std::string>{"note: it is used first at " + place(at->second.span),
                                   call.tied >= 0
                                       ? "tied= takes the weight as it is: the widths must agree"
                                       : fmt::format("separate them by name: {}(name=\"second\")", call.item->name)});
    };
    for (const GraphEdge& e : graph_.edges)
      if (result_.of.count(e.target) && result_.of.count(e.source)) {
        edge = &e;
        try {
          try_edge(e, features(width(e.target)), nullptr, &see);
        } catch (const Refused&) {
        } catch (const Error& error) {
          return report(error);
        }
        if (conflict) return report(*conflict);
      }
  }

  // Adds the notes of the models' files.
  void note_models() {
    for (const GraphEdge& e : graph_.edges)
      for (const BoundCall& c : e.calls)
        if (c.model && result_.of.count(e.target))
          for (const std::string& note : c.model->open(graph_, c)->notes)
            result_.notes.push_back(fmt::format("the model of '{}': {}", node(e.target).name, note));
  }

  bool driven(int n) const { return !into_[static_cast<size_t>(n)].empty(); }

  const Width& width(int n) {
    if (auto it = result_.of.find(n); it != result_.of.end()) return it->second;
    if (refused_.count(n) || full()) throw Refused{};
    if (std::find(open_.begin(), open_.end(), n) != open_.end())
      throw Error(ErrorKind::Shape, fmt::format("the width of '{}' depends on itself", node(n).name), node(n).span,
                  {fmt::format("give it a shape: layer {} {{128}};", node(n).name)});
    open_.push_back(n);
    try {
      Width w = node(n).kind == DeclarationKind::Producer ? producer(n) : layer(n);
      open_.pop_back();
      return result_.of.emplace(n, std::move(w)).first->second;
    } catch (const Error& e) {
      if (!is_of_flow(e.kind())) throw;
      report(e);
    } catch (const Refused&) {
    }
    open_.pop_back();
    refused_.insert(n);
    throw Refused{};
  }

  static bool is_of_flow(ErrorKind kind) {
    return kind == ErrorKind::Shape || kind == ErrorKind::Name || kind == ErrorKind::Type || kind == ErrorKind::Usage ||
           kind == ErrorKind::Stream || kind == ErrorKind::Weights;
  }

  Width producer(int n) {
    const auto it = streams_.find(n);
    if (it == streams_.end())
      throw Error(ErrorKind::Usage, fmt::format("producer '{}' is not bound", node(n).name), node(n).span,
                  {fmt::format("bind it: --producer {}=file:PATH", node(n).name)});
    return {it->second.sample, it->second.positions, "the stream's samples"};
  }

  FlowValue input_of(Tracer& tracer, int n) {
    const Width w = width(n);
    Shape batched{1};
    for (int64_t d : w.shape) batched.push_back(d);
    FlowValue v;
    v.positions = w.positions;
    DType dtype = DType::F32;
    const auto raw = raw_stream(n);
    if (raw != streams_.end()) {
      dtype = raw->second.dtype;
      v.classes = raw->second.classes;
      if (const StreamUse use = use_of(graph_, raw->first); use.looked_up && !use.tokens)
        expect_believable_classes(raw->first, raw->second);
    }
    v.tensor = tracer.input(node(n).name, {dtype, batched});
    return v;
  }

  // Returns the stream whose samples this node passes on unchanged: for a producer, or a stream layer without
  // functions.
  std::map<int, StreamType>::const_iterator raw_stream(int n) const {
    if (node(n).kind == DeclarationKind::Producer) return streams_.find(n);
    const GraphEdge* only = nullptr;
    for (size_t number : into_[static_cast<size_t>(n)]) {
      const GraphEdge& e = graph_.edges[number];
      if (only && only->source != e.source) return streams_.end();
      only = &e;
    }
    return only && only->is_stream && only->calls.empty() ? raw_stream(only->source) : streams_.end();
  }

  // Returns the shape of the value of an arrow, or nothing if a function needs the unknown width of the target.
  std::optional<Width> try_edge(const GraphEdge& e, std::optional<int64_t> target,
                                const LoadedShapes* must_meet = nullptr,
                                const ScratchParameters::Seen* seen = nullptr) {
    for (const BoundCall& c : e.calls) {
      for (const auto& [argument, layer] : c.layers) width(layer);
      if (c.tied >= 0 && refused_.count(c.tied)) throw Refused{};
    }
    width(e.source);
    Tracer scratch("widths");
    Budget steps = limits_.for_steps();
    scratch.set_budget(&steps);
    within([&] { time_.check("the width of '" + node(e.target).name + "'"); });
    Budget weights = limits_.for_weights();
    ScratchParameters parameters(scratch, weights, must_meet, seen);
    try {
      const EdgeResult r = run_edge(
          graph_, e, input_of(scratch, e.source), target, [&](int layer) { return input_of(scratch, layer); },
          parameters);
      within([&] { all_steps_.take(steps.used(), "the flow", "the widths of all layers"); });
      return Width{r.value.tensor.shape().from(1), r.value.positions, ""};
    } catch (const detail::NeedsWidth&) {
      within([&] { all_steps_.take(steps.used(), "the flow", "the widths of all layers"); });
      return std::nullopt;
    }
  }

  // Runs a check of a limit of the whole flow. If it fails, no more widths are computed.
  template <typename Check>
  void within(Check&& check) {
    try {
      check();
    } catch (const Error& e) {
      report(e);
      exhausted_ = true;
      throw Refused{};
    }
  }

  // For an arrow that needs a width: returns the one with which its functions request exactly the loaded weights.
  std::optional<Width> by_loaded_weights(const GraphEdge& e) {
    std::set<int64_t> candidates;
    const auto add = [&](const std::string& prefix) {
      for (auto it = loaded_.lower_bound(prefix); it != loaded_.end() && it->first.starts_with(prefix); ++it)
        for (const int64_t d : it->second) candidates.insert({d, 2 * d});  // doubled for bidirectional layers
    };
    for (size_t i = 0; i < e.calls.size(); ++i) {
      add(parameter_prefix(e, i) + ".");
      if (e.calls[i].tied >= 0) add(tied_prefix(graph_, e.calls[i].tied, e.calls[i].span) + ".weight");
    }
    return first_that_meets(e, candidates, loaded_);
  }

  // Returns the width of the first candidate with which the functions request exactly these shapes.
  std::optional<Width> first_that_meets(const GraphEdge& e, const std::set<int64_t>& candidates,
                                        const LoadedShapes& shapes) {
    for (int64_t candidate : candidates) try {
        if (auto w = try_edge(e, candidate, &shapes)) return w;
      } catch (const Mismatch&) {
      } catch (const Error&) {
        // this width does not suit the functions: try the next one
      }
    return std::nullopt;
  }

  // For an arrow that needs a width and takes weights of other arrows, into layers of known width: returns the one that
  // suits these weights.
  std::optional<Width> by_tied_weights(const GraphEdge& e) {
    std::set<int64_t> candidates;
    LoadedShapes tied;
    const ScratchParameters::Seen see = [&](const std::string& path, const TensorType& type, const BoundCall&) {
      if (const auto wanted = tied.find(path); wanted != tied.end()) wanted->second = type.shape;
    };
    for (const BoundCall& c : e.calls) {
      if (c.tied < 0 || !result_.of.count(c.tied)) continue;
      tied.emplace(tied_prefix(graph_, c.tied, c.span) + ".weight", Shape{});
      for (size_t number : into_[static_cast<size_t>(c.tied)])
        try_edge(graph_.edges[number], features(width(c.tied)), nullptr, &see);
    }
    for (const auto& [path, shape] : tied)
      for (const int64_t d : shape) candidates.insert(d);
    return first_that_meets(e, candidates, tied);
  }

  Width layer(int n) {
    const GraphNode& me = node(n);
    std::optional<Width> ruled;
    const GraphEdge* ruled_by = nullptr;
    bool from_weights = false;
    std::vector<const GraphEdge*> waiting;
    for (size_t number : into_[static_cast<size_t>(n)]) {
      const GraphEdge& e = graph_.edges[number];
      std::optional<Width> w = try_edge(e, std::nullopt);
      const bool open = !w;
      if (open) w = by_loaded_weights(e);
      from_weights = from_weights || (open && w);
      if (!w) {
        waiting.push_back(&e);
      } else if (!ruled) {
        ruled = w;
        ruled_by = &e;
      } else if (ruled->shape != w->shape) {
        throw Error(ErrorKind::Shape,
                    fmt::format("two arrows into '{}' disagree: '{}' gives {} and '{}' gives {}", me.name,
                                node(ruled_by->source).name, ruled->shape.str(), node(e.source).name, w->shape.str()),
                    e.span, {"values that meet in a layer are added, so their shapes must be equal"});
      }
    }
    const std::string declared = shape_text(me.shape);
    int64_t wanted = 0;
    std::string reason;
    if (ruled) {
      reason = ruled_by->is_stream ? "the stream itself"
               : from_weights      ? "loaded weights"
                                   : "the functions of '" + ruled_by->path + "'";
      wanted = features(*ruled);
      expect_known_tokens(n, wanted);
      if (me.has_shape && declared_values(me.shape) != wanted)
        throw Error(
            ErrorKind::Shape,
            fmt::format("layer '{}' is declared {} = {} wide, but {} give {} = {}", me.name, declared,
                        declared_values(me.shape), reason, ruled->shape.str(), wanted),
            me.span,
            {from_weights && !ruled_by->is_stream
                 ? fmt::format("the weights belong to another graph: write layer {} {}, or train without --weights",
                               me.name, shape_text(ruled->shape.vector()))
                 : "change or remove the declaration: the width follows from the functions"});
      if (auto tapped = tap_width(n); tapped && tapped->first != wanted)
        throw Error(ErrorKind::Shape,
                    fmt::format("layer '{}' is {} wide by {}, but {} requires {}", me.name, wanted, reason,
                                tapped->second, tapped->first),
                    me.span,
                    ruled_by->is_stream
                        ? std::vector<std::string>{fmt::format("a layer without shape right after a producer carries "
                                                               "no weights; write layer {} {{{}}}; for a learned map",
                                                               me.name, tapped->first)}
                        : std::vector<std::string>{});
    } else if (me.has_shape) {
      wanted = declared_values(me.shape);
      reason = "declared " + declared;
      if (auto tapped = tap_width(n); tapped && tapped->first != wanted)
        throw Error(ErrorKind::Shape,
                    fmt::format("layer '{}' is declared {} wide, but {} requires {}", me.name, wanted, tapped->second,
                                tapped->first),
                    me.span, {fmt::format("write layer {} {{{}}}; or leave the shape out", me.name, tapped->first)});
    } else if (auto tapped = tap_width(n)) {
      wanted = tapped->first;
      reason = tapped->second;
      if (me.ratio)
        if (const int64_t suggested = ratio_width(n); suggested != wanted)
          result_.notes.push_back(fmt::format("layer '{}' is {} wide because of {}; {}/{} of '{}' would suggest {}",
                                              me.name, wanted, reason, me.ratio->numerator, me.ratio->denominator,
                                              me.ratio->of.text, suggested));
    } else if (me.ratio) {
      wanted = ratio_width(n);
      reason = fmt::format("{}/{} of '{}'", me.ratio->numerator, me.ratio->denominator, me.ratio->of.text);
    } else if (const auto tied = by_tied_weights(*waiting.front())) {
      wanted = features(*tied);
      reason = "the weights it shares";
    } else {
      wanted = features(width(waiting.front()->source));
      reason = "as wide as its source '" + node(waiting.front()->source).name + "'";
      result_.notes.push_back(fmt::format("layer '{}' is {} wide, as its source '{}': nothing else determines it",
                                          me.name, wanted, node(waiting.front()->source).name));
    }
    Width w = ruled ? *ruled : Width{};
    for (const GraphEdge* e : waiting) {
      std::optional<Width> got = try_edge(*e, wanted);
      if (!got || features(*got) != wanted || (w.shape.rank() && got->shape != w.shape))
        throw Error(ErrorKind::Shape,
                    fmt::format("the arrow from '{}' gives {}, but '{}' is {} wide by {}", node(e->source).name,
                                got ? got->shape.str() : "no width", me.name, wanted, reason),
                    e->span);
      w = *got;
    }
    w.reason = reason;
    if (me.has_shape && !me.shape.empty()) w.shape = declared_shape(me, w);
    return w;
  }

  // Returns the declared dimensions after the position axes of the value.
  Shape declared_shape(const GraphNode& me, const Width& w) const {
    Shape s = w.shape.slice(0, w.positions);
    for (int64_t d : me.shape)
      if (d >= 0) s.push_back(d);
    return s;
  }

  int64_t ratio_width(int n) {
    const Ratio& r = *node(n).ratio;
    const int64_t base = features(width(node(n).ratio_of));
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<__int128>(base) * r.numerator / r.denominator));
  }

  std::optional<std::pair<int64_t, std::string>> tap_width(int n) {
    std::optional<std::pair<int64_t, std::string>> found;
    for (const GraphTap& t : graph_.taps) {
      if (t.layer != n || t.target == n) continue;  // a tap of a layer on itself does not determine its width
      if (node(t.target).kind == DeclarationKind::Producer && !streams_.count(t.target)) continue;
      for (const BoundCall& loss : t.losses) {
        if (compares_tokens(t, loss)) continue;
        auto w = target_width(t, loss);
        if (found && found->first != w.first)
          throw Error(ErrorKind::Shape,
                      fmt::format("the taps of '{}' require different widths: {} requires {}, {} requires {}",
                                  node(n).name, found->second, found->first, w.second, w.first),
                      t.span);
        found = w;
      }
    }
    return found;
  }

  // Returns whether a model's scores are compared with token numbers, which may be any of its vocabulary.
  bool compares_tokens(const GraphTap& t, const BoundCall& loss) const {
    if (!(loss.item->flags & HX_TAKES_CLASSES) || !ends_in_model(graph_, t.layer)) return false;
    const auto raw = raw_stream(t.target);
    return raw != streams_.end() && is_integer(raw->second.dtype);
  }

  void expect_known_tokens(int n, int64_t vocabulary) const {
    for (const GraphTap& t : graph_.taps)
      for (const BoundCall& loss : t.losses) {
        if (t.layer != n || !compares_tokens(t, loss)) continue;
        if (const int64_t classes = raw_stream(t.target)->second.classes; classes > vocabulary)
          throw Error(ErrorKind::Shape,
                      fmt::format("'{}' has {} different tokens, but '{}' scores {}", node(t.target).name, classes,
                                  node(n).name, vocabulary),
                      t.span, {"both need the numbers of the model's own tokenizer"});
      }
  }

  // Checks undeclared classes. Their number is the largest number plus one, so a single wrong number could create a
  // model of any size.
  void expect_believable_classes(int producer, const StreamType& stream) {
    const GraphNode& p = node(producer);
    if (p.has_shape || !stream.symbols.empty() || stream.classes <= kFewClasses) return;
    const auto classes = static_cast<uint64_t>(stream.classes);
    const std::string counted =
        stream.numbers ? fmt::format(" of {}", quantity(stream.numbers, "number")) : std::string();
    const std::string found = fmt::format("the largest number of '{}' is {}, which makes {}{}", p.name, classes - 1,
                                          quantity(classes, "class", "classes"), counted);
    const std::string remedy = fmt::format("correct the number, or declare the classes: producer {} {{{}{}}};", p.name,
                                           stream.positions ? "*, " : "", classes);
    const bool sparse = stream.numbers && classes / kClassesPerNumber > stream.numbers;
    if (classes > kMostCountedClasses || (classes > kManyClasses && sparse))
      throw Error(ErrorKind::Stream, found, p.span, {remedy});
    if (stream.numbers && classes / 2 > stream.numbers && warned_.insert(producer).second)
      result_.notes.push_back(fmt::format("{}: most of them have no sample; {}", found, remedy));
  }

  std::pair<int64_t, std::string> target_width(const GraphTap& t, const BoundCall& loss) {
    const GraphNode& target = node(t.target);
    if (refused_.count(t.target)) throw Refused{};
    const auto raw = raw_stream(t.target);
    if ((loss.item->flags & HX_TAKES_CLASSES) && raw != streams_.end() && is_integer(raw->second.dtype) &&
        raw->second.sample.rank() == raw->second.positions) {
      if ((loss.item->flags & HX_TWO_CLASSES_IN_ONE) && raw->second.classes <= 2)
        return {1, fmt::format("the two classes of '{}'", target.name)};
      if (raw->second.classes <= 0)
        throw Error(ErrorKind::Shape, fmt::format("the number of classes of '{}' is unknown", target.name), target.span,
                    {fmt::format("declare it: producer {} {{10}};", target.name)});
      expect_believable_classes(raw->first, raw->second);
      return {raw->second.classes, fmt::format("the {} classes of '{}'", raw->second.classes, target.name)};
    }
    return {features(width(t.target)), fmt::format("the width of '{}'", target.name)};
  }

  const Graph& graph_;
  const std::map<int, StreamType>& streams_;
  LoadedShapes loaded_;
  std::set<int> refused_;  // nodes without a width, whether reported or not
  std::vector<Error> errors_;
  bool exhausted_ = false;  // a limit of the whole flow was reached
  const std::vector<std::vector<size_t>> into_ = graph_.arrows_into();
  const ModelLimits limits_;
  Budget all_steps_;
  CompileTime time_;
  Widths result_;
  std::vector<int> open_;
  std::set<int> warned_;  // producers with a note
};

}  // namespace

Widths resolve_widths(const Graph& graph, const std::map<int, StreamType>& streams, const LoadedShapes& loaded,
                      const ModelLimits& limits) {
  Solver solver(graph, streams, loaded, limits);
  Widths widths = solver.run();
  std::vector<Error> errors = solver.errors();
  if (!errors.empty()) throw_errors(graph.source.get(), std::move(errors));
  return widths;
}

std::vector<Error> width_errors(const Graph& graph, const std::map<int, StreamType>& streams,
                                const LoadedShapes& loaded, std::set<int> refused, const ModelLimits& limits) {
  for (int n : graph.nodes_of(DeclarationKind::Producer))
    if (!streams.count(n)) refused.insert(n);
  Solver solver(graph, streams, loaded, limits, std::move(refused));
  solver.run();
  return solver.errors();
}

}  // namespace harmonics::engine
