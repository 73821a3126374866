#include "engine/transformer/ndsl_layer.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "engine/program/functional.hpp"
#include "engine/transformer/named_activation.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr double kMostElements = 1e12;  // per tensor

std::vector<specs::Expression> expressions(const std::vector<int64_t>& dims, const std::string& place) {
  std::vector<specs::Expression> all;
  for (const int64_t dim : dims) all.emplace_back(dim, place);
  return all;
}

bool is_default_group(const std::string& group) { return group == "attention" || group == "mlp" || group == "moe"; }

Error placed_error(Span place, const Error& e) { return {e.kind(), e.what(), place, e.notes()}; }

specs::Value value_of(const ndsl::Setting& setting) {
  if (const auto whole = document::whole_of(setting.value)) return *whole;
  if (const auto real = document::real_of(setting.value)) return *real;
  if (const auto truth = document::truth_of(setting.value)) return *truth;
  return setting.value.text;
}

void expect_activation(const ndsl::Operation& step, const Item& item, NdslFaults& faults) {
  if (!step.weights.empty())
    faults.add(step.place, fmt::format("{} is an activation, which has no weights", shown_name(step.op.text)));
  std::vector<WrittenArgument> arguments;
  for (const auto& [key, setting] : step.config)
    arguments.push_back({key, setting.place.span, written_value(value_of(setting), setting.value.span)});
  try {
    bind_arguments(item, arguments, step.op.place.span);
  } catch (const Error& e) {
    faults.add(step.op.place.source, e);
  }
}

// Checks the call against the functional's signature, in order to report all errors; tracing would stop at the first.
void expect_functional(const ndsl::Operation& step, const AttributeMap& attributes, NdslFaults& faults) {
  const FunctionalPtr functional = FunctionalTable::global().find(step.op.text);
  if (!functional) return;
  const Signature& signature = functional->signature;
  if (!signature.known) return;
  const size_t before = faults.count();
  for (const auto& [key, setting] : step.config)
    if (!signature.more_attributes && !signature.attribute(key))
      faults.add(setting.place.source,
                 placed_error(setting.place.span, unknown_attribute(step.op.text, signature, printable(key, 64))));
  try {
    check_inputs(step.op.text, signature, 1 + step.weights.size());
    if (faults.count() == before) check_attributes(step.op.text, signature, attributes);
  } catch (const Error& e) {
    faults.add(step.op.place.source, placed_error(step.op.place.span, e));
  }
}

double ndsl_deviation(const NdslSettings& settings) { return settings.real("initializer_range", 0.02); }

}  // namespace

std::string NdslBuilder::fresh(const char* hint) { return fmt::format("{}.{}", hint, values_++); }

std::string NdslBuilder::tensor(NdslTensor tensor) {
  if (to_.find(tensor.name)) {
    faults_.add(tensor.place,
                fmt::format("the tensor '{}' exists already; give the operation another name", tensor.name));
    return tensor.name;
  }
  double elements = 1;
  for (const int64_t dim : tensor.shape.vector()) elements *= static_cast<double>(dim);
  if (elements > kMostElements) {
    faults_.add(
        tensor.place,
        fmt::format("the tensor '{}' has {:.3g} elements; the limit is {:.3g}", tensor.name, elements, kMostElements),
        "", ErrorKind::Shape);
    faults_.throw_any();
  }
  const std::string place = tensor.place.text();
  specs::WeightBinding binding;
  binding.tensor = tensor.name;
  binding.place = place;
  binding.dims = expressions(tensor.shape.vector(), place);
  if (tensor.experts) binding.layout = specs::Layout::experts;
  to_.spec.tensor_names[tensor.name] = {tensor.name};
  to_.spec.weight_bindings.push_back(std::move(binding));
  to_.by_name[tensor.name] = to_.tensors.size();
  to_.tensors.push_back(std::move(tensor));
  return to_.tensors.back().name;
}

void NdslBuilder::alias(const std::string& name, std::vector<std::string> tensors) {
  to_.aliases.push_back({name, std::move(tensors)});
}

specs::Step& NdslBuilder::step(const char* op, const ndsl::Place& place) {
  steps_->emplace_back();
  steps_->back().op = op;
  steps_->back().place = place.text();
  steps_->back().operation = operation_;
  return steps_->back();
}

void NdslBuilder::observe(const std::string& name, const std::string& value) {
  if (!steps_->empty()) steps_->back().observed.emplace_back(name, value);
}

