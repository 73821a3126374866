#include "engine/flow/bind_call.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/flow/layer_metrics.hpp"
#include "engine/flow/model_call.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/training/update.hpp"

namespace harmonics::engine {

namespace {

WrittenValue written(const ArgumentValue& v) {
  WrittenValue w;
  w.span = v.span;
  if (const auto* n = std::get_if<Number>(&v.value))
    w.value = WrittenNumber{n->value, n->integral};
  else if (const auto* s = std::get_if<std::string>(&v.value))
    w.value = *s;
  else if (const auto* b = std::get_if<bool>(&v.value))
    w.value = *b;
  else if (const auto* word = std::get_if<Word>(&v.value))
    w.value = WrittenWord{word->text};
  else {
    WrittenList list;
    for (const ArgumentValue& item : std::get<ArgumentList>(v.value)) list.push_back(written(item));
    w.value = std::move(list);
  }
  return w;
}

bool owns_parameters(const Item& item) {
  return item.kind == HX_LAYER && !(item.flags & (HX_MODE_ONLY | HX_IDENTITY_SKIP));
}
bool in_schema(const Item& item, const std::string& name) {
  return std::any_of(item.arguments.begin(), item.arguments.end(),
                     [&](const ArgumentSpec& a) { return a.name == name; });
}

void bind_model(BoundCall& bound) {
  if (bound.tied >= 0)
    throw Error(ErrorKind::Name, "model has no argument 'tied'", bound.span,
                {"name= shares the parameters of two uses of a model"});
  bound.model = std::make_shared<CalledModel>();
}

std::string text_of(const CallArgument& a) {
  if (const auto* s = std::get_if<std::string>(&a.value.value)) return *s;
  if (const auto* w = std::get_if<Word>(&a.value.value)) return w->text;
  throw Error(ErrorKind::Type, fmt::format("'{}' must be a string", a.name->text), a.value.span);
}
bool flag_of(const CallArgument& a) {
  if (const auto* b = std::get_if<bool>(&a.value.value)) return *b;
  throw Error(ErrorKind::Type, fmt::format("'{}' must be true or false", a.name->text), a.value.span);
}

}  // namespace

int CallBinder::layer_named(const Graph& graph, const std::string& name, Span span) const {
  const int i = graph.find(name);
  if (i >= 0 && graph.nodes[static_cast<size_t>(i)].kind != DeclarationKind::Consumer) return i;
  if (unread_.words.count(name)) throw Doubt{};
  Error e(ErrorKind::Name, fmt::format("'{}' is not a layer or producer of this graph", name), span);
  std::vector<std::string> known;
  for (const GraphNode& n : graph.nodes)
    if (n.kind != DeclarationKind::Consumer) known.push_back(n.name);
  if (auto near = nearest(name, known)) e.note("did you mean '" + *near + "'?");
  throw e;
}

// Takes arguments that the engine handles out of a call, before the schema of the function checks the rest. Returns
// whether it took `a`.
bool CallBinder::engine_argument(const CallArgument& a, const Item& item, const Graph& graph, BoundCall& bound) const {
  if (!a.name || in_schema(item, a.name->text)) return false;
  const std::string& name = a.name->text;
  if (item.kind == HX_LOSS) {
    if (name == "weight") {
      const auto* n = std::get_if<Number>(&a.value.value);
      if (!n) throw Error(ErrorKind::Type, "'weight' of a loss must be a number", a.value.span);
      bound.loss_weight = n->value;
      return true;
    }
    if (name == "only") return bound.only = text_of(a), true;
    return false;
  }
  const bool after_map = item.kind == HX_ACTIVATION || (item.flags & HX_AFTER_MAP);
  if (name == "bias" && after_map) return bound.bias = flag_of(a), true;
  if (item.kind != HX_ACTIVATION && !owns_parameters(item)) return false;
  if (name == "name") return bound.parameter_name = text_of(a), true;
  if (name == "freeze") return bound.freeze = flag_of(a), true;
  if (name == "weights") return bound.weights = text_of(a), true;
  if (name == "tied") return bound.tied = layer_named(graph, text_of(a), a.value.span), true;
  return false;
}

BoundCall CallBinder::bind(const Call& call, const Graph& graph, ItemPtr item) {
  if (call.broken) throw Doubt{};
  BoundCall bound;
  bound.item = item;
  bound.span = call.name.span;
  std::vector<WrittenArgument> rest;
  for (const CallArgument& a : call.arguments) {
    if (engine_argument(a, *item, graph, bound)) continue;
    WrittenArgument w;
    if (a.name) w.name = a.name->text, w.name_span = a.name->span;
    w.value = written(a.value);
    rest.push_back(std::move(w));
  }
  BoundArguments arguments = bind_arguments(*item, rest, call.name.span);
  bound.arguments = std::move(arguments.values);
  for (const LayerArgument& l : arguments.layers)
    bound.layers.emplace_back(l.argument, layer_named(graph, l.layer, l.span));
  if (item == model_function()) bind_model(bound);
  return bound;
}

BoundCall CallBinder::function(const Call& call, const Graph& graph) {
  return bind(call, graph, find_function(call.name));
}

ItemPtr CallBinder::find_function(const Name& word) const {
  const std::string& name = word.text;
  if (name == kModelFunction) return model_function();
  ItemPtr item = registry_.find(HX_ACTIVATION, name);
  if (!item) item = registry_.find(HX_LAYER, name);
  if (!item) item = registry_.find(HX_FUNCTIONAL, name);
  if (!item) {
    if (registry_.find(HX_LOSS, name))
      throw Error(ErrorKind::Name, fmt::format("'{}' is a loss; it belongs on a training tap", name), word.span,
                  {"write LAYER <-(" + name + ")- TARGET;"});
    if (unread_.names) throw Doubt{};
    Error e(ErrorKind::Name, fmt::format("unknown function '{}'", name), word.span);
    std::vector<std::string> known = registry_.names(HX_ACTIVATION);
    for (const uint32_t kind : {HX_LAYER, HX_FUNCTIONAL})
      for (std::string& n : registry_.names(kind)) known.push_back(std::move(n));
    if (auto near = nearest(name, known))
      e.note("did you mean '" + *near + "'?");
    else
      e.note(plugin_help(HX_ACTIVATION));
    throw e;
  }
  return item;
}

BoundCall CallBinder::predicate(const Call& call, const Graph& graph) {
  ItemPtr item = registry_.find(HX_PREDICATE, call.name.text);
  if (!item) {
    if (unread_.names) throw Doubt{};
    Error e(ErrorKind::Name, fmt::format("no predicate '{}' is registered", call.name.text), call.name.span);
    if (auto near = nearest(call.name.text, registry_.names(HX_PREDICATE)))
      e.note("did you mean '" + *near + "'?");
    else
      e.note("decide by a metric (if loss < 0.5 { ... }), or load the plugin that has it: --plugin PATH");
    throw e;
  }
  return bind(call, graph, std::move(item));
}

BoundCall CallBinder::loss(const Call& call, const Graph& graph) { return bind(call, graph, find_loss(call.name)); }

ItemPtr CallBinder::find_loss(const Name& name) const {
  ItemPtr item = registry_.find(HX_LOSS, name.text);
  if (!item) {
    if (unread_.names) throw Doubt{};
    Error e(ErrorKind::Name, fmt::format("unknown loss '{}'", name.text), name.span);
    if (auto near = nearest(name.text, registry_.names(HX_LOSS)))
      e.note("did you mean '" + *near + "'?");
    else if (registry_.find(HX_ACTIVATION, name.text) || registry_.find(HX_LAYER, name.text))
      e.note("it is not a loss; a tap takes a loss, e.g. mse or cross_entropy");
    else
      e.note(plugin_help(HX_LOSS));
    throw e;
  }
  return item;
}

namespace {

// Returns whether `name` is loss or a figure of a metric, of the graph or of a layer.
bool is_metric(const std::string& name, const Graph& graph, Registry& registry) {
  const auto known = [&](const std::string& what) { return what == "loss" || !metric_giving(registry, what).empty(); };
  if (known(name)) return true;
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return false;
  const int layer = graph.find(name.substr(0, dot));
  return layer >= 0 && known(name.substr(dot + 1));
}

}  // namespace

void check_metric(const Comparison& c, const Graph& graph, Registry& registry) {
  const std::string prefix = c.metric.starts_with("val.") ? "val." : c.metric.starts_with("window.") ? "window." : "";
  const std::string name = c.metric.substr(prefix.size());
  if (is_metric(name, graph, registry) || c.metric == kGradientNorm) return;
  if (name.find('/') != std::string::npos) return;  // a loss may report it; checked when the losses are traced
  Error e(ErrorKind::Name, fmt::format("unknown metric '{}'", c.metric), c.span);
  std::vector<std::string> known{prefix + "loss", kGradientNorm};
  for (const std::string& figure : registry.names(HX_METRIC)) known.push_back(prefix + figure);
  for (const GraphNode& n : graph.nodes)
    if (n.kind == DeclarationKind::Layer)
      known.push_back(prefix + n.name + ".loss"), known.push_back(prefix + n.name + ".accuracy");
  if (auto near = nearest(c.metric, known))
    e.note("did you mean '" + *near + "'?");
  else
    e.note(
        "metrics are loss, LAYER.loss, LAYER.accuracy, those of --metric, and all of them on validation data: "
        "val.loss, val.accuracy, and on samples before they are used for training: window.loss");
  throw e;
}

}  // namespace harmonics::engine
