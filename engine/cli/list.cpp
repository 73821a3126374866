// harmonics list and inspect: what exists, one line each; one thing in full.
#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/metric_abi.h>

#include "engine/base/spelling.hpp"
#include "engine/cli/ckpt.hpp"
#include "engine/cli/command.hpp"
#include "engine/cli/terminal.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"
#include "engine/runtime/streams.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"

namespace harmonics::cli {

namespace json = boost::json;

namespace {

struct Listed {
  std::string kind, name, signature, description, origin;
};

constexpr const char* kKinds[] = {"activations", "losses", "layers", "producers", "consumers", "devices", "metrics", "optimizers", "schedules", "functionals", "primitives"};

std::vector<Listed> everything() {
  std::vector<Listed> all;
  Registry& registry = Registry::global();
  for (const uint32_t kind : item_kinds())
    for (const std::string& name : registry.names(kind)) {
      const ItemPtr item = registry.find(kind, name);
      if (item) all.push_back({std::string(kind_name(kind)), name, signature(*item), item->description, item->plugin.empty() ? "built in" : item->plugin});
    }
  for (const NamedRow& row : optimizer_rows()) all.push_back({"optimizer", std::string(row.name), signature(row), std::string(row.description), "built in"});
  for (const NamedRow& row : schedule_rows()) all.push_back({"schedule", std::string(row.name), signature(row), std::string(row.description), "built in"});
  for (const Functional* f : FunctionalTable::global().all()) all.push_back({"functional", f->name, f->formula, f->description, "built in"});
  for (const OpRow& row : op_rows()) all.push_back({"primitive", std::string(row.name), std::string(row.name), row.gradient ? "differentiable" : "no gradient", "built in"});
  return all;
}

std::string singular(const std::string& kind) {
  if (kind == "losses") return "loss";
  return !kind.empty() && kind.back() == 's' ? kind.substr(0, kind.size() - 1) : kind;
}

bool selected(const Listed& l, const std::string& kind) {
  if (kind.empty()) return l.kind != "functional" && l.kind != "primitive";
  if (kind == "functions") return l.kind == "activation" || l.kind == "loss" || l.kind == "layer";
  return l.kind == singular(kind);
}

void check_kind(const std::string& kind) {
  if (kind.empty() || kind == "functions") return;
  std::vector<std::string> known(std::begin(kKinds), std::end(kKinds));
  known.emplace_back("functions");
  for (const std::string& k : known)
    if (singular(k) == singular(kind)) return;
  Error e(ErrorKind::Usage, "there is no kind '" + kind + "'");
  if (auto near = nearest(kind, known)) e.note("did you mean '" + *near + "'?");
  else e.note("kinds are activations, losses, layers, producers, consumers, devices, metrics, optimizers, schedules, functionals, primitives");
  throw e;
}

json::object json_of(const Item& item) {
  json::object o{{"kind", std::string(kind_name(item.kind))}, {"name", item.name}, {"description", item.description}, {"plugin", item.plugin}, {"path", item.path}};
  json::array arguments;
  for (const ArgumentSpec& a : item.arguments)
    arguments.push_back(json::object{{"name", a.name}, {"type", std::string(argument_type_name(a.type))}, {"required", a.required}, {"default", a.default_text}, {"description", a.description}});
  o["arguments"] = arguments;
  if (item.kind == HX_PRODUCER) {
    json::array steps;
    for (const StreamOption& s : stream_options()) steps.push_back(json::object{{"name", s.name}, {"description", s.description}});
    o["of_every_producer"] = steps;
  }
  return o;
}

void show(const Item& item) {
  fmt::print("{} {}\n  {}\n", kind_name(item.kind), signature(item), item.description);
  fmt::print("  from {}\n", item.plugin.empty() ? "the library itself" : item.plugin + " (" + item.path + ")");
  if (!item.arguments.empty()) fmt::print("arguments\n");
  for (const ArgumentSpec& a : item.arguments)
    fmt::print("  {:<14} {:<9} {:<12} {}\n", a.name, argument_type_name(a.type), a.required ? "required" : a.default_text.empty() ? "optional" : "= " + a.default_text, a.description);
  if (item.kind == HX_ACTIVATION) fmt::print("example\n  a -({})-> b;\n", item.name);
  if (item.kind == HX_LOSS) fmt::print("example\n  output <-({})- target;\n", item.name);
  if (item.kind == HX_LAYER) {
    std::string call = item.name;
    for (const ArgumentSpec& a : item.arguments)
      if (a.required) call += call == item.name ? "(" + std::string(a.type == HX_ARG_LAYER ? "other" : "16") : ", 16";
    fmt::print("example\n  a -({}{})-> b;\n", call, call == item.name ? "" : ")");
  }
  if (item.kind == HX_PRODUCER) {
    fmt::print("of every producer\n");
    for (const StreamOption& o : stream_options()) fmt::print("  {:<14} {}\n", o.name, o.description);
  }
  if (item.kind == HX_PRODUCER) fmt::print("example\n  --producer NAME={}:PATH\n", item.name);
  if (item.kind == HX_METRIC) fmt::print("example\n  --metric {}\n", item.name);
  if (item.kind == HX_CONSUMER) fmt::print("example\n  --consumer NAME={}:PATH\n", item.name);
}

bool ends_with(const std::string& s, const std::string& end) { return s.size() > end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0; }

int inspect_weights(const std::string& path, const Options& options) {
  const TensorFile file = read_safetensors(path);
  if (file.metadata.count("harmonics.run")) return show_checkpoint(path, options);
  int64_t total = 0;
  json::array tensors;
  for (const auto& [name, tensor] : file.tensors) {
    total += tensor.size();
    tensors.push_back(json::object{{"name", name}, {"dtype", std::string(dtype_name(tensor.dtype()))}, {"shape", json::value_from(tensor.shape().vector())}});
  }
  if (options.json) {
    fmt::print("{}\n", json::serialize(json::object{{"version", 1}, {"file", path}, {"metadata", json::value_from(file.metadata)}, {"tensors", tensors}}));
    return kDone;
  }
  fmt::print("{}: {} tensors, {} numbers\n", path, file.tensors.size(), thousands(total));
  for (const auto& [name, tensor] : file.tensors) fmt::print("  {:<40} {}\n", name, type_of(tensor).str());
  for (const auto& [key, value] : file.metadata)
    if (value.find('\n') == std::string::npos) fmt::print("  {} = {}\n", key, value.size() > 100 ? value.substr(0, 97) + "..." : value);
  return kDone;
}

std::string shortened(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size() && i < 20; ++i) text += (i ? ", " : "") + words[i];
  return words.size() > 20 ? text + ", ..." : text;
}

// What an address gives: opens it and reads nothing.
int inspect_stream(const std::string& text, const Options& options) {
  Address address = parse_address(text);
  const StreamSteps steps = take_stream_steps(address);
  const SteppedSource stepped = with_steps("stream", open_source(Registry::global(), "stream", address), steps);
  const StreamInfo& info = stepped.source.info();
  if (options.json) {
    fmt::print("{}\n", json::serialize(json::object{{"version", 1}, {"address", text}, {"dtype", std::string(dtype_name(info.dtype))}, {"sample", json::value_from(info.sample.vector())}, {"size", info.size}, {"classes", info.classes}, {"symbols", json::value_from(info.symbols)}, {"notes", info.notes}}));
    return kDone;
  }
  fmt::print("stream {}\n  samples     {}\n  each        {}\n", text, info.size ? thousands(static_cast<int64_t>(info.size)) : "without end", sample_type_text(info.dtype, info.sample));
  if (info.classes) fmt::print("  classes     {}\n", info.classes);
  if (!info.symbols.empty()) fmt::print("  symbols     {}\n", shortened(info.symbols));
  if (!info.notes.empty()) fmt::print("{}\n", info.notes);
  return kDone;
}

int inspect_plugin(const std::string& path, const Options& options) {
  const hx_plugin_abi d = read_descriptor(path);
  if (options.json) {
    fmt::print("{}\n", json::serialize(json::object{{"version", 1}, {"file", path}, {"id", d.id}, {"plugin_version", d.version}, {"license", d.license}, {"vendor", d.vendor}, {"built_with", d.built_with}, {"contract", fmt::format("{}.{}", d.abi_major, d.abi_minor)}}));
    return kDone;
  }
  fmt::print("plugin {}\n  id          {}\n  version     {}\n  license     {}\n  vendor      {}\n  built with  {}\n  contract    {}.{} (at least minor {})\n", path, d.id[0] ? d.id : "(by file name)", d.version, d.license[0] ? d.license : "-", d.vendor[0] ? d.vendor : "-", d.built_with, d.abi_major, d.abi_minor, d.abi_min_minor);
  return kDone;
}

}  // namespace

