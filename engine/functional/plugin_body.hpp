// A plugin's function as the engine runs it: statuses become errors, and a pure body becomes part of the traced
// program, spliced in when it can be traced, else as one opaque node.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/program.hpp"

// A function of a table that may be shorter than this program knows it, or leave it out.
#define HM_TABLE_HAS(table, member) \
  ((table).struct_size >= offsetof(std::decay_t<decltype(table)>, member) + sizeof((table).member) && (table).member)

namespace harmonics {

// "activation 'my_act' of plugin 'my_plugin'"
std::string spoken_name(const Item& item);
// Is it of this program itself, or of a plugin that comes with it?
bool is_shipped(const Item& item);
// The error a plugin left behind by answering `status`, naming the item. Keeps the kind the plugin gave.
Error plugin_error(const Item& item, hx_status status);

// Appends the nodes of a body to the program being traced; its inputs "0", "1" ... are the values given. Its results.
std::vector<HTensor> splice(const Program& body, const std::vector<HTensor>& inputs);

// A pure function of a plugin with its arguments bound.
struct PluginBody {
  using Call = std::function<hx_status(const std::vector<HTensor>& inputs, hx_value** out)>;
  using CheckResult = std::function<void(const TensorType& result, const std::vector<TensorType>& inputs)>;

  ItemPtr item;
  std::string signature;  // what makes this body differ from others of the item: arguments, form
  Call call;
  Call gradient;      // inputs, then the result, then its gradient; gives that of input 0; null: none
  CheckResult check;  // throws when the result is not what this kind of function gives

  // One run on whatever the inputs are. Null and the status when it is no HX_OK.
  std::pair<HTensor, hx_status> run(const Call& function, const std::vector<HTensor>& inputs) const;
  // The same, with every other status an error and the result checked.
  HTensor result(const std::vector<HTensor>& inputs) const;
};
using PluginBodyPtr = std::shared_ptr<const PluginBody>;

// Handles of values as functions of the contract take them; they stay the values'.
inline std::vector<hx_value*> raw(std::span<const HTensor> values) {
  std::vector<hx_value*> list;
  for (const HTensor& v : values) list.push_back(v.raw());
  return list;
}

// What the first use of a signature found out.
struct TracedBody {
  hx_status status = HX_OK;                // HX_OK, HX_DECLINED, or HX_NEEDS_VALUES: opaque
  std::shared_ptr<const Program> program;  // HX_OK: the body; inputs "0", "1" ..., output "y"
  TensorType opaque_result;                // HX_NEEDS_VALUES: from one run on zeros
};

// Remembers by item, signature and types; forgets items nobody uses any more. Throws the plugin's errors.
TracedBody trace_body(const PluginBodyPtr& body, const std::vector<TensorType>& types);

// The body applied to values. With at least one of them traced, it becomes part of the program being traced.
// Empty: the body declined.
HTensor apply_body(const PluginBodyPtr& body, const std::vector<HTensor>& inputs);

}  // namespace harmonics
