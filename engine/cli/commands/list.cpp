// harmonics list and inspect: list prints one line per item, inspect prints one item in full.
#include <algorithm>
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"
#include "engine/checkpoint/run_state.hpp"
#include "engine/cli/commands/catalogue.hpp"
#include "engine/cli/commands/ckpt.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/options/command_table.hpp"
#include "engine/cli/commands/file_summary.hpp"
#include "engine/cli/commands/model_summary.hpp"
#include "engine/cli/run/live_addresses.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/execution/device_memory.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/streams/streams.hpp"
#include "engine/transformer/folder_classes.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "producers/file/formats.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

void check_kind(const std::string& kind) {
  if (kind.empty() || kind == "functions" || kind == "verbs" || singular(kind) == "model") return;
  std::vector<std::string> known = catalogue_kinds();
  known.insert(known.end(), {"functions", "models", "verbs"});
  std::string all;
  for (const std::string& k : known) {
    if (singular(k) == singular(kind)) return;
    all += (all.empty() ? "" : ", ") + k;
  }
  Error e(ErrorKind::Usage, "there is no kind '" + kind + "'");
  const std::string meant = did_you_mean(kind, known);
  e.note(meant.empty() ? "kinds are " + all : meant);
  throw e;
}

std::vector<CatalogueEntry> wanted(const std::string& kind) {
  if (kind == "verbs") {
    std::vector<CatalogueEntry> all;
    for (const VerbRow& v : command_table())
      all.push_back({"verb", v.name, v.name, v.help, "", "", {}, "harmonics " + v.name + " --help"});
    return all;
  }
  if (singular(kind) == "model") {
    std::vector<CatalogueEntry> all;
    const auto with_classes = [](const std::string& text, const std::string& classes) {
      return classes.empty() ? text : fmt::format("{} ({})", text, classes);
    };
    for (const std::string& name : builtin_ndsl_models())
      all.push_back({"model",
                     name,
                     name,
                     with_classes(description_of_ndsl(name), class_of_ndsl(name)),
                     "",
                     "",
                     {},
                     "harmonics explain " + name});
    for (const KnownArchitecture& a : known_architectures())
      all.push_back({"architecture",
                     a.name,
                     a.name,
                     with_classes(a.models, comma_separated(a.classes)),
                     "",
                     "",
                     {},
                     "harmonics generate model.gguf"});
    return all;
  }
  if (!kind.empty() && kind != "functions") return catalogue(singular(kind));
  std::vector<CatalogueEntry> all;
  for (const std::string& k : catalogue_kinds()) {
    const bool function = k == "activations" || k == "losses" || k == "layers";
    if (kind == "functions" ? !function : k == "functionals" || k == "primitives") continue;
    for (CatalogueEntry& e : catalogue(singular(k))) all.push_back(std::move(e));
  }
  return all;
}

json::array json_of(const std::vector<CatalogueOperand>& operands) {
  json::array all;
  for (const CatalogueOperand& o : operands)
    all.push_back(json::object{{"name", o.name},
                               {"type", o.type},
                               {"optional", o.optional},
                               {"repeated", o.repeated},
                               {"indices_below", o.below}});
  return all;
}

json::object json_of(const CatalogueEntry& e) {
  json::object o{{"kind", e.kind},     {"name", e.name}, {"signature", e.signature}, {"description", e.description},
                 {"plugin", e.plugin}, {"path", e.path}, {"example", e.example}};
  json::array arguments;
  for (const CatalogueArgument& a : e.arguments)
    arguments.push_back(json::object{{"name", a.name},
                                     {"type", a.type},
                                     {"required", a.required},
                                     {"default", a.default_text},
                                     {"range", a.range},
                                     {"description", a.description}});
  o["arguments"] = arguments;
  if (!e.metadata.empty()) {
    json::object metadata;
    for (const auto& [name, text] : e.metadata) metadata[name] = text;
    o["metadata"] = metadata;
  }
  if (e.kind == "functional") {
    o["inputs"] = json_of(e.inputs);
    o["results"] = json_of(e.results);
    o["traits"] = json::value_from(e.traits);
    o["notes"] = e.notes;
  }
  if (e.kind == "producer") {
    json::array steps;
    for (const StreamOption& s : stream_options())
      steps.push_back(json::object{{"name", s.name}, {"description", s.description}});
    o["of_every_producer"] = steps;
  }
  return o;
}

