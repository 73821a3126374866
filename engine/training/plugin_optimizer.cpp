#include "engine/training/plugin_optimizer.hpp"

#include <algorithm>
#include <set>

#include <fmt/core.h>

#include <harmonics/training_abi.h>

#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

AttributeMap arguments_of(const Optimizer& optimizer) {
  return optimizer.settings.attributes().set("lr", optimizer.lr);
}

hx_parameter view_of_parameter(const SteppedParameter& p) {
  return {sizeof(hx_parameter), p.hidden ? static_cast<uint32_t>(HX_PARAMETER_HIDDEN) : 0u, p.name.c_str(),
          to_c(p.type)};
}

bool is_moment_name(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

}  // namespace

std::vector<UpdateRule::Moment> plugin_moments(const Optimizer& optimizer, const SteppedParameter& parameter) {
  const Item& item = *optimizer.settings.row->item;
  const auto& table = item.table<hx_optimizer_vt>();
  if (!HM_TABLE_HAS(table, moments)) return {};
  const AttributeMap arguments = arguments_of(optimizer);
  const AttributeView view(arguments);
  const hx_parameter p = view_of_parameter(parameter);
  hx_moment given[HX_MAX_MOMENTS] = {};
  uint32_t count = 0;
  const hx_status status = table.moments(item.self, view.get(), &p, given, &count);
  if (status != HX_OK) throw plugin_error(item, status);
  if (count > HX_MAX_MOMENTS)
    throw Error(ErrorKind::Plugin,
                fmt::format("{} keeps {} moments; at most {} are possible", spoken_name(item), count, HX_MAX_MOMENTS));
  std::vector<UpdateRule::Moment> moments;
  std::set<std::string> seen{"gradient"};  // reserved for accumulated gradients
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = given[i].name ? given[i].name : "";
    if (!is_moment_name(name) || !seen.insert(name).second)
      throw Error(
          ErrorKind::Plugin,
          fmt::format("{} calls a moment '{}'; names are letters, digits and '_', each once, and not 'gradient'",
                      spoken_name(item), name));
    moments.push_back({name, from_c(given[i].type)});
  }
  return moments;
}

std::vector<HTensor> plugin_step(const Optimizer& optimizer, const SteppedParameter& parameter, const HTensor& value,
                                 const HTensor& gradient, const std::vector<HTensor>& moments, const HTensor& rate,
                                 const HTensor& step) {
  const Item& item = *optimizer.settings.row->item;
  const AttributeMap arguments = arguments_of(optimizer);
  const AttributeView view(arguments);
  const hx_parameter p = view_of_parameter(parameter);
  std::vector<hx_value*> raw;
  for (const HTensor& m : moments) raw.push_back(m.raw());
  const hx_update update{
      sizeof update, static_cast<uint32_t>(raw.size()), value.raw(), gradient.raw(), rate.raw(), step.raw(),
      raw.data()};
  std::vector<hx_value*> out(1 + moments.size(), nullptr);
  const hx_status status = item.table<hx_optimizer_vt>().step(item.self, view.get(), &p, &update, out.data());
  std::vector<HTensor> next;
  for (hx_value* v : out) next.push_back(HTensor::adopt(v));
  if (status == HX_NEEDS_VALUES)
    throw Error(ErrorKind::Plugin, fmt::format("{} reads values, which an optimizer cannot do", spoken_name(item)))
        .note("write its step with the operations of <harmonics/ops.hpp>: it becomes part of the training step");
  if (status != HX_OK) throw plugin_error(item, status);
  for (size_t i = 0; i < next.size(); ++i) {
    const std::string what = i == 0 ? "the parameter" : fmt::format("moment {}", i);
    const TensorType want = i == 0 ? parameter.type : type_of(moments[i - 1]);
    if (!next[i])
      throw Error(ErrorKind::Plugin, fmt::format("{} returned an empty tensor for {}", spoken_name(item), what));
    if (type_of(next[i]) != want)
      throw Error(ErrorKind::Plugin, fmt::format("{} returned {} for {} of '{}', which is {}", spoken_name(item),
                                                 type_of(next[i]).str(), what, parameter.name, want.str()));
  }
  return next;
}

}  // namespace harmonics::engine
