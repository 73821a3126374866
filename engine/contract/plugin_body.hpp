// Running a plugin's functions: statuses become errors, and pure bodies become part of the traced program, inlined if
// they can be traced, else as an opaque node.
#pragma once

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

namespace harmonics::engine {

// Name for messages: "activation 'my_act' of plugin 'my_plugin'".
std::string spoken_name(const Item& item);
// Returns whether the item is part of this program or of a plugin shipped with it.
bool is_shipped(const Item& item);
// The plugin's error after it returned `status`; names the item and keeps the plugin's kind.
Error plugin_error(const Item& item, hx_status status);

// Appends a body's nodes to the program being traced, with `inputs` for "0", "1" ... Returns its results.
std::vector<HTensor> splice(const Program& body, const std::vector<HTensor>& inputs);

// A plugin's pure function with bound arguments.
struct PluginBody {
  using Call = std::function<hx_status(const std::vector<HTensor>& inputs, hx_value** out)>;
  using CheckResult = std::function<void(const TensorType& result, const std::vector<TensorType>& inputs)>;

  ItemPtr item;
  std::string signature;  // distinguishes bodies of one item: arguments, form
  Call call;
  Call gradient;      // of inputs, result, result's gradient: the gradient of input 0; null: none
  CheckResult check;  // throws if the result is invalid for this kind of function

  // Calls the function once. Returns null and the status if it is not HX_OK.
  std::pair<HTensor, hx_status> run(const Call& function, const std::vector<HTensor>& inputs) const;
  // Like run(), but throws on other statuses and checks the result.
  HTensor result(const std::vector<HTensor>& inputs) const;
};
using PluginBodyPtr = std::shared_ptr<const PluginBody>;

// Borrowed handles, as the C API takes them.
inline std::vector<hx_value*> raw(std::span<const HTensor> values) {
  std::vector<hx_value*> list;
  for (const HTensor& v : values) list.push_back(v.raw());
  return list;
}

// A number that a loss reports beside its value; see hx_api::report_figure.
struct ReportedFigure {
  std::string name;
  HTensor value;
};
// Adds a figure of the body that this thread traces. Throws ErrorKind::Plugin for a name that was reported before or
// is not valid in a condition.
void keep_reported_figure(const std::string& name, const HTensor& value);

// Result of the first use of a signature.
struct TracedBody {
  hx_status status = HX_OK;                // HX_OK, HX_DECLINED, or HX_NEEDS_VALUES: opaque
  std::shared_ptr<const Program> program;  // HX_OK: the body; inputs "0", "1" ..., output "y", then reported figures
  TensorType opaque_result;                // HX_NEEDS_VALUES: from one run on zeros
};

// Cached by item, signature and types while the item exists. Throws the plugin's errors.
TracedBody trace_body(const PluginBodyPtr& body, const std::vector<TensorType>& types);

// Applies the body; traced if an input is traced. Empty: the body declined. `figures` receives what it reported.
HTensor apply_body(const PluginBodyPtr& body, const std::vector<HTensor>& inputs,
                   std::vector<ReportedFigure>* figures = nullptr);

}  // namespace harmonics::engine
