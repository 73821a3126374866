#include "engine/contract/plugin_body.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include <harmonics/importer_abi.h>

#include "engine/program/tracer.hpp"

namespace harmonics::engine {

std::string spoken_name(const Item& item) {
  std::string text = fmt::format("{} '{}'", kind_name(item.kind), item.name);
  return item.plugin.empty() ? text : text + fmt::format(" of plugin '{}'", item.plugin);
}

bool is_shipped(const Item& item) { return item.plugin.empty() || item.plugin.rfind("harmonics.", 0) == 0; }

Error plugin_error(const Item& item, hx_status status) {
  if (status != HX_ERROR)
    return {ErrorKind::Plugin, fmt::format("{} answered with status {}", spoken_name(item), static_cast<int>(status))};
  uint32_t kind = 0;
  const std::string text = harmonics_api()->last_error(&kind);
  const Error said = detail::error_of(static_cast<ErrorKind>(kind), text.empty() ? "failed without a reason" : text);
  // Importers, tokenizers and exporters shipped with the program name the file in their messages.
  const bool of_files = item.kind == HX_IMPORTER || item.kind == HX_TOKENIZER || item.kind == HX_EXPORTER;
  if (of_files && is_shipped(item) && !item.plugin.empty() && !text.empty()) return said;
  return {said.kind(), spoken_name(item) + ": " + said.what(), said.span(), said.notes()};
}

std::vector<HTensor> splice(const Program& body, const std::vector<HTensor>& inputs) {
  Tracer& tracer = *Tracer::current();
  std::vector<HTensor> values(body.values.size());
  for (const Node& node : body.nodes) {
    if (node.op == Op::input) {
      values[node.outputs[0]] = inputs[static_cast<size_t>(std::stoi(node.callee))];
      continue;
    }
    std::vector<HTensor> in;
    std::vector<TensorType> types;
    for (ValueId v : node.inputs) in.push_back(values[v]);
    for (ValueId v : node.outputs) types.push_back(body.type(v));
    const std::vector<HTensor> out = tracer.append(node, in, types);
    for (size_t i = 0; i < out.size(); ++i) values[node.outputs[i]] = out[i];
  }
  std::vector<HTensor> results;
  for (const NamedValue& out : body.outputs) results.push_back(values[out.value]);
  return results;
}

namespace {

bool any_traced(const std::vector<HTensor>& values) {
  return std::any_of(values.begin(), values.end(), [](const HTensor& v) { return v.raw()->traced(); });
}

std::vector<HTensor> zeros_of(const std::vector<TensorType>& types) {
  std::vector<HTensor> zeros;
  for (const TensorType& t : types) zeros.push_back(make_value(t, std::make_shared<Storage>(t.bytes())));
  return zeros;
}

// Returns the gradient as a body whose inputs are the inputs of `body`, its result and the result's gradient.
PluginBodyPtr gradient_body(const PluginBody& body) {
  auto result = std::make_shared<PluginBody>();
  result->item = body.item;
  result->signature = "gradient of " + body.signature;
  result->call = body.gradient;
  result->check = [item = body.item](const TensorType& dx, const std::vector<TensorType>& inputs) {
    if (dx != inputs[0])
      throw Error(ErrorKind::Plugin, fmt::format("the gradient of {} is {}, its input is {}", spoken_name(*item),
                                                 dx.str(), inputs[0].str()));
  };
  return result;
}

class OpaqueBody : public HostFunction {
 public:
  OpaqueBody(PluginBodyPtr body, TensorType result) : body_(std::move(body)), result_(result) {}

  std::string name() const override { return spoken_name(*body_->item); }

  std::vector<HTensor> run(const std::vector<HTensor>& inputs) const override {
    const TracePause numbers_only;
    const HTensor y = body_->result(inputs);
    if (type_of(y) != result_)
      throw Error(ErrorKind::Plugin,
                  fmt::format("{} returned {} this time, {} before", name(), type_of(y).str(), result_.str()));
    return {y};
  }

  std::vector<HTensor> gradient(const std::vector<HTensor>& inputs, const std::vector<HTensor>& outputs,
                                const std::vector<HTensor>& output_gradients) const override {
    if (!body_->gradient) return {};
    std::vector<HTensor> all = inputs;
    all.push_back(outputs.at(0));
    all.push_back(output_gradients.at(0));
    std::vector<HTensor> result(inputs.size());
    result[0] = apply_body(gradient_body(*body_), all);
    return result[0] ? result : std::vector<HTensor>();
  }

 private:
  PluginBodyPtr body_;
  TensorType result_;
};

// ---- the first use of a signature ----

// Receives the figures of the body that this thread traces; null if it traces none.
thread_local std::vector<ReportedFigure>* reported = nullptr;

class FiguresOfTrace {
 public:
  FiguresOfTrace() : before_(std::exchange(reported, &figures_)) {}
  ~FiguresOfTrace() { reported = before_; }
  FiguresOfTrace(const FiguresOfTrace&) = delete;
  FiguresOfTrace& operator=(const FiguresOfTrace&) = delete;
  const std::vector<ReportedFigure>& figures() const { return figures_; }

