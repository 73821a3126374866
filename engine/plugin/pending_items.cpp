#include "engine/plugin/pending_items.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <harmonics/metric_abi.h>

#include "engine/plugin/arguments.hpp"

namespace harmonics {

namespace {

// The part of a struct that its writer knew, the rest zero.
template <typename T>
T read_sized(const T& from) {
  T to{};
  std::memcpy(&to, &from, std::min<size_t>(from.struct_size, sizeof(T)));
  return to;
}

bool is_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (text.empty() || !letter(text[0])) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '+' || c == '-'; });
}

[[noreturn]] void refuse(const Item& item, const std::string& reason) {
  throw Error(ErrorKind::Plugin,
              "cannot register " + std::string(kind_name(item.kind)) + " '" + item.name + "': " + reason);
}

ArgumentSpec copy_spec(const Item& item, const hx_argument_spec& from) {
  const hx_argument_spec spec = read_sized(from);
  ArgumentSpec result;
  result.type = spec.type;
  result.name = spec.name ? spec.name : "";
  result.default_text = spec.default_text ? spec.default_text : "";
  result.description = spec.description ? spec.description : "";
  result.required = spec.default_text == nullptr;
  if (!is_name(result.name)) refuse(item, "an argument has the name '" + result.name + "'");
  if (result.type < HX_ARG_INT || result.type > HX_ARG_LAYER)
    refuse(item, "argument '" + result.name + "' has the unknown type " + std::to_string(result.type));
  if (!result.default_text.empty() && !parse_argument(result.type, result.default_text))
    refuse(item, "the default '" + result.default_text + "' of argument '" + result.name + "' is not " +
                     std::string(argument_type_name(result.type)));
  return result;
}

// An array of structs whose writer may know a longer one: the stride is the writer's size.
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
      refuse(item, "argument '" + item.arguments.back().name + "' stands twice in its table");
    at += spec.struct_size;
  }
}

}  // namespace

void add_pending(hx_registry& registry, const hx_item& from) {
  const hx_item given = read_sized(from);
  auto item = std::make_shared<Item>();
  item->library = registry.library;
  item->plugin = registry.plugin;
  item->path = registry.path;
  item->kind = given.kind;
  item->flags = given.flags;
  item->self = given.self;
  item->vtable = given.vtable;
  item->name = given.name ? given.name : "";
  item->description = given.description ? given.description : "";
  if (given.kind < HX_ACTIVATION || given.kind > static_cast<uint32_t>(HX_METRIC))
    throw Error(ErrorKind::Plugin, "cannot register '" + item->name + "': unknown kind " + std::to_string(given.kind));
  if (!is_name(item->name))
    refuse(*item, "a name starts with a letter or '_' and goes on with letters, digits and '_ . + -'");
  if (!item->vtable) refuse(*item, "it has no table of functions");
  copy_arguments(*item, given);
  registry.pending.push_back(std::move(item));
}

void commit_pending(hx_registry& pending, Registry& registry) {
  for (std::shared_ptr<Item>& item : pending.pending) registry.add(std::move(item));
  pending.pending.clear();
}

}  // namespace harmonics