int list_command(const Options& options) {
  const std::string kind = options.files.empty() ? "" : options.files.front();
  check_kind(kind);
  json::array rows;
  std::string heading;
  for (const Listed& l : everything()) {
    if (!selected(l, kind)) continue;
    if (options.json) {
      rows.push_back(json::object{{"kind", l.kind}, {"name", l.name}, {"signature", l.signature}, {"description", l.description}, {"plugin", l.origin}});
      continue;
    }
    if (heading != l.kind) {
      fmt::print("{}{}\n", heading.empty() ? "" : "\n", l.kind == "loss" ? "losses" : l.kind + "s");
      heading = l.kind;
    }
    fmt::print("  {:<22} {}\n", l.name, l.kind == "functional" ? l.signature : l.description);
    if (kind == "producers")
      if (const ItemPtr item = Registry::global().find(HX_PRODUCER, l.name))
        for (const ArgumentSpec& a : item->arguments) fmt::print("    {:<12} {}\n", a.name, a.description);
  }
  if (kind == "producers" && !options.json) {
    fmt::print("\noptions of every producer\n");
    for (const StreamOption& o : stream_options()) fmt::print("    {:<12} {}\n", o.name, o.description);
  }
  if (options.json) fmt::print("{}\n", json::serialize(json::object{{"version", 1}, {"items", rows}}));
  return kDone;
}