 private:
  std::vector<ReportedFigure> figures_;
  std::vector<ReportedFigure>* before_;
};

Program trace_once(const PluginBody& body, const std::vector<TensorType>& types, hx_status& status) {
  Tracer scratch(spoken_name(*body.item));
  const FiguresOfTrace traced;
  std::vector<HTensor> inputs;
  for (size_t i = 0; i < types.size(); ++i) inputs.push_back(scratch.input(std::to_string(i), types[i]));
  HTensor y;
  std::tie(y, status) = body.run(body.call, inputs);
  if (status != HX_OK) return {};
  body.check(type_of(y), types);
  scratch.output("y", y);
  for (const ReportedFigure& figure : traced.figures()) scratch.output(figure.name, figure.value);
  return scratch.take();
}

// Returns whether the body has its own gradient for these types. It then becomes an opaque node, because inlining it
// would use the derived gradient.
bool has_own_gradient(const PluginBody& body, const std::vector<TensorType>& types, const TensorType& y) {
  if (!body.gradient) return false;
  std::vector<TensorType> all = types;
  all.push_back(y);
  all.push_back(y);
  return trace_body(gradient_body(body), all).status != HX_DECLINED;
}

TracedBody look_at(const PluginBody& body, const std::vector<TensorType>& types) {
  TracedBody found;
  Program program = trace_once(body, types, found.status);
  if (found.status == HX_OK) {
    const TensorType y = program.type(program.outputs.at(0).value);
    if (!has_own_gradient(body, types, y)) {
      found.program = std::make_shared<Program>(std::move(program));
      return found;
    }
    found.status = HX_NEEDS_VALUES;
    found.opaque_result = y;
    return found;
  }
  if (found.status == HX_DECLINED) return found;
  if (found.status != HX_NEEDS_VALUES) throw plugin_error(*body.item, found.status);
  const TracePause numbers_only;
  const auto [y, status] = body.run(body.call, zeros_of(types));
  if (status == HX_DECLINED) return {HX_DECLINED, nullptr, {}};
  if (status != HX_OK) throw plugin_error(*body.item, status);
  found.opaque_result = type_of(y);
  body.check(found.opaque_result, types);
  return found;
}

class FirstUses {
 public:
  const TracedBody* find(const ItemPtr& item, const std::string& key) {
    std::lock_guard lock(mutex_);
    const auto of_item = known_.find(item);
    if (of_item == known_.end()) return nullptr;
    const auto it = of_item->second.find(key);
    return it == of_item->second.end() ? nullptr : &it->second;
  }
  void remember(const ItemPtr& item, const std::string& key, TracedBody found) {
    std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const auto& entry) { return entry.first.expired(); });
    known_[item].try_emplace(key, std::move(found));
  }
  static FirstUses& all() {
    static FirstUses* uses = new FirstUses;  // items may be used during process exit
    return *uses;
  }

 private:
  std::mutex mutex_;
  std::map<std::weak_ptr<const Item>, std::map<std::string, TracedBody>, std::owner_less<>> known_;
};

std::string key_of(const PluginBody& body, const std::vector<TensorType>& types) {
  std::string key = body.signature;
  for (const TensorType& t : types) key += "|" + t.str();
  return key;
}

}  // namespace

std::pair<HTensor, hx_status> PluginBody::run(const Call& function, const std::vector<HTensor>& inputs) const {
  hx_value* out = nullptr;
  const hx_status status = function(inputs, &out);
  if (status != HX_OK) return {HTensor(), status};
  if (!out) throw Error(ErrorKind::Plugin, spoken_name(*item) + " returned an empty tensor");
  return {HTensor::adopt(out), HX_OK};
}

HTensor PluginBody::result(const std::vector<HTensor>& inputs) const {
  auto [y, status] = run(call, inputs);
  if (status != HX_OK) throw plugin_error(*item, status);
  check(type_of(y), types_of(inputs));
  return y;
}

TracedBody trace_body(const PluginBodyPtr& body, const std::vector<TensorType>& types) {
  const std::string key = key_of(*body, types);
  if (const TracedBody* known = FirstUses::all().find(body->item, key)) return *known;
  TracedBody found = look_at(*body, types);
  FirstUses::all().remember(body->item, key, found);
  return found;
}

void keep_reported_figure(const std::string& name, const HTensor& value) {
  if (!reported) return;
  const bool known =
      std::any_of(reported->begin(), reported->end(), [&](const ReportedFigure& f) { return f.name == name; });
  if (known || name.empty() || name == "y" || name == "loss" || name.find_first_of(" ,<>=\n\t") != name.npos)
    throw Error(ErrorKind::Plugin, fmt::format("a loss cannot report a figure as '{}'{}", name,
                                               known ? ", which it has reported before" : ""));
  reported->push_back({name, value});
}

HTensor apply_body(const PluginBodyPtr& body, const std::vector<HTensor>& inputs,
                   std::vector<ReportedFigure>* figures) {
  if (!any_traced(inputs)) {
    auto [y, status] = body->run(body->call, inputs);
    if (status == HX_DECLINED) return {};
    if (status != HX_OK) throw plugin_error(*body->item, status);
    body->check(type_of(y), types_of(inputs));
    return y;
  }
  const TracedBody found = trace_body(body, types_of(inputs));
  if (found.status == HX_DECLINED) return {};
  if (found.status == HX_OK) {
    const std::vector<HTensor> results = splice(*found.program, inputs);
    for (size_t i = 1; figures && i < results.size(); ++i)
      figures->push_back({found.program->outputs[i].name, results[i]});
    return results.at(0);
  }
  Node node{};
  node.op = Op::host_call;
  node.host = std::make_shared<OpaqueBody>(body, found.opaque_result);
  return Tracer::current()->append(std::move(node), inputs, {found.opaque_result}).at(0);
}

}  // namespace harmonics::engine