// Sets the factor of queries and keys: as given, or by the rules of yarn and longrope.
void NdslBuilder::scale_attention(const ndsl::Setting& scaling, const std::string& kind, double context, double longest,
                                  specs::Rope& rope) {
  const auto number = [&](const char* name) -> std::optional<double> {
    const document::Node* found = scaling.value.find(name);
    return found ? document::real_of(*found) : std::nullopt;
  };
  const std::optional<double> given = number("attention_factor");
  if (kind == "yarn") {  // the spec's factor multiplies the usual one
    const double factor = number("factor").value_or(1), usual = factor > 1 ? 0.1 * std::log(factor) : 0;
    const double wanted = number("mscale").value_or(0), all = number("mscale_all_dim").value_or(0);
    std::optional<double> own = given;
    if (!own && wanted != 0 && all != 0) own = (wanted * usual + 1) / (all * usual + 1);
    if (own && factor > 0) rope.fields["attention_factor"] = *own / (1 + 0.1 * std::log(factor));
  } else if (kind == "longrope") {
    const double factor = number("factor").value_or(longest / context);
    const bool longer = factor > 1 && context > 1;
    rope.fields["attention_factor"] =
        given.value_or(longer ? std::sqrt(1 + std::log(factor) / std::log(context)) : 1.0);
  }
}

std::vector<double> NdslBuilder::factors_of(const ndsl::Setting& scaling, const char* name) {
  std::vector<double> all;
  const document::Node* const list = scaling.value.find(name);
  for (size_t i = 0; list && i < list->items.size(); ++i)
    if (const auto value = document::real_of(list->items[i]); value && *value > 0) all.push_back(*value);
  if (!list || all.empty() || all.size() != list->items.size())
    faults_.add(scaling.place, fmt::format("scaling by longrope needs '{}', a list of numbers above 0", name), "",
                ErrorKind::Shape);
  return all;
}

// Returns the entry of prepare.rope for these settings. Equal entries are shared.
std::string NdslBuilder::rope(const NdslSettings& settings, int64_t head, bool window) {
  specs::Rope rope;
  const bool local = window && settings.has("rope_local_theta");
  rope.fields["base"] = settings.real(local ? "rope_local_theta" : "rope_theta", 10000.0);
  const double share = settings.real("partial_rotary_factor", 1.0);
  int64_t dims = head;
  if (share != 1) {
    dims = static_cast<int64_t>(static_cast<double>(head) * share);
    const bool doubted = faults_.doubts({"head_dim", "hidden_size", "num_query_heads"});
    if (!(share > 0 && share <= 1) || (!doubted && (dims < 2 || dims % 2 != 0)))
      faults_.add(settings.place_of("partial_rotary_factor"),
                  fmt::format("{} of the {} dimensions of a head cannot be rotated in pairs", share, head), "",
                  ErrorKind::Shape);
  } else if (head % 2 != 0 && !faults_.doubts({"head_dim", "hidden_size", "num_query_heads"})) {
    faults_.add(settings.where(), fmt::format("a head of {} dimensions cannot be rotated in pairs", head), "",
                ErrorKind::Shape);
  }
  rope.fields["dims"] = dims;
  rope.fields["pairing"] = settings.text("rope_pairing", "half");
  const ndsl::Setting* scaling = local ? nullptr : settings.find("rope_scaling");
  if (scaling) {
    const auto field = [&](const char* name) { return scaling->value.find(name); };
    const document::Node* type = field("rope_type");
    if (!type) type = field("type");
    const std::string kind = type ? type->text : "default";
    const auto number = [&](const char* from, const char* to, bool needed) {
      const document::Node* found = field(from);
      if (const auto value = found ? document::real_of(*found) : std::nullopt)
        rope.fields[to] = *value;
      else if (needed)
        faults_.add(scaling->place, fmt::format("scaling by {} needs '{}'", kind, from), "", ErrorKind::Shape);
    };
    const auto known = [&](std::initializer_list<const char*> kinds) {
      return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    };
    if (known({"linear", "yarn", "llama3", "dynamic", "longrope"})) {
      rope.fields["scaling"] = kind;
      number("factor", "factor", kind != "longrope");
    } else if (kind != "default" && kind != "none") {
      faults_.add(scaling->place, fmt::format("there is no scaling of rotary positions by {}", shown_name(kind)),
                  "kinds: default, linear, yarn, llama3, dynamic, longrope");
    }
    if (known({"yarn", "llama3", "longrope"})) number("original_max_position_embeddings", "context", kind == "llama3");
    const bool by_context = known({"yarn", "dynamic", "longrope"});
    const double longest = by_context ? static_cast<double>(settings.size("max_position_embeddings")) : 0;
    if (by_context && !rope.fields.count("context"))
      rope.fields["context"] = settings.real("original_max_position_embeddings", longest);
    if (kind == "yarn") {
      number("beta_fast", "beta_fast", false);
      number("beta_slow", "beta_slow", false);
      if (const document::Node* whole = field("truncate"))
        rope.fields["truncate"] = static_cast<int64_t>(document::truth_of(*whole).value_or(true));
    }
    if (known({"yarn", "longrope"}))
      scale_attention(*scaling, kind, std::get<double>(rope.fields["context"]), longest, rope);
    if (kind == "longrope")
      for (const char* list : {"short_factor", "long_factor"})
        rope.lists[list + std::string("s")] = factors_of(*scaling, list);
    if (kind == "llama3") {
      number("low_freq_factor", "low_factor", true);
      number("high_freq_factor", "high_factor", true);
    }
  }
  rope.place = settings.where().text();
  for (const auto& [name, known] : to_.spec.ropes)
    if (known.fields == rope.fields && known.lists == rope.lists) return name;
  const std::string name = fmt::format("positions{}", to_.spec.ropes.size());
  to_.spec.ropes[name] = std::move(rope);
  return name;
}