void show(const char* title, const std::vector<CatalogueOperand>& operands) {
  if (!operands.empty()) print("{}\n", title);
  for (const CatalogueOperand& o : operands) {
    const std::string count = o.repeated ? o.optional ? "any number" : "one or more" : o.optional ? "optional" : "";
    const std::string line =
        fmt::format("  {:<14} {:<14} {}{}", o.name, count, o.type, o.below.empty() ? "" : " indices below " + o.below);
    print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

void show(const CatalogueEntry& e) {
  print("{} {}\n  {}\n", e.kind, e.signature, e.description);
  print("  from {}\n", e.plugin.empty() ? "the library itself" : e.plugin + " (" + e.path + ")");
  show("inputs", e.inputs);
  show("results", e.results);
  if (!e.notes.empty()) print("  {}\n", e.notes);
  if (!e.traits.empty()) print("traits\n  {}\n", comma_separated(e.traits));
  if (!e.arguments.empty()) print("{}\n", e.kind == "functional" && e.plugin.empty() ? "attributes" : "arguments");
  for (const CatalogueArgument& a : e.arguments) {
    const std::string otherwise = a.required ? "required" : a.default_text.empty() ? "optional" : "= " + a.default_text;
    print("  {:<14} {:<14} {:<12} {}{}\n", a.name, a.type, otherwise,
          a.range.empty() ? "" : a.range + (a.description.empty() ? "" : "  "), a.description);
  }
  if (e.kind == "producer") {
    print("of every producer\n");
    for (const StreamOption& o : stream_options()) print("  {:<14} {}\n", o.name, o.description);
  }
  if (!e.metadata.empty()) print("metadata\n");
  for (const auto& [name, text] : e.metadata) print("  {:<14} {}\n", name, text);
  if (!e.example.empty()) print("example\n  {}\n", e.example);
}

// Returns whether the content, regardless of the name, is that of a safetensors file.
bool holds_tensors(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return false;
  const auto file = MappedFile::open(path);
  const auto* const bytes = static_cast<const uint8_t*>(file->data());
  return std::ranges::any_of(file_formats(), [&](const FileFormat& format) {
    return std::string_view(format.name) == "safetensors" && format.begins(bytes, file->bytes());
  });
}

int inspect_weights(const std::string& path, const Options& options) {
  const TensorFile file = read_safetensors(path);
  if (holds_state(file)) return show_checkpoint(path, options);
  int64_t total = 0;
  json::array tensors;
  for (const auto& [name, tensor] : file.tensors) {
    total += tensor.size();
    tensors.push_back(json::object{{"name", name},
                                   {"dtype", std::string(dtype_name(tensor.dtype()))},
                                   {"shape", json::value_from(tensor.shape().vector())}});
  }
  if (options.json) {
    print_json(json::object{
        {"version", 1}, {"file", path}, {"metadata", json::value_from(file.metadata)}, {"tensors", tensors}});
    return kDone;
  }
  print("{}: {}, {}\n", path, number_of(file.tensors.size(), "tensor"),
        number_of(static_cast<uint64_t>(total), "number"));
  for (const auto& [name, tensor] : file.tensors) print("  {:<40} {}\n", name, type_of(tensor).str());
  for (const auto& [key, value] : file.metadata)
    if (value.find('\n') == std::string::npos)
      print("  {} = {}\n", key, value.size() > 100 ? value.substr(0, 97) + "..." : value);
  return kDone;
}

std::string shortened(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size() && i < 20; ++i) text += (i ? ", " : "") + words[i];
  return words.size() > 20 ? text + ", ..." : text;
}

// Describes the stream of an address as JSON.
json::object stream_object(const std::string& text, const StreamInfo& info) {
  return {{"version", 1},
          {"address", text},
          {"dtype", std::string(dtype_name(info.dtype))},
          {"sample", json::value_from(info.sample.vector())},
          {"size", info.size},
          {"classes", info.classes},
          {"symbols", json::value_from(info.symbols)},
          {"notes", info.notes}};
}

void show_stream(const std::string& text, const StreamInfo& info) {
  print("stream {}\n  samples     {}\n  each        {}\n", text,
        info.size ? thousands(static_cast<int64_t>(info.size)) : "endless", sample_type_text(info.dtype, info.sample));
  if (info.classes) print("  classes     {}\n", info.classes);
  if (!info.symbols.empty()) print("  symbols     {}\n", shortened(info.symbols));
  if (!info.notes.empty()) print("{}\n", info.notes);
}

StreamInfo info_of_stream(Address address, const AwaitedSource& awaited = {}) {
  const StreamSteps steps = take_stream_steps(address);
  try {
    const SteppedSource stepped =
        with_steps("stream", open_source(Registry::global(), "stream", address, awaited), steps, Registry::global());
    return stepped.source.info();
  } catch (const Error& e) {  // the only stream of the command needs no name
    constexpr std::string_view kName = "stream 'stream': ";
    const std::string text = e.what();
    throw Error(e.kind(), text.starts_with(kName) ? text.substr(kName.size()) : text, e.span(), e.notes());
  }
}

// Describes a table by column, and as a single stream if all columns form one.
int inspect_file(const std::string& text, const FileSummary& summary, const Options& options) {
  std::optional<StreamInfo> info;
  try {
    info = info_of_stream(parse_address(text));
  } catch (const Error&) {  // columns of words or several arrays are separate streams
  }
  if (options.json) {
    json::object o = info ? stream_object(text, *info) : json::object{{"version", 1}, {"address", text}};
    o["rows"] = summary.rows;
    o["columns"] = columns_json(summary);
    print_json(o);
    return kDone;
  }
  print_text(summary_text(summary));
  if (info) print("\n");
  if (info) show_stream(text, *info);
  return kDone;
}

int inspect_stream(const std::string& text, const Options& options) {
  const Address address = parse_address(text);
  if (const auto summary = summary_of_file(address)) return inspect_file(text, *summary, options);
  if (!address.find("type")) expect_door(address, options);
  FirstSamples first(options);
  const StreamInfo info = info_of_stream(address, first.of(Registry::global(), address));
  if (options.json)
    print_json(stream_object(text, info));
  else
    show_stream(text, info);
  return kDone;
}

int inspect_plugin(const std::string& path, const Options& options) {
  const hx_plugin_abi d = read_descriptor(path);
  if (options.json) {
    print_json(json::object{{"version", 1},
                            {"file", path},
                            {"id", d.id},
                            {"plugin_version", d.version},
                            {"license", d.license},
                            {"vendor", d.vendor},
                            {"built_with", d.built_with},
                            {"contract", fmt::format("{}.{}", d.abi_major, d.abi_minor)}});
    return kDone;
  }
  print(
      "plugin {}\n  id          {}\n  version     {}\n  license     {}\n  vendor      {}\n  built with  {}\n  contract "
      "   {}.{} (at least minor {})\n",
      path, d.id[0] ? d.id : "(by file name)", d.version, d.license[0] ? d.license : "-", d.vendor[0] ? d.vendor : "-",
      d.built_with, d.abi_major, d.abi_minor, d.abi_min_minor);
  return kDone;
}

// Texts that a device reports for the list.
struct DeviceWords {
  std::string name, driver, capability, unavailable;
  uint64_t memory = 0;
};
DeviceWords words_of_device(const std::string& name) {
  if (name == "reference") return {"this processor, one thread", "", "", ""};  // part of the engine
  const ItemPtr item = Registry::global().need(HX_DEVICE, name);
  const hx_device_info info = info_of(*item);
  const char* line = item->table<hx_device_vt>().describe(item->self);
  DeviceWords w{info.name, info.driver, info.capability, info.unavailable, info.memory};
  if (w.name.empty() && w.unavailable.empty() && line) w.name = line;
  return w;
}
void show_device(const std::string& name) {
  const DeviceWords w = words_of_device(name);
  if (!w.unavailable.empty()) return print("    not available: {}\n", w.unavailable);
  print("    {}\n", w.name);
  if (!w.driver.empty()) print("    driver {}\n", w.driver);
  if (!w.capability.empty()) print("    {}\n", w.capability);
  if (w.memory) print("    memory {:.1f} GiB\n", static_cast<double>(w.memory) / (1024.0 * 1024 * 1024));
}

// Throws for a description of a flow or model, which is not a stream.
void expect_no_description(const std::string& thing) {
  const bool flow = thing.ends_with(".hmx");
  std::error_code failed;
  if ((!flow && !thing.ends_with(".ndsl")) || !std::filesystem::is_regular_file(thing, failed)) return;
  throw Error(ErrorKind::Usage, fmt::format("'{}' is a {}", thing, flow ? "flow" : "model in YAML"), {},
              {fmt::format("describe it with: harmonics explain {}", quoted(thing))});
}

// Returns the verb or built-in model of this name.
std::vector<CatalogueEntry> verb_or_model(const std::string& name) {
  std::vector<CatalogueEntry> found;
  for (const char* kind : {"verbs", "models"})
    for (CatalogueEntry& e : wanted(kind))
      if (e.name == name) found.push_back(std::move(e));
  return found;
}

[[noreturn]] void refuse_unknown(const std::string& thing) {
  Error e(ErrorKind::Usage, "nothing is named '" + thing + "'");
  std::vector<std::string> kinds = catalogue_kinds(), known;
  kinds.insert(kinds.end(), {"functions", "models", "verbs"});
  if (std::find(kinds.begin(), kinds.end(), thing) != kinds.end())
    throw e.note(fmt::format("list them with: harmonics list {}", thing));
  for (const CatalogueEntry& other : catalogue()) known.push_back(other.name);
  for (const CatalogueEntry& other : wanted("models")) known.push_back(other.name);
  const std::string meant = did_you_mean(thing, known);
  throw e.note(meant.empty() ? "'harmonics list' lists all names" : meant);
}

// Returns the path in "file:w.safetensors" and "file:p.so", and other addresses unchanged.
std::string without_scheme(const std::string& thing) {
  if (!thing.starts_with("file:")) return thing;
  const Address address = parse_address(thing);
  const bool whole = address.options.empty() && !address.fragment;
  return whole && (address.path.ends_with(".safetensors") || address.path.ends_with(".so")) ? address.path : thing;
}

}  // namespace

