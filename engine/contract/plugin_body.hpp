// Runs a plugin's functions. Statuses become errors. Pure bodies become part of the traced program: inlined if they can
// be traced, otherwise as an opaque node.
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

// Returns the name for messages: "activation 'my_act' of plugin 'my_plugin'".
std::string spoken_name(const Item& item);
// Returns whether the item is part of this program or of a plugin shipped with it.
bool is_shipped(const Item& item);
// Returns the plugin's error after it returned `status`, with the name of the item and the plugin's kind of error.
Error plugin_error(const Item& item, hx_status status);

// Appends a body's nodes to the program being traced and returns the results. `inputs` replace its inputs "0", "1" ...
std::vector<HTensor> splice(const Program& body, const std::vector<HTensor>& inputs);

// A plugin's pure function with bound arguments.
struct PluginBody {
  using Call = std::function<hx_status(const std::vector<HTensor>& inputs, hx_value** out)>;
  using CheckResult = std::function<void(const TensorType& result, const std::vector<TensorType>& inputs)>;

  ItemPtr item;
  std::string signature;  // distinguishes bodies of one item by arguments and form
  Call call;
  Call gradient;      // gradient of input 0 from inputs, result and the result's gradient; null: none
  CheckResult check;  // throws if the result is invalid for this kind of function

  // Calls the function once. Returns a null tensor if the status is not HX_OK.
  std::pair<HTensor, hx_status> run(const Call& function, const std::vector<HTensor>& inputs) const;
  // Like run() with `call`, but checks the result and throws if the status is not HX_OK.
  HTensor result(const std::vector<HTensor>& inputs) const;
};
using PluginBodyPtr = std::shared_ptr<const PluginBody>;

// Returns borrowed handles for the C API.
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
// Adds a figure to those of the body that this thread traces, if any. Throws ErrorKind::Plugin for a name that was
// reported before or is invalid in a condition.
void keep_reported_figure(const std::string& name, const HTensor& value);

// Result of tracing a body for one signature.
struct TracedBody {
  hx_status status = HX_OK;                // HX_OK, HX_DECLINED, or HX_NEEDS_VALUES: opaque
  std::shared_ptr<const Program> program;  // HX_OK: the body; inputs "0", "1" ..., output "y", then reported figures
  TensorType opaque_result;                // HX_NEEDS_VALUES: from one run on zeros
};

// Traces the body. Results are cached by item, signature and types during the item's lifetime. Throws the plugin's
// errors.
TracedBody trace_body(const PluginBodyPtr& body, const std::vector<TensorType>& types);

// Applies the body. The call is traced if an input is traced. Returns a null tensor if the body declines. `figures`
// receives the figures that a traced, inlined body reports.
HTensor apply_body(const PluginBodyPtr& body, const std::vector<HTensor>& inputs,
                   std::vector<ReportedFigure>* figures = nullptr);

}  // namespace harmonics::engine