double dropout_of(const NdslSettings& settings, const char* key) {
  const double rate = settings.real(key, 0);
  if (rate >= 0 && rate < 1) return rate;
  settings.faults().add(settings.place_of(key), fmt::format("'{}' is {:g}; it is 0 to less than 1", key, rate), "",
                        ErrorKind::Shape);
  return 0;
}

std::string with_dropout(NdslBuilder& to, const NdslSettings& settings, const char* key, const std::string& in) {
  const double rate = dropout_of(settings, key);
  if (rate == 0) return in;
  const std::string out = to.fresh("dropped");
  to.step("Dropout", settings.where()).fields = {{"in", in}, {"rate", rate}, {"out", out}};
  return out;
}

std::string lower_norm(NdslBuilder& to, const NdslSettings& settings, const std::string& op, const std::string& tensor,
                       const std::string& alias, const std::string& in) {
  const bool layer_norm = op == "LayerNorm", offset = settings.truth("unit_offset", false);
  const double epsilon = settings.has("eps")
                             ? settings.real("eps", {})
                             : settings.real(layer_norm ? "layer_norm_eps" : "rms_norm_eps", layer_norm ? 1e-5 : 1e-6);
  if (!(epsilon >= 0 && epsilon < 1))
    to.faults().add(settings.place_of("eps"), fmt::format("the epsilon of a norm is {}", epsilon), "",
                    ErrorKind::Shape);
  const int64_t width = settings.size("hidden_size");
  const std::string weight =
      to.tensor({tensor + ".weight", Shape{width}, {HX_INIT_CONSTANT, offset ? 0.0 : 1.0, 0}, 0, 0, settings.where()});
  to.alias(alias + ".weight", {weight});
  std::string bias;
  if (layer_norm && settings.truth("norm_bias", true)) {
    bias = to.tensor({tensor + ".bias", Shape{width}, {HX_INIT_CONSTANT, 0, 0}, 0, 0, settings.where()});
    to.alias(alias + ".bias", {bias});
  }
  const std::string out = to.fresh("norm");
  const std::string name = std::string(offset ? "Offset" : "") + (layer_norm ? "LayerNorm" : "RmsNorm");
  specs::Step& step = to.step(name.c_str(), settings.where());
  step.fields = {{"in", in}, {"weight", weight}, {"epsilon", epsilon}, {"out", out}};
  if (!bias.empty()) step.fields["bias"] = bias;
  return out;
}

std::string NdslLayer::tensor_name(const std::string& part, const char* kind) const {
  if (is_default_group(group_)) return fmt::format("blk.{}.{}.{}", number_, part, kind);
  return fmt::format("blk.{}.{}.{}.{}", number_, group_, part, kind);
}

std::string NdslLayer::alias_name(const std::string& part) const {
  return fmt::format("blocks[{}].{}.{}", number_, group_, part);
}

std::string NdslLayer::linear(const std::string& from, const std::string& part, int64_t n, int64_t k, bool bias,
                              bool residual, int64_t heads, const char* hint) {
  double deviation = ndsl_deviation(settings());
  // As in GPT-2, scaled by depth, because each layer adds two maps to the residual stream.
  if (residual) deviation /= std::sqrt(2.0 * static_cast<double>(to.compiled().sizes.at("num_layers")));
  const std::string weight =
      to.tensor({tensor_name(part, "weight"), Shape{n, k}, {HX_INIT_NORMAL, 0, deviation}, 0, heads, place()});
  std::string offset;
  if (bias) offset = to.tensor({tensor_name(part, "bias"), Shape{n}, {HX_INIT_CONSTANT, 0, 0}, 0, heads, place()});
  const std::string result = to.fresh(hint);
  specs::Step& step = to.step("Linear", place());
  step.fields = {{"in", from}, {"weight", weight}, {"out", result}};
  if (bias) step.fields["bias"] = offset;
  return result;
}

