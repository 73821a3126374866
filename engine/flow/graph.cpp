#include "engine/flow/graph.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include <fmt/core.h>

#include <harmonics/checked.hpp>

#include "engine/base/spelling.hpp"
#include "engine/flow/bind_call.hpp"
#include "engine/flow/cycle_settings.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kMaxErrors = 20;
constexpr int kNone = -1, kRefused = -2;           // instead of a node index
constexpr size_t kMostComparisons = 10'000;        // of unread words with names
constexpr int64_t kMostValues = int64_t{1} << 40;  // in a declared shape

const char* kind_word(DeclarationKind kind) {
  return kind == DeclarationKind::Producer ? "producer" : kind == DeclarationKind::Consumer ? "consumer" : "layer";
}

class Resolver {
 public:
  Resolver(const Flow& flow, const Harmonic& harmonic, Registry& registry)
      : harmonic_(harmonic), unread_(flow.unread), registry_(registry), binder_(registry, flow.unread) {
    graph_.source = flow.source;
    graph_.changes = flow.changes;
    graph_.name = harmonic.name.text;
  }

  Graph run() {
    resolve();
    if (errors_.empty()) return std::move(graph_);
    throw GraphErrors(in_order_of_text(std::move(errors_)), rest());
  }

  Examined examine() {
    resolve();
    return {in_order_of_text(std::move(errors_)), rest()};
  }

 private:
  void resolve() {
    for (const Declaration& d : harmonic_.declarations)
      if (!guard([&] { declare(d); })) refused_.insert(find(d.name.text));
    for (const Declaration& d : harmonic_.declarations)
      if (!guard([&] { ratio(d); })) forget_ratio(find(d.name.text));
    lines(harmonic_.flows);
    for (size_t i = 0; i < harmonic_.cycles.size(); ++i) cycle(harmonic_.cycles[i], static_cast<int>(i));
    if (harmonic_.cycles.empty()) graph_.cycles.emplace_back();
    const bool complete = errors_.empty();
    streams();
    guard([&] { implied_maps(); });
    guard([&] { loops(); });
    ratio_loops();
    if (complete && !unread_.any) drivers();
    if (complete && !unread_.blocks && !all_refused_) shared_parameters();
  }

  GraphErrors::Rest rest() {
    refuse_unread();
    refuse_undriven();
    return {std::move(graph_), std::move(refused_), std::move(doubted_), !unread_.producers};
  }

  // Runs `body` and collects its error. Returns whether there was none.
  template <typename Body>
  bool guard(Body&& body) {
    if (errors_.size() >= kMaxErrors) return false;
    try {
      body();
      return true;
    } catch (const Error& e) {
      errors_.push_back(e);
    } catch (const Doubt&) {
    }
    return false;
  }

