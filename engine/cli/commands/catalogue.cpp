#include "engine/cli/commands/catalogue.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "engine/conformance/call_text.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/plugin/kinds.hpp"
#include "engine/plugin/range.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"

namespace harmonics::engine::cli {

namespace {

// Returns a value within the range, as an example for an argument without a default.
std::string example_value(const CatalogueArgument& a) {
  if (a.type == argument_type_name(HX_ARG_LAYER)) return "other";
  if (a.type == argument_type_name(HX_ARG_BOOL)) return "true";
  if (a.type == argument_type_name(HX_ARG_STRING))
    return "\"" + (a.range.empty() ? "text" : a.range.substr(0, a.range.find('|'))) + "\"";
  const bool fractions = a.type == argument_type_name(HX_ARG_FLOAT);
  for (const double value : {16., 2., 1., 0., 0.5, 0.1, 0.01})
    if (a.range.empty() || ((fractions || value == std::floor(value)) && in_range(value, a.range)))
      return fmt::format("{:g}", value);
  return a.range.substr(0, std::min(a.range.find('<'), a.range.find("..")));  // the lower bound
}

// Returns an example call with the required arguments and a functional's further inputs.
std::string call_of(const CatalogueEntry& e) {
  std::string list;
  bool by_name = false;  // an earlier argument was omitted
  for (const CatalogueArgument& a : e.arguments) {
    const bool input = e.kind == "functional" && a.type == argument_type_name(HX_ARG_LAYER);
    by_name = by_name || !(a.required || input);
    if (a.required || input) list += (list.empty() ? "" : ", ") + (by_name ? a.name + "=" : "") + example_value(a);
  }
  return list.empty() ? e.name : e.name + "(" + list + ")";
}

// Returns the name with its first setting that has a default: "adamw(lr=0.001)".
std::string setting_of(const CatalogueEntry& e) {
  for (const CatalogueArgument& a : e.arguments)
    if (!a.default_text.empty()) return fmt::format("{}({}={})", e.name, a.name, a.default_text);
  return e.name;
}

std::string example_of(const CatalogueEntry& e) {
  if (e.kind == "activation" || e.kind == "layer" || (e.kind == "functional" && !e.plugin.empty()))
    return fmt::format("a -({})-> b;", call_of(e));
  if (e.kind == "functional" || e.kind == "primitive") {
    const std::optional<CallExample> call = shortest_call(e.name);
    return call ? call_text(*call) : "";
  }
  if (e.kind == "loss") return fmt::format("output <-({})- target;", call_of(e));
  if (e.kind == "producer") return fmt::format("--producer NAME={}:PATH", e.name);
  if (e.kind == "consumer") return fmt::format("--consumer NAME={}:PATH", e.name);
  if (e.kind == "device") return "--device " + e.name;
  if (e.kind == "metric") return "--metric " + e.name;
  if (e.kind == "implementation") return "--override " + std::string(e.name).replace(e.name.find('.'), 1, "=");
  if (e.kind == "optimizer") return fmt::format("--optimizer '{}'", setting_of(e));
  if (e.kind == "schedule") return fmt::format("--schedule '{}'", setting_of(e));
  if (e.kind == "importer" || e.kind == "tokenizer") return "harmonics inspect FILE";
  if (e.kind == "exporter") return "harmonics export MODEL FILE --format " + e.name;
  if (e.kind == "predicate") return fmt::format("if {} {{ ... }}", e.arguments.empty() ? e.name + "()" : call_of(e));
  return fmt::format("--producer 'NAME=file:PATH?augment={}'", call_of(e));
}

CatalogueEntry finished(CatalogueEntry e) {
  e.example = example_of(e);
  return e;
}

CatalogueArgument entry_of(const ArgumentSpec& a) {
  return {a.name, std::string(argument_type_name(a.type)), a.default_text, a.range, a.description, a.required};
}

void add_signature(CatalogueEntry& e, const Functional& f) {
  for (const OperandSpec& o : f.signature.inputs) e.inputs.push_back({o.name, o.type, o.optional, o.repeated, o.below});
  for (const OperandSpec& o : f.signature.results)
    e.results.push_back({o.name, o.type, o.optional, o.repeated, o.below});
  e.traits = f.traits.names();
  e.notes = f.signature.notes;
}

// Adds the signature of a functional. An invalid one is noted in the entry, because calls of it are rejected.
void add_signature(CatalogueEntry& e, const Item& item) {
  try {
    if (const FunctionalPtr f = FunctionalTable::global().find(item.name)) add_signature(e, *f);
  } catch (const Error& error) {
    e.notes = std::string("it cannot be used: ") + error.what();
  }
}

void add_metadata(CatalogueEntry& e, const Item& item) {
  const auto& table = item.table<hx_activation_vt>();
  const hx_attributes* given = HM_TABLE_HAS(table, metadata) ? table.metadata(item.self) : nullptr;
  if (!given) return;
  const AttributeMap metadata(given);
  for (const auto& [name, value] : metadata.entries()) {
    const auto* text = std::get_if<std::string>(&value);
    e.metadata.emplace_back(name, text ? *text : AttributeMap().set(name, value).str());
  }
}

CatalogueEntry entry_of(const Item& item) {
  CatalogueEntry e{
      std::string(kind_name(item.kind)), item.name, signature(item), item.description, item.plugin, item.path, {}, ""};
  for (const ArgumentSpec& a : item.arguments) e.arguments.push_back(entry_of(a));
  if (item.kind == HX_FUNCTIONAL) add_signature(e, item);
  if (item.kind == HX_ACTIVATION) add_metadata(e, item);
  return finished(std::move(e));
}

CatalogueEntry entry_of(const Functional& f) {
  CatalogueEntry e{"functional", f.name, f.signature.str(), f.description, "", "", {}, ""};
  for (const AttributeSpec& a : f.signature.attributes) {
    e.arguments.push_back(entry_of(a));
    if (a.since)
      e.arguments.back().description +=
          fmt::format("{}since contract 1.{}", a.description.empty() ? "" : "; ", a.since);
  }
  add_signature(e, f);
  return finished(std::move(e));
}

const char* range_of(SettingSpec::Kind kind) {
  switch (kind) {
    case SettingSpec::Kind::number:
      return "0..1e6";
    case SettingSpec::Kind::span:
      return "0..";
    case SettingSpec::Kind::fraction:
      return "0..<1";
    case SettingSpec::Kind::part:
      return "0..1";
    default:
      return "";
  }
}

CatalogueEntry entry_of(const char* kind, const NamedRow& row) {
  CatalogueEntry e{kind, std::string(row.name), signature(row), std::string(row.description), "", "", {}, ""};
  for (const SettingSpec& s : row.settings) {
    const bool choice = s.kind == SettingSpec::Kind::choice;
    const auto type = choice ? HX_ARG_STRING : s.kind == SettingSpec::Kind::flag ? HX_ARG_BOOL : HX_ARG_FLOAT;
    e.arguments.push_back({std::string(s.name), std::string(argument_type_name(type)), value_text(s, s.otherwise),
                           choice ? std::string(s.range) : range_of(s.kind), std::string(s.description), false});
  }
  return finished(std::move(e));
}

std::vector<CatalogueEntry> own_augmentations() {
  const auto number = [](const char* name, const char* range, const char* description) {
    return CatalogueArgument{name, std::string(argument_type_name(HX_ARG_FLOAT)), "", range, description, true};
  };
  const CatalogueArgument height = number("height", "1..", "height of the piece"),
                          width{"width", std::string(argument_type_name(HX_ARG_FLOAT)), "",
                                "1..",   "width of the piece; absent: its height",      false};
  const CatalogueArgument vertical{
      "vertical", std::string(argument_type_name(HX_ARG_STRING)), "", "vertical", "mirror top-bottom instead", false};
  std::vector<CatalogueEntry> all;
  const auto add = [&](const char* name, const char* signature, const char* example, const char* description,
                       std::vector<CatalogueArgument> arguments) {
    all.push_back({"augmentation", name, signature, description, "", "", std::move(arguments),
                   fmt::format("--producer 'NAME=file:PATH?augment={}'", example)});
  };
  add("center", "center(height, width?)", "center(24)", "crops the centre to that size", {height, width});
  add("crop", "crop(height, width?)", "crop(24)", "crops a random piece of that size", {height, width});
  add("cutout", "cutout(pixels)", "cutout(8)", "zeros a square of that size at a random position",
      {number("pixels", "1..", "of a side")});
  add("flip", "flip(vertical?)", "flip", "mirrors left-right with probability 1/2", {vertical});
  add("noise", "noise(deviation)", "noise(0.05)", "adds Gaussian noise; for bytes as a fraction of 255",
      {number("deviation", "0..", "standard deviation")});
  add("rotate", "rotate(degrees)", "rotate(8)", "rotates about the centre by a random angle",
      {number("degrees", "0..180", "at most")});
  add("scale", "scale(part)", "scale(0.1)", "scales about the centre by a random factor from 1 - part to 1 + part",
      {number("part", "0..0.99", "at most")});
  add("shift", "shift(pixels)", "shift(2)", "shifts by a random distance in each direction",
      {number("pixels", "0..", "at most")});
  return all;
}

// Returns the entries of the library, or only that called `name` if it is not empty.
std::vector<CatalogueEntry> own(const std::string& kind, const std::string& name = "") {
  std::vector<CatalogueEntry> all;
  const auto asked = [&](std::string_view candidate) { return name.empty() || candidate == name; };
  if (kind == "optimizer")
    for (const NamedRow& row : optimizer_rows()) all.push_back(entry_of("optimizer", row));
  if (kind == "schedule")
    for (const NamedRow& row : schedule_rows()) all.push_back(entry_of("schedule", row));
  if (kind == "augmentation") all = own_augmentations();
  if (kind == "functional")
    for (const FunctionalPtr& f : FunctionalTable::global().all())
      if (asked(f->name)) all.push_back(entry_of(*f));
  if (kind == "device")
    all.push_back(finished({kind,
                            "reference",
                            "reference",
                            "slow reference implementation of every operation on the CPU, for checking",
                            "",
                            "",
                            {},
                            ""}));
  if (kind == "primitive")
    for (const OpRow& row : op_rows())
      if (asked(row.name))
        all.push_back(finished({kind,
                                std::string(row.name),
                                std::string(row.name),
                                row.gradient ? "differentiable" : "no gradient",
                                "",
                                "",
                                {},
                                ""}));
  return all;
}

void add_kind(std::vector<CatalogueEntry>& all, const std::string& kind) {
  if (const uint32_t number = kind_named(kind))
    for (const std::string& name : Registry::global().names(number))
      if (const ItemPtr item = Registry::global().find(number, name)) all.push_back(entry_of(*item));
  for (CatalogueEntry& e : own(kind)) all.push_back(std::move(e));
}

}  // namespace

std::vector<std::string> catalogue_kinds() {
  std::vector<std::string> all;
  for (const uint32_t kind : item_kinds()) all.emplace_back(kind_plural(kind));
  all.emplace_back("primitives");
  return all;
}

std::string singular(const std::string& kind) {
  if (kind == "losses") return "loss";
  if (kind.ends_with("ies")) return kind.substr(0, kind.size() - 3) + "y";
  return !kind.empty() && kind.back() == 's' && kind != "loss" ? kind.substr(0, kind.size() - 1) : kind;
}

std::string plural(const std::string& kind) {
  if (kind == "loss") return "losses";
  return kind.ends_with("y") ? kind.substr(0, kind.size() - 1) + "ies" : kind + "s";
}

std::vector<std::string> catalogue_names(const std::string& kind) {
  std::vector<std::string> all;
  if (const uint32_t number = kind_named(kind)) all = Registry::global().names(number);
  for (CatalogueEntry& e : own(kind)) all.push_back(std::move(e.name));
  return all;
}

std::vector<CatalogueEntry> catalogue(const std::string& kind) {
  std::vector<CatalogueEntry> all;
  for (const std::string& name : catalogue_kinds())
    if (kind.empty() || singular(name) == kind) add_kind(all, singular(name));
  return all;
}

namespace {

// Adds an example call to a plugin's functional whose further inputs no argument names: it cannot be written as an
// arrow.
CatalogueEntry with_call(CatalogueEntry e) {
  if (e.kind != "functional" || e.plugin.empty()) return e;
  const auto is_layer = [](const CatalogueArgument& a) { return a.type == argument_type_name(HX_ARG_LAYER); };
  const size_t inputs = 1 + static_cast<size_t>(std::count_if(e.arguments.begin(), e.arguments.end(), is_layer));
  try {
    const std::optional<CallExample> call = shortest_call(e.name);
    if (call && call->inputs.size() > inputs) e.example = call_text(*call);
  } catch (const Error&) {  // its inputs are unknown
  }
  return e;
}

}  // namespace

std::vector<CatalogueEntry> catalogue_of(const std::string& name) {
  std::vector<CatalogueEntry> all;
  for (const uint32_t kind : item_kinds())
    if (const ItemPtr item = Registry::global().find(kind, name)) all.push_back(with_call(entry_of(*item)));
  for (const std::string& kind : catalogue_kinds())
    for (CatalogueEntry& e : own(singular(kind), name))
      if (e.name == name) all.push_back(std::move(e));
  return all;
}

}  // namespace harmonics::engine::cli
