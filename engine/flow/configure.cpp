#include "engine/flow/configure.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/flow/bind_call.hpp"
#include "engine/plugin/arguments.hpp"

namespace harmonics::engine {

namespace {

ArgumentValue number_value(double value, bool integral) { return {Number{value, integral}, {}}; }

template <typename T>
ArgumentValue list_value(const std::vector<T>& items, bool integral) {
  ArgumentList list;
  for (const T item : items) list.push_back(number_value(static_cast<double>(item), integral));
  return {std::move(list), {}};
}

ArgumentValue written_value(const AttributeValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return number_value(static_cast<double>(*whole), true);
  if (const auto* real = std::get_if<double>(&value)) return number_value(*real, false);
  if (const auto* truth = std::get_if<bool>(&value)) return {*truth, {}};
  if (const auto* text = std::get_if<std::string>(&value)) return {*text, {}};
  if (const auto* all = std::get_if<std::vector<int64_t>>(&value)) return list_value(*all, true);
  if (const auto* all = std::get_if<std::vector<double>>(&value)) return list_value(*all, false);
  throw Error(ErrorKind::Type, "an argument of this type cannot be changed");
}

// One function on an arrow into the layer.
struct ConfiguredCall {
  Call* call;
  ItemPtr item;
};

class Configurer {
 public:
  Configurer(const Flow& flow, const std::string& harmonic, const std::string& layer, Registry& registry)
      : layer_(layer), registry_(registry) {
    result_.flow = flow;
    for (Harmonic& one : result_.flow.harmonics) {
      if (!harmonic.empty() && one.name.text != harmonic) continue;
      expect_layer(one);
      for (FlowLine& line : one.flows) collect(line);
      for (Cycle& cycle : one.cycles) collect(cycle.steps);
      break;
    }
    if (calls_.empty())
      throw Error(ErrorKind::Name, fmt::format("no arrow into '{}' has a function with arguments", layer));
  }

  ConfiguredFlow run(const std::vector<ArgumentChange>& changes) {
    for (const ArgumentChange& change : changes) {
      result_.before.push_back({change.argument, put(change.argument, change.value)});
      result_.standards.push_back(spec_of(change.argument).default_text);
    }
    result_.after = changes;
    return std::move(result_);
  }
  // Returns the schema of an argument.
  ArgumentSpec spec_of(const std::string& argument) const { return found(argument).spec; }

 private:
  struct Found {
    std::vector<const ConfiguredCall*> calls;  // the same function on several arrows or in several branches
    ArgumentSpec spec;
    size_t place = 0;  // position of the argument in the schema
  };

  void expect_layer(const Harmonic& harmonic) const {
    std::vector<std::string> layers;
    for (const Declaration& d : harmonic.declarations)
      if (d.kind == DeclarationKind::Layer) layers.push_back(d.name.text);
    if (std::find(layers.begin(), layers.end(), layer_) != layers.end()) return;
    Error e(ErrorKind::Name, fmt::format("'{}' has no layer '{}'", harmonic.name.text, layer_));
    if (const auto near = nearest(layer_, layers)) e.note("did you mean '" + *near + "'?");
    throw e;
  }

  void collect(FlowLine& line) {
    for (Arrow& arrow : line.arrows) {
      if (arrow.backward || arrow.target.text != layer_) continue;
      for (Call& call : arrow.tag) {
        ItemPtr item = CallBinder(registry_, result_.flow.unread).find_function(call.name);
        if (!item->arguments.empty()) calls_.push_back({&call, std::move(item)});
      }
    }
  }
  void collect(std::vector<FlowStep>& steps) {
    for (FlowStep& step : steps) {
      if (auto* line = std::get_if<FlowLine>(&step)) {
        collect(*line);
        continue;
      }
      auto& conditional = std::get<std::shared_ptr<Conditional>>(step);
      conditional = std::make_shared<Conditional>(*conditional);  // copied, because the given flow must not change
      collect(conditional->then_steps);
      collect(conditional->else_steps);
    }
  }