int inspect_command(const Options& options) {
  const std::string& thing = options.files.front();
  if (ends_with(thing, ".safetensors")) return inspect_weights(thing, options);
  if (ends_with(thing, ".so")) return inspect_plugin(thing, options);
  if (thing.find_first_of(":/.") != std::string::npos) return inspect_stream(thing, options);
  json::array found;
  bool shown = false;
  for (const uint32_t kind : item_kinds())
    if (const ItemPtr item = Registry::global().find(kind, thing)) {
      if (options.json) found.push_back(json_of(*item));
      else show(*item);
      shown = true;
    }
  for (const Listed& l : everything()) {
    if (l.name != thing || !(l.kind == "functional" || l.kind == "primitive" || l.kind == "optimizer" || l.kind == "schedule")) continue;
    if (options.json) found.push_back(json::object{{"kind", l.kind}, {"name", l.name}, {"signature", l.signature}, {"description", l.description}});
    else fmt::print("{} {}\n  {}\n", l.kind, l.signature, l.description);
    shown = true;
  }
  if (options.json) fmt::print("{}\n", json::serialize(json::object{{"version", 1}, {"items", found}}));
  if (shown) return kDone;
  Error e(ErrorKind::Usage, "nothing is named '" + thing + "'");
  std::vector<std::string> known;
  for (const Listed& l : everything()) known.push_back(l.name);
  if (auto near = nearest(thing, known)) e.note("did you mean '" + *near + "'?");
  else e.note("'harmonics list' shows what there is");
  throw e;
}

}  // namespace harmonics::cli