int list_command(const Options& options) {
  const std::string kind = options.files.empty() ? "" : options.files.front();
  check_kind(kind);
  const std::vector<CatalogueEntry> all = wanted(kind);
  if (options.json) {
    json::array rows;
    for (const CatalogueEntry& e : all)
      rows.push_back(json::object{{"kind", e.kind},
                                  {"name", e.name},
                                  {"signature", e.signature},
                                  {"description", e.description},
                                  {"plugin", e.plugin.empty() ? "built in" : e.plugin}});
    if (singular(kind) == "device")
      for (json::value& row : rows) {
        const DeviceWords w = words_of_device(std::string(row.at("name").as_string()));
        row.as_object()["device"] = json::object{{"name", w.name},
                                                 {"driver", w.driver},
                                                 {"capability", w.capability},
                                                 {"memory_bytes", w.memory},
                                                 {"unavailable", w.unavailable}};
      }
    print_json(json::object{{"version", 1}, {"items", rows}});
    return kDone;
  }
  std::string heading;
  for (const CatalogueEntry& e : all) {
    if (heading != e.kind) print("{}{}\n", heading.empty() ? "" : "\n", plural(e.kind));
    heading = e.kind;
    print("  {:<22} {}\n", e.name, e.kind == "functional" && e.plugin.empty() ? e.signature : e.description);
    if (singular(kind) == "device") show_device(e.name);
    if (kind == "producers")
      for (const CatalogueArgument& a : e.arguments) print("    {:<12} {}\n", a.name, a.description);
  }
  if (singular(kind) == "model")
    print(
        "\nmodels are transformers in YAML; a name can replace a file. Files of GGUF of an architecture open, and "
        "folders\nof Hugging Face of a class in parentheses.\n");
  if (all.empty()) print("no {} are registered\n", plural(singular(kind)));
  if (kind == "producers") {
    print("\noptions of every producer\n");
    for (const StreamOption& o : stream_options()) print("    {:<12} {}\n", o.name, o.description);
  }
  return kDone;
}