  Found found(const std::string& argument) const {
    const size_t dot = argument.rfind('.');
    const std::string function = dot == std::string::npos ? "" : argument.substr(0, dot),
                      name = dot == std::string::npos ? argument : argument.substr(dot + 1);
    Found found;
    std::vector<std::string> known;
    std::string of;
    for (const ConfiguredCall& one : calls_)
      for (size_t i = 0; i < one.item->arguments.size(); ++i) {
        const ArgumentSpec& spec = one.item->arguments[i];
        known.push_back(function.empty() ? spec.name : one.call->name.text + "." + spec.name);
        if (spec.name != name || (!function.empty() && one.call->name.text != function)) continue;
        if (!of.empty() && of != one.call->name.text)
          throw Error(ErrorKind::Name,
                      fmt::format("'{}' and '{}' into '{}' both have '{}'", of, one.call->name.text, layer_, name), {},
                      {fmt::format("write {}.{} or {}.{}", of, name, one.call->name.text, name)});
        of = one.call->name.text;
        found.calls.push_back(&one);
        found.spec = spec;
        found.place = i;
      }
    if (found.calls.empty()) {
      Error e(ErrorKind::Name, fmt::format("no function into '{}' has an argument '{}'", layer_, argument));
      if (const auto near = nearest(argument, known)) e.note("did you mean '" + *near + "'?");
      throw e.note("they have " + comma_separated(known));
    }
    if (found.spec.type == HX_ARG_LAYER)
      throw Error(ErrorKind::Name, fmt::format("'{}' of '{}' names a layer, which cannot be changed", name, of));
    return found;
  }

  // Sets or removes an argument. Returns its previous value; if the function occurs several times, that of the last
  // one.
  std::optional<ArgumentValue> put(const std::string& argument, const std::optional<ArgumentValue>& value) {
    const Found at = found(argument);
    std::optional<ArgumentValue> before;
    for (const ConfiguredCall* one : at.calls) {
      std::vector<CallArgument>& all = one->call->arguments;
      auto place = std::find_if(all.begin(), all.end(),
                                [&](const CallArgument& a) { return a.name && a.name->text == at.spec.name; });
      if (at.place < all.size() && !all[at.place].name) place = all.begin() + static_cast<std::ptrdiff_t>(at.place);
      if (place != all.end()) before = place->value;
      if (place == all.end() && value)
        all.push_back({Name{at.spec.name, {}}, *value});
      else if (value)
        place->value = *value;
      else if (place != all.end())
        drop(all, place, at.spec);
      one->call->has_parentheses = one->call->has_parentheses || !all.empty();
    }
    return before;
  }

  // Removes an argument. A positional argument gets its default value instead, because others may follow it.
  void drop(std::vector<CallArgument>& all, std::vector<CallArgument>::iterator place, const ArgumentSpec& spec) {
    if (place->name) {
      all.erase(place);
      return;
    }
    const auto value = spec.default_text.empty() ? std::nullopt : parse_argument(spec.type, spec.default_text);
    if (!value) throw Error(ErrorKind::Name, fmt::format("'{}' has no default", spec.name));
    place->value = written_value(*value);
  }

  const std::string layer_;
  Registry& registry_;
  ConfiguredFlow result_;
  std::vector<ConfiguredCall> calls_;
};

}  // namespace

ConfiguredFlow configured(const Flow& flow, const std::string& harmonic, const std::string& layer,
                          const std::vector<ArgumentChange>& changes, Registry& registry) {
  return Configurer(flow, harmonic, layer, registry).run(changes);
}

ConfiguredFlow configured(const Flow& flow, const std::string& harmonic, const std::string& layer,
                          const std::vector<ArgumentText>& changes, Registry& registry) {
  Configurer configurer(flow, harmonic, layer, registry);
  std::vector<ArgumentChange> values;
  for (const ArgumentText& change : changes) {
    const ArgumentSpec spec = configurer.spec_of(change.argument);
    const auto value = change.value.empty() ? std::nullopt : parse_argument(spec.type, change.value);
    if (!change.value.empty() && !value)
      throw Error(ErrorKind::Type,
                  fmt::format("'{}' takes {}, not '{}'", change.argument, argument_type_name(spec.type), change.value));
    values.push_back({change.argument, value ? std::optional(written_value(*value)) : std::nullopt});
  }
  return configurer.run(values);
}

}  // namespace harmonics::engine
