#include "engine/plugin/pending_items.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "engine/plugin/arguments.hpp"
#include "engine/plugin/kinds.hpp"
#include "engine/plugin/range.hpp"

namespace harmonics::engine {

namespace {

// Copies the part of a struct that the plugin's version defines, and zeroes the rest.
template <typename T>
T read_sized(const T& from) {
  T to{};
  std::memcpy(&to, &from, std::min<size_t>(from.struct_size, sizeof(T)));
  return to;
}

[[noreturn]] void refuse(const Item& item, const std::string& reason) {
  throw Error(ErrorKind::Plugin,
              "cannot register " + std::string(kind_name(item.kind)) + " '" + item.name + "': " + reason);
}

void check_range(const Item& item, const ArgumentSpec& spec) {
  if (!is_range(spec.type, spec.range))
    refuse(item, "the range '" + spec.range + "' of argument '" + spec.name + "' does not fit " +
                     std::string(argument_type_name(spec.type)));
  if (!spec.default_text.empty() && !in_range(*parse_argument(spec.type, spec.default_text), spec.range))
    refuse(item, "the default '" + spec.default_text + "' of argument '" + spec.name + "' is outside its range '" +
                     spec.range + "'");
}

ArgumentSpec copy_spec(const Item& item, const hx_argument_spec& from) {
  const hx_argument_spec spec = read_sized(from);
  ArgumentSpec result;
  result.type = spec.type;
  result.name = spec.name ? spec.name : "";
  result.default_text = spec.default_text ? spec.default_text : "";
  result.description = spec.description ? spec.description : "";
  result.range = spec.range ? spec.range : "";
  result.required = spec.default_text == nullptr;
  if (!is_item_name(result.name)) refuse(item, "an argument has the name '" + result.name + "'");
  if (result.type < HX_ARG_INT || result.type > HX_ARG_LAYER)
    refuse(item, "argument '" + result.name + "' has the unknown type " + std::to_string(result.type));
  if (!result.default_text.empty() && !parse_argument(result.type, result.default_text))
    refuse(item, "the default '" + result.default_text + "' of argument '" + result.name + "' is not " +
                     std::string(argument_type_name(result.type)));
  if (!result.range.empty()) check_range(item, result);
  return result;
}

// Reads an array of structs. The stride is the size in the plugin's version, which may be larger than here.
void copy_arguments(Item& item, const hx_item& from) {
  if (from.n_arguments && !from.arguments) refuse(item, "its table of arguments is missing");
  std::set<std::string> seen;
  const char* at = reinterpret_cast<const char*>(from.arguments);
  for (uint32_t i = 0; i < from.n_arguments; ++i) {
    const auto& spec = *reinterpret_cast<const hx_argument_spec*>(at);
    if (spec.struct_size < offsetof(hx_argument_spec, description) + sizeof(char*))
      refuse(item, "its table of arguments holds a size of " + std::to_string(spec.struct_size) + " bytes");
    item.arguments.push_back(copy_spec(item, spec));
    if (!seen.insert(item.arguments.back().name).second)
      refuse(item, "argument '" + item.arguments.back().name + "' appears twice in its table");
    at += spec.struct_size;
  }
}

void check_kind(Item& item, std::string_view extension) {
  const uint32_t kind = item.kind;
  const auto rows = kind_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [kind](const KindRow& r) { return r.kind == kind; });
  if (row != rows.end() && row->extension == extension) return;
  item.vtable = nullptr;  // the layout of its table is unknown
  if (row != rows.end())
    throw Error(ErrorKind::Plugin,
                "cannot register " + std::string(row->name) + " '" + item.name + "': " + std::string(row->plural) +
                    " are registered by " +
                    (row->extension.empty() ? std::string("hx_api.register_item")
                                            : "the extension '" + std::string(row->extension) + "'"));
  throw Error(ErrorKind::Plugin, "cannot register '" + item.name + "': unknown kind " + std::to_string(kind));
}

// Checks the additional requirements of a kind.
void check_shape(const Item& item) {
  if (item.kind == HX_IMPLEMENTATION) {
    const size_t dot = item.name.find('.');
    if (dot == 0 || dot == std::string::npos || dot + 1 == item.name.size())
      refuse(item, "an implementation is called FUNCTIONAL.NAME, such as attention.mine");
    if (!item.arguments.empty()) refuse(item, "an implementation has no separate arguments; it uses those of the call");
  }
  if (item.kind == HX_OPTIMIZER || item.kind == HX_SCHEDULE || item.kind == HX_POLICY)
    for (const ArgumentSpec& a : item.arguments)
      if ((a.type != HX_ARG_INT && a.type != HX_ARG_FLOAT && a.type != HX_ARG_BOOL) || a.default_text.empty())
        refuse(item, "argument '" + a.name + "' is not a number or flag with a default");
  if (item.kind != HX_OPTIMIZER) return;
  const bool has_rate = !item.arguments.empty() && item.arguments[0].name == "lr" &&
                        item.arguments[0].type == HX_ARG_FLOAT && !item.arguments[0].default_text.empty();
  if (!has_rate) refuse(item, "the first argument of an optimizer is 'lr', a number with a default");
}

// The first item that was refused on this thread since take_refusal(). Plugins in C may ignore the status of a call.
thread_local std::string refusal;

void check_item(const hx_registry& registry, Item& item, const hx_item& given) {
  // A duplicate within one library is a mistake. Replacing an item of another library, or of a graph that registers
  // again, is not.
  const auto same = [&](const auto& other) { return other->kind == item.kind && other->name == item.name; };
  if (registry.library && std::any_of(registry.pending.begin(), registry.pending.end(), same))
    refuse(item, "this library has registered one of that name already; give one of them another name");
  if (!is_item_name(item.name))
    refuse(item, "a name starts with a letter or '_', followed by letters, digits and '_ . + -'");
  if (library_items().reserves(item.kind, item.name))
    refuse(item, "the library itself has one of this name; choose another");
  if (!item.vtable) refuse(item, "it has no table of functions");
  if (const std::string missing = missing_function(item.kind, item.vtable); !missing.empty())
    refuse(item, "its table lacks the function '" + missing + "'");
  copy_arguments(item, given);
  check_shape(item);
}

}  // namespace

std::string take_refusal() { return std::exchange(refusal, {}); }

void add_pending(hx_registry& registry, const hx_item& from, std::string_view extension) {
  const hx_item given = read_sized(from);
  auto item = std::make_shared<Item>();
  item->library = registry.library;
  item->plugin = registry.plugin;
  item->path = registry.path;
  item->contract_minor = registry.contract_minor;
  item->kind = given.kind;
  item->flags = given.flags;
  item->self = given.self;
  item->vtable = given.vtable;
  item->name = given.name ? given.name : "";
  item->description = given.description ? given.description : "";
  check_kind(*item, extension);
  try {
    check_item(registry, *item, given);
  } catch (const Error& e) {
    if (refusal.empty()) refusal = e.what();
    throw;
  }
  if (registry.take) return registry.take(std::move(item));
  registry.pending.push_back(std::move(item));
}

void commit_pending(hx_registry& pending, Registry& registry) {
  for (std::shared_ptr<Item>& item : pending.pending) registry.add(std::move(item));
  pending.pending.clear();
}

}  // namespace harmonics::engine