int list_models_command(const Options& options) {
  Options own = options;
  own.files = {"models"};
  return list_command(own);
}

int inspect_command(const Options& options) {
  const std::string thing = without_scheme(options.files.front());
  if (thing.ends_with(".safetensors")) return inspect_weights(thing, options);
  if (thing.ends_with(".so")) return inspect_plugin(thing, options);
  std::vector<CatalogueEntry> found = catalogue_of(thing);
  std::error_code failed;
  const bool address = thing.find_first_of(":/.") != std::string::npos || std::filesystem::exists(thing, failed);
  if (found.empty() && address) {
    expect_no_description(thing);
    if (std::filesystem::is_directory(thing, failed) && !CheckpointFolder(thing).list().empty())
      return show_checkpoint(thing, options);
    // A file whose extension is not that of a format of samples may be a model, or tensors such as those of a session.
    if (!format_of_name(thing) && inspect_model_file(thing, options)) return kDone;
    if (!format_of_name(thing) && holds_tensors(thing)) return inspect_weights(thing, options);
    return inspect_stream(thing, options);
  }
  if (found.empty()) found = verb_or_model(thing);
  if (found.empty()) refuse_unknown(thing);
  if (!options.json) {
    for (const CatalogueEntry& e : found) show(e);
    return kDone;
  }
  json::array items;
  for (const CatalogueEntry& e : found) items.push_back(json_of(e));
  print_json(json::object{{"version", 1}, {"items", items}});
  return kDone;
}

}  // namespace harmonics::engine::cli