std::string NdslLayer::reshaped(const std::string& from, std::vector<int64_t> dims, const char* hint) {
  const std::string result = to.fresh(hint), where = place().text();
  specs::Step& step = to.step("Reshape", place());
  step.fields = {{"in", from}, {"out", result}};
  auto& list = step.lists["dims"];
  list.emplace_back("batch", where);
  list.emplace_back("seq_len", where);
  for (const int64_t dim : dims) list.emplace_back(dim, where);
  return result;
}

void NdslLayer::observe(const std::string& name, const std::string& value) {
  std::string unique = name;
  for (int i = 2; !observed_.insert(unique).second; ++i) unique = fmt::format("{}.{}", name, i);
  to.observe(unique, value);
}

void NdslLayer::begin() {
  for (std::string* value : {&q, &k, &v, &gate, &up, &router, &router_bias, &shared}) value->clear();
}

// Writes a call of a functional on the value and on weights of the step.
void NdslLayer::call(const ndsl::Operation& step) {
  const std::string name = step.name.empty() ? step.op.text : step.name, result = to.fresh("h");
  std::string weights;
  for (const auto& [weight, dims] : step.weights) {
    std::vector<int64_t> shape;
    for (const std::string& dim : dims) {
      try {
        const specs::Expression read(dim, step.place.text());
        shape.push_back(
            read.whole([&](const std::string& variable) -> specs::Number { return settings_.size(variable); }));
      } catch (const Error& e) {
        to.faults().add(step.place,
                        fmt::format("the dimension '{}' of {}: {}", printable(dim), shown_name(weight), e.what()), "",
                        e.kind());
        shape.push_back(1);
      }
      if (shape.back() >= 1 && shape.back() <= int64_t{1} << 31) continue;
      to.faults().add(step.place,
                      fmt::format("the dimension '{}' of {} is {}", printable(dim), shown_name(weight), shape.back()),
                      "", ErrorKind::Shape);
      shape.back() = 1;
    }
    const bool matrix = shape.size() > 1;
    hx_init init{HX_INIT_CONSTANT, 1, 0};
    if (matrix) init = {HX_INIT_NORMAL, 0, ndsl_deviation(settings_)};
    const std::string tensor =
        to.tensor({fmt::format("blk.{}.{}.{}", number_, name, weight), Shape(shape), init, 0, 0, step.place});
    to.alias(fmt::format("blocks[{}].{}.{}", number_, name, weight), {tensor});
    weights += (weights.empty() ? "" : ",") + tensor;
  }
  to.set_operation(name);
  specs::Step& call = to.step("Call", step.place);
  to.set_operation("");
  call.fields = {{"in", in}, {"function", step.op.text}, {"out", result}};
  if (!weights.empty()) call.fields["weights"] = weights;
  AttributeMap attributes;
  for (const auto& [key, setting] : step.config) {
    const specs::Value value = value_of(setting);
    std::visit([&, &name = key](const auto& v) { attributes.set(name, v); }, value);
    call.fields["attribute." + key] = value;
  }
  if (const ItemPtr activation = activation_named(step.op.text))
    expect_activation(step, *activation, to.faults());
  else
    expect_functional(step, attributes, to.faults());
  in = result;
  observe(name, result);
}

void NdslLayer::select(const ndsl::Operation& step, const NdslLevel& config, const std::string& a,
                       const std::string& b) {
  const NdslSettings own = settings_.over(config, step.place, true);
  const std::string name = step.name.empty() ? "Select" : step.name, result = to.fresh("h");
  to.set_operation(name);
  to.step("Select", step.place).fields = {
      {"in", in}, {"a", a}, {"b", b}, {"above", own.real("above", 0)}, {"out", result}};
  to.set_operation("");
  in = result;
  observe(name, result);
}

void NdslLayer::run(const BlockOp& op, const NdslLevel& config) {
  const auto& rows = block_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const BlockRow& r) { return r.name == op.name; });
  const NdslSettings own = settings_.over(config, op.step->place, true);
  own_ = &own;
  group_ = op.group;
  op_ = op.step->op.text;
  out.clear();
  const std::string name = op.name == "Norm" ? op.group : op.name;
  const std::pair<const char*, std::string*> inner[] = {{"q", &q}, {"k", &k}, {"v", &v}, {"gate", &gate}, {"up", &up}};
  std::vector<std::string> before;
  for (const auto& [part, value] : inner) before.push_back(*value);
  to.set_operation(name);
  row->lower(*this);
  to.set_operation("");
  if (!out.empty()) {
    in = out;
    observe(name, out);
  } else if (row->family != NdslFamily::experts) {
    for (size_t i = 0; i < before.size(); ++i)
      if (*inner[i].second != before[i]) observe(name + "." + inner[i].first, *inner[i].second);
  }
  own_ = nullptr;
}

}  // namespace harmonics::engine