  // ---- nodes whose shapes may depend on a refused part ----
  void refuse(int n) {
    if (n >= 0) (node(n).kind == DeclarationKind::Producer ? doubted_ : refused_).insert(n);
  }
  void refuse_arrow(const Arrow& arrow, int from, int to) {
    refuse(arrow.backward ? from : to);
    const int read = arrow.backward ? to : from;
    if (read >= 0 && node(read).kind == DeclarationKind::Producer) doubted_.insert(read);
  }
  // Drops the ratio of a node. The ratio of a producer changes how the samples of all producers are grouped.
  void forget_ratio(int n) {
    if (n < 0) return;
    node(n).ratio.reset();
    node(n).ratio_of = -1;
    refused_.insert(n);
    all_refused_ = all_refused_ || node(n).kind == DeclarationKind::Producer;
  }
  // Arrows and taps in unread text may end at any of its words, even misspelt ones.
  void refuse_unread() {
    const std::vector<std::string> names = known_names();
    all_refused_ = all_refused_ || unread_.ratios || unread_.words.size() * names.size() > kMostComparisons;
    if (all_refused_) return;
    for (const std::string& word : unread_.words)
      if (const auto name = find(word) >= 0 ? word : nearest(word, names)) refuse(find(*name));
    for (const GraphEdge& e : graph_.edges)
      if (e.is_stream && refused_.count(e.target)) refuse(e.source);
  }
  // Refuses layers without an incoming arrow, and layers in a loop or after one.
  void refuse_undriven() {
    const auto into = graph_.arrows_into();
    const std::vector<int> order = graph_.order();
    const std::set<int> placed(order.begin(), order.end());
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n)
      if (all_refused_ || !placed.count(n) ||
          (node(n).kind == DeclarationKind::Layer && into[static_cast<size_t>(n)].empty()))
        refused_.insert(n);
  }

  std::string place(Span span) const {
    return graph_.source->name() + ":" + std::to_string(span.line) + ":" + std::to_string(span.column);
  }
  GraphNode& node(int i) { return graph_.nodes[static_cast<size_t>(i)]; }

  void declare(const Declaration& d) {
    if (d.broken) return declare_broken(d);
    const int other = find(d.name.text);
    if (other >= 0 && broken_.count(other)) throw Doubt{};
    all_refused_ = all_refused_ || other >= 0;  // either of the two may be meant, with different shapes after it
    if (other >= 0)
      throw Error(ErrorKind::Name,
                  std::string(kind_word(d.kind)) + " '" + d.name.text + "' has the name of another " +
                      kind_word(node(other).kind),
                  d.name.span,
                  {"note: '" + d.name.text + "' was declared at " + place(node(other).span),
                   "producers, consumers and layers share one namespace; choose another name"});
    GraphNode n{d.kind, d.name.text, d.name.span, {}, d.has_shape, d.ratio, -1};
    for (const Dim& dim : d.shape) n.shape.push_back(dim.size);
    numbers_.emplace(n.name, static_cast<int>(graph_.nodes.size()));
    graph_.nodes.push_back(std::move(n));
    for (const Dim& dim : d.shape)
      if (dim.size < 0 && &dim != &d.shape.front())
        throw Error(ErrorKind::Shape, "'*' may appear only once, as the first dimension of '" + d.name.text + "'",
                    dim.span, {"write the sequence axis first: {*, 9}"});
    std::vector<int64_t> sizes;
    for (const Dim& dim : d.shape)
      if (dim.size >= 0) sizes.push_back(dim.size);
    const auto values = checked_count<int64_t>(sizes);
    if (!values || *values > kMostValues)
      throw Error(ErrorKind::Shape,
                  fmt::format("the shape of '{}' has {} values, the maximum is {}", d.name.text,
                              values ? std::to_string(*values) : "more than 2^63", kMostValues),
                  d.shape.front().span, {"write smaller sizes"});
  }

  // Declares a node of which only the name is known. The name may be a part of another one.
  void declare_broken(const Declaration& d) {
    all_refused_ = all_refused_ || (d.kind == DeclarationKind::Producer && d.ratio);
    if (find(d.name.text) < 0) {
      const int n = static_cast<int>(graph_.nodes.size());
      broken_.insert(n);
      numbers_.emplace(d.name.text, n);
      graph_.nodes.push_back({d.kind, d.name.text, d.name.span, {}, false, std::nullopt, -1});
    }
    throw Doubt{};
  }

  std::vector<std::string> known_names() const {
    std::vector<std::string> names;
    for (const GraphNode& n : graph_.nodes) names.push_back(n.name);
    return names;
  }

  int find(const std::string& name) const {
    const auto at = numbers_.find(name);
    return at == numbers_.end() ? -1 : at->second;
  }

  int lookup(const Name& name, const std::string& what) {
    const int i = find(name.text);
    if (i >= 0) return i;
    if (unread_.words.count(name.text)) throw Doubt{};
    Error e(ErrorKind::Name, what + " '" + name.text + "'", name.span);
    if (auto near = nearest(name.text, known_names())) {
      e.note("did you mean '" + *near + "' (declared at " + place(node(find(*near)).span) + ")?");
      refuse(find(*near));
    } else
      e.note("declare it first: layer " + name.text + ";");
    throw e;
  }

  void ratio(const Declaration& d) {
    if (!d.ratio || d.broken) return;
    const int i = find(d.name.text);
    if (i < 0 || node(i).span.line != d.name.span.line) return;
    node(i).ratio_of =
        lookup(d.ratio->of, std::string(kind_word(d.kind)) + " '" + d.name.text + "' refers to unknown layer");
    if (node(i).ratio_of == i)
      throw Error(ErrorKind::Shape, "'" + d.name.text + "' is sized by a ratio of itself", d.ratio->of.span,
                  {"name another layer or producer"});
    if (d.kind == DeclarationKind::Producer && node(node(i).ratio_of).kind != DeclarationKind::Producer)
      throw Error(ErrorKind::Name,
                  "the ratio of producer '" + d.name.text + "' must name another producer, '" + d.ratio->of.text +
                      "' is a " + kind_word(node(node(i).ratio_of).kind),
                  d.ratio->of.span);
  }

  // ---- flows ----
  void lines(const std::vector<FlowLine>& flows) {
    int before = kNone;
    for (const FlowLine& line : flows) flow_line(line, before, -1, {});
  }

  void flow_line(const FlowLine& line, int& before, int cycle, const std::vector<int>& branches) {
    if (line.broken) return broken_line(line, before);
    int origin = before;
    if (line.source) {
      origin = known(*line.source);
    } else if (origin == kNone || unread_.blocks) {
      origin = kRefused;
      guard([&] {
        if (unread_.any) throw Doubt{};  // the parser reports this
        throw Error(ErrorKind::Syntax, "the first flow in these braces has no source", line.span,
                    {"name the layer or producer it starts from: images -> hidden;"});
      });
    }
    before = origin;
    int from = origin;
    for (const Arrow& arrow : line.arrows) {
      if (arrow.piped) from = origin;
      const int to = known(arrow.target);
      if (from < 0 || to < 0) check_functions(arrow);
      const bool good = from >= 0 && to >= 0 && guard([&] {
                          if (arrow.backward)
                            tap(arrow, from, to, cycle, branches);
                          else
                            edge(arrow, from, to, cycle, branches);
                        });
      if (!good) refuse_arrow(arrow, from, to);
      if (!arrow.backward) from = to;
    }
  }

  // Ends of the arrows may be misread; unread_ contains their names.
  void broken_line(const FlowLine& line, int& before) {
    for (const Arrow& arrow : line.arrows) check_functions(arrow);
    if (!line.source && !line.arrows.empty()) return;  // continues from `before`
    before = line.source ? find(line.source->text) : kNone;
    if (before == kNone) before = kRefused;
  }

  int known(const Name& name) {
    int n = kRefused;
    guard([&] { n = lookup(name, "unknown name"); });
    return n;
  }

  // Reports errors of functions if an end of the arrow is unknown.
  void check_functions(const Arrow& arrow) {
    for (const Call& call : arrow.tag) guard([&] { bind(arrow, call); });
  }
  BoundCall bind(const Arrow& arrow, const Call& call) {
    return arrow.backward ? binder_.loss(call, graph_) : binder_.function(call, graph_);
  }
  // Binds all calls, so that all their errors are reported.
  std::vector<BoundCall> bind_all(const Arrow& arrow) {
    std::vector<BoundCall> calls;
    for (const Call& call : arrow.tag) guard([&] { calls.push_back(bind(arrow, call)); });
    if (calls.size() < arrow.tag.size()) throw Doubt{};
    return calls;
  }

  void edge(const Arrow& arrow, int from, int to, int cycle, const std::vector<int>& branches) {
    if (node(from).kind == DeclarationKind::Consumer)
      throw Error(ErrorKind::Name, "consumer '" + node(from).name + "' cannot be the source of an arrow", arrow.span,
                  {"a consumer only receives; start the arrow from the layer before it"});
    if (node(to).kind == DeclarationKind::Producer)
      throw Error(ErrorKind::Name, "producer '" + node(to).name + "' cannot be the target of an arrow",
                  arrow.target.span,
                  {"a producer only gives; for a training tap write '" + node(from).name + " <-(mse)- " +
                   node(to).name + ";'"});
    GraphEdge e;
    e.source = from;
    e.target = to;
    e.path = node(from).name + "." + node(to).name;
    e.span = arrow.span;
    e.cycle = cycle;
    e.branches = branches;
    e.calls = bind_all(arrow);
    bool learned = true;
    for (const BoundCall& c : e.calls)
      learned = learned && (c.item->kind == HX_ACTIVATION || (c.item->flags & (HX_MODE_ONLY | HX_AFTER_MAP)));
    e.implied_affine = learned && node(to).kind == DeclarationKind::Layer;
    for (BoundCall& c : e.calls)
      if (!e.implied_affine && c.item->kind != HX_ACTIVATION && c.bias)
        throw Error(ErrorKind::Name,
                    "no learned map is implied here, so 'bias' of '" + c.item->name + "' has no effect", c.span,
                    {"give the argument to the layer function with the map"});
    for (BoundCall& c : e.calls)
      if (!e.implied_affine && c.item->kind == HX_ACTIVATION &&
          (c.bias || c.freeze || !c.parameter_name.empty() || c.tied >= 0 || !c.weights.empty()))
        throw Error(ErrorKind::Name, "activation '" + c.item->name + "' owns no parameters here", c.span,
                    {"give the argument to a layer function that does"});
    graph_.edges.push_back(std::move(e));
  }

  void tap(const Arrow& arrow, int layer, int target, int cycle, const std::vector<int>& branches) {
    if (cycle < 0 && unread_.blocks) throw Doubt{};
    if (cycle < 0)
      throw Error(ErrorKind::Name, "a training tap outside of any cycle", arrow.span, {"move it into 'cycle { ... }'"});
    if (node(layer).kind != DeclarationKind::Layer)
      throw Error(ErrorKind::Name,
                  "a training tap starts from a layer, '" + node(layer).name + "' is a " + kind_word(node(layer).kind),
                  arrow.span, {"write LAYER <-(loss)- STREAM"});
    if (node(target).kind == DeclarationKind::Consumer)
      throw Error(ErrorKind::Name, "consumer '" + node(target).name + "' cannot be the target of a training tap",
                  arrow.target.span, {"a tap compares with a producer's stream or with a layer"});
    GraphTap t;
    t.layer = layer;
    t.target = target;
    t.span = arrow.span;
    t.cycle = cycle;
    t.branches = branches;
    t.losses = bind_all(arrow);
    if (arrow.tag.empty()) t.losses.push_back(binder_.loss(Call{{"mse", arrow.span}, {}, false}, graph_));
    graph_.taps.push_back(std::move(t));
  }

  void check(const Comparison& c) {
    for (size_t begin = 0; begin < c.metric.size();) {
      const size_t end = std::min(c.metric.find('.', begin), c.metric.size());
      if (unread_.words.count(std::string_view(c.metric).substr(begin, end - begin))) throw Doubt{};
      begin = end + 1;
    }
    registered([&] { check_metric(c, graph_, registry_); });
  }

  // Runs a check whose name errors may be resolved by later registrations.
  template <typename Body>
  void registered(Body&& body) {
    try {
      body();
    } catch (const Error& e) {
      if (unread_.names && e.kind() == ErrorKind::Name) throw Doubt{};
      throw;
    }
  }

  void cycle(const Cycle& c, int index) {
    CycleSettings settings;
    settings.span = c.span;
    for (const CycleCondition& condition : c.conditions)
      guard([&] {
        if (condition.kind == CycleCondition::Kind::Until) check(condition.until);
        const auto apply = [&] { apply_condition(condition, settings, registry_); };
        if (condition.setting.text == "optimizer" || condition.setting.text == "schedule")
          registered(apply);
        else
          apply();
      });
    graph_.cycles.push_back(settings);
    steps(c.steps, index, {});
  }

  void steps(const std::vector<FlowStep>& steps_in, int cycle, const std::vector<int>& branches) {
    int before = kNone;
    for (const FlowStep& step : steps_in) {
      if (const auto* line = std::get_if<FlowLine>(&step)) {
        flow_line(*line, before, cycle, branches);
        continue;
      }
      const Conditional& conditional = *std::get<std::shared_ptr<Conditional>>(step);
      const auto* comparison = std::get_if<Comparison>(&conditional.predicate);
      GraphConditional bound{comparison ? *comparison : Comparison{}, std::nullopt, cycle};
      guard([&] {
        if (conditional.broken) throw Doubt{};
        if (comparison)
          check(*comparison);
        else
          bound.predicate = binder_.predicate(std::get<Call>(conditional.predicate), graph_);
      });
      const int index = static_cast<int>(graph_.conditionals.size());
      graph_.conditionals.push_back(std::move(bound));
      std::vector<int> inner = branches;
      inner.push_back(2 * index);
      steps(conditional.then_steps, cycle, inner);
      inner.back() = 2 * index + 1;
      steps(conditional.else_steps, cycle, inner);
    }
  }

  // ---- checks over the whole graph ----
  // A layer without a declared width whose only source is one producer is the stream itself.
  void streams() {
    const auto into = graph_.arrows_into();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      if (n.kind != DeclarationKind::Layer || n.has_shape || n.ratio) continue;
      std::set<int> sources;
      for (size_t e : into[i]) sources.insert(graph_.edges[e].source);
      if (sources.size() != 1 || node(*sources.begin()).kind != DeclarationKind::Producer) continue;
      for (size_t number : into[i])
        if (GraphEdge& e = graph_.edges[number]; e.implied_affine) {
          e.is_stream = true;
          e.implied_affine = false;
        }
    }
  }

  // Prepends the learned map, the registered layer function "affine", on arrows whose functions are all activations.
  void implied_maps() {
    for (GraphEdge& e : graph_.edges) {
      if (!e.implied_affine) continue;
      BoundCall map = binder_.function(Call{{"affine", e.span}, {}, false}, graph_);
      for (BoundCall& c : e.calls) {
        if (c.bias) map.arguments.set("bias", *c.bias);
        if (c.item->kind != HX_ACTIVATION) continue;  // other functions keep these arguments for their own parameters
        if (!c.parameter_name.empty()) map.parameter_name = c.parameter_name;
        if (!c.weights.empty()) map.weights = c.weights;
        if (c.tied >= 0) map.tied = c.tied;
        map.freeze = map.freeze || c.freeze;
      }
      e.calls.insert(e.calls.begin(), std::move(map));
    }
  }

  void loops() {
    const std::vector<int> order = graph_.order();
    if (order.size() == graph_.nodes.size()) return;
    std::vector<bool> placed(graph_.nodes.size(), false);
    for (int n : order) placed[static_cast<size_t>(n)] = true;
    for (const GraphEdge& e : graph_.edges)
      if (!placed[static_cast<size_t>(e.source)] && !placed[static_cast<size_t>(e.target)])
        throw Error(ErrorKind::Name,
                    "the arrows form a loop through '" + node(e.source).name + "' and '" + node(e.target).name + "'",
                    e.span, {"a flow has no loops; use a recurrent layer function for state over time"});
  }

  void ratio_loops() {
    std::vector<int> seen_from(graph_.nodes.size(), -1);  // the node whose ratios led here first
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      int at = i;
      while (at >= 0 && seen_from[static_cast<size_t>(at)] < 0) {
        seen_from[static_cast<size_t>(at)] = i;
        at = node(at).ratio_of;
      }
      if (at < 0 || seen_from[static_cast<size_t>(at)] != i) continue;
      int first = at;
      for (int n = node(at).ratio_of; n != at; n = node(n).ratio_of) first = std::min(first, n);
      std::string path = node(first).name;
      at = first;
      do {
        at = node(at).ratio_of;
        path += " -> " + node(at).name;
      } while (at != first);
      guard([&] {
        throw Error(ErrorKind::Shape, "the ratios are circular: " + path, node(first).ratio->span,
                    {"give one of them a shape: layer " + node(first).name + " {128};"});
      });
      for (int n = first; node(n).ratio;) {
        const int next = node(n).ratio_of;
        forget_ratio(n);
        n = next;
      }
      return;
    }
  }

  // Returns, for each node, whether an arrow, a function or a tap reads it.
  std::vector<bool> read_nodes() const {
    std::vector<bool> read(graph_.nodes.size(), false);
    const auto mark = [&](int n) { read[static_cast<size_t>(n)] = true; };
    for (const GraphEdge& e : graph_.edges) {
      mark(e.source);
      for (const BoundCall& c : e.calls)
        for (const auto& [argument, layer] : c.layers) mark(layer);
    }
    for (const GraphTap& t : graph_.taps) {
      mark(t.layer), mark(t.target);
      for (const BoundCall& c : t.losses)
        for (const auto& [argument, layer] : c.layers) mark(layer);
    }
    return read;
  }

  void drivers() {
    const auto into = graph_.arrows_into();
    const std::vector<bool> read = read_nodes();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      if (n.kind == DeclarationKind::Layer && into[i].empty() && read[i])
        guard([&] {
          throw Error(ErrorKind::Name, "layer '" + n.name + "' is read but no arrow leads into it", n.span,
                      {"write SOURCE -> " + n.name + ";"});
        });
      if (n.kind == DeclarationKind::Layer && into[i].empty() && !read[i])
        guard([&] {
          throw Error(ErrorKind::Name, "layer '" + n.name + "' is declared but no flow uses it", n.span,
                      {"remove it, or write SOURCE -> " + n.name + ";"});
        });
      if (n.kind != DeclarationKind::Consumer) continue;
      for (size_t a = 1; a < into[i].size(); ++a) {
        const GraphEdge &first = graph_.edges[into[i][0]], &another = graph_.edges[into[i][a]];
        if (another.cycle == first.cycle) refused_.insert(static_cast<int>(i));
        if (another.cycle == first.cycle)
          guard([&] {
            throw Error(
                ErrorKind::Name, "consumer '" + n.name + "' takes one arrow, and this is a second one", another.span,
                {"note: the first is at " + place(first.span), "add the two in a layer, or declare a second consumer"});
          });
      }
    }
  }

  static bool owns_unnamed_parameters(const GraphEdge& e) {
    const auto owns = [](const BoundCall& c) {
      return c.item->kind == HX_LAYER && !(c.item->flags & (HX_MODE_ONLY | HX_IDENTITY_SKIP));
    };
    const auto named = [](const BoundCall& c) { return !c.parameter_name.empty(); };
    return !e.is_stream && (e.implied_affine || std::any_of(e.calls.begin(), e.calls.end(), owns)) &&
           std::none_of(e.calls.begin(), e.calls.end(), named);
  }

  // The same arrow in another branch or cycle shares its parameters. A repetition within one body requires name=.
  void shared_parameters() {
    std::map<std::tuple<int, int, int, std::vector<int>>, std::vector<const GraphEdge*>> bodies;
    for (const GraphEdge& b : graph_.edges) {
      if (!owns_unnamed_parameters(b)) continue;
      std::vector<const GraphEdge*>& before = bodies[{b.source, b.target, b.cycle, b.branches}];
      if (!before.empty()) refused_.insert(b.target);
      for (const GraphEdge* a : before)
        guard([&] {
          throw Error(
              ErrorKind::Name,
              "a second arrow from '" + node(b.source).name + "' to '" + node(b.target).name +
                  "' would share the parameters of the first",
              b.span,
              {"note: the first is at " + place(a->span), "separate them by name: -(affine(name=\"second\"))->"});
        });
      if (errors_.size() < kMaxErrors) before.push_back(&b);
    }
  }

  const Harmonic& harmonic_;
  const Unread& unread_;
  Registry& registry_;
  CallBinder binder_;
  Graph graph_;
  std::unordered_map<std::string, int> numbers_;  // node indices by name
  std::vector<Error> errors_;
  std::set<int> refused_, doubted_;  // see GraphErrors::Rest
  std::set<int> broken_;             // nodes with broken declarations
  bool all_refused_ = false;
};

}  // namespace

Examined examine(const Flow& flow, const Harmonic& harmonic, Registry& registry) {
  return Resolver(flow, harmonic, registry).examine();
}

Graph make_graph(const Flow& flow, Registry& registry, const std::string& name) {
  if (flow.harmonics.empty()) throw Error(ErrorKind::Syntax, flow.source->name() + " holds no harmonic");
  const Harmonic* chosen = nullptr;
  std::vector<std::string> names;
  for (const Harmonic& h : flow.harmonics) {
    names.push_back(h.name.text);
    if (!chosen && (name.empty() || h.name.text == name)) chosen = &h;
  }
  if (!chosen) {
    Error e(ErrorKind::Name, "no harmonic named '" + name + "' in " + flow.source->name());
    if (auto near = nearest(name, names))
      e.note("did you mean '" + *near + "'?");
    else
      e.note("the file has " + comma_separated(names));
    throw e;
  }
  return Resolver(flow, *chosen, registry).run();
}

}  // namespace harmonics::engine
