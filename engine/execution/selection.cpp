#include "engine/execution/selection.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/contract/plugin_implementation.hpp"
#include "engine/execution/device_memory.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

std::string no_kernel(const std::string& why) { return "has no kernel for it" + (why.empty() ? "" : ": " + why); }

void expect_operation(const std::string& name) {
  if (find_op(name) || FunctionalTable::global().find(name)) return;
  Error e(ErrorKind::Usage, fmt::format("there is no functional '{}' to override", name));
  std::vector<std::string> known = FunctionalTable::global().names();
  for (const OpRow& row : op_rows())
    if (find_op(row.name)) known.emplace_back(row.name);
  if (auto near = nearest(name, known))
    e.note("did you mean '" + *near + "'?");
  else
    e.note("'harmonics list functionals' lists them");
  throw e;
}

}  // namespace

Selection::Selection(Registry& registry, const DeviceSettings& device, bool training)
    : registry_(registry),
      device_(device.device),
      training_(training),
      kernels_(device.device, registry, device.precision),
      overrides_(registry.overrides()) {
  if (kernels_.device()) native_ = native_of(*kernels_.device());
  for (const std::string& name : registry.names(HX_IMPLEMENTATION)) named_.insert(name.substr(0, name.find('.')));
  for (const auto& [functional, implementation] : overrides_) check_override(functional, implementation);
  // the reference uses only implementations named by an override
  if (kernels_.is_reference()) std::erase_if(named_, [&](const std::string& op) { return !wanted(op); });
}

void Selection::check_override(const std::string& functional, const std::string& wanted) {
  expect_operation(functional);
  const bool is_primitive = find_op(functional) != nullptr;
  std::vector<std::string> known;
  for (const ItemPtr& item : registry_.implementations(functional)) known.push_back(implementation_name(*item));
  known.push_back(device_);
  if (!is_primitive) known.emplace_back(kPortable);
  if (std::find(known.begin(), known.end(), wanted) != known.end()) return;
  Error e(ErrorKind::Usage, fmt::format("there is no implementation '{}' of '{}'", wanted, functional));
  if (auto near = nearest(wanted, known)) e.note("did you mean '" + *near + "'?");
  throw e.note(fmt::format("it has {}; --plugin PATH loads a plugin with others", comma_separated(known)));
}

const std::string* Selection::wanted(const std::string& op) const {
  const auto at = overrides_.find(op);
  return at == overrides_.end() ? nullptr : &at->second;
}
bool Selection::wants_body(const std::string& op) const {
  const std::string* name = wanted(op);
  return name && *name == kPortable;
}
bool Selection::wants_device(const std::string& op) const {
  const std::string* name = wanted(op);
  return name && *name == device_;
}

CallSiteInfo Selection::site_of(const Program& program, const Node& node) const {
  CallSiteInfo site;
  site.op = node.op == Op::call ? node.callee : std::string(op_name(node.op));
  site.attributes = node.attributes;
  site.inputs = input_types(program, node);
  site.outputs = output_types(program, node);
  site.device = device_;
  site.flags = kernels_.flags() | (training_ ? uint32_t{HX_SITE_TRAINING} : 0u);
  site.native = native_;
  return site;
}

const Selection::Considered& Selection::consider(const CallSiteInfo& site) {
  const std::string key = site.str();
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  auto [candidates, fresh] = candidates_.try_emplace(site.op);
  if (fresh && named_.count(site.op)) candidates->second = registry_.implementations(site.op);
  Considered c;
  const std::string* only = wanted(site.op);
  for (const ItemPtr& item : candidates->second) {
    c.verdicts.push_back({item, declines(*item, site)});
    const bool allowed = !only || *only == implementation_name(*item);
    if (!c.winner && allowed && !c.verdicts.back().declined) c.winner = item;
  }
  if (only && !c.winner && *only != device_ && *only != kPortable) refuse_override(site, c.verdicts);
  return known_[key] = std::move(c);
}

void Selection::refuse_override(const CallSiteInfo& site, const std::vector<Verdict>& verdicts) {
  const std::string& name = *wanted(site.op);
  const bool has_kernel = kernels_.find(site.op, site.attributes, site.inputs, site.outputs) != nullptr;
  const std::string by_device =
      has_kernel ? "would serve" : no_kernel(kernels_.why_not(site.op, site.attributes, site.inputs, site.outputs));
  const auto answer = [](const std::optional<std::string>& why) {
    return why ? "declines: " + *why : std::string("would serve");
  };
  std::string reason = fmt::format("device '{}' {}", device_, by_device);
  Error e(ErrorKind::Usage, "");
  for (const Verdict& v : verdicts) {
    if (implementation_name(*v.item) == name) reason = v.declined.value_or("");
    e.note(fmt::format("{} {}", implementation_title(*v.item), answer(v.declined)));
  }
  e.note(fmt::format("{} {}", device_, by_device));
  if (!find_op(site.op)) e.note(fmt::format("{} would serve", kPortable));
  throw Error(ErrorKind::Usage,
              fmt::format("the override {}={} cannot serve {}{}: {}", site.op, name, site.str(),
                          training_ ? " in a training step" : "", reason),
              {}, e.notes());
}

Selected Selection::record(const Program& program, const Node& node, const CallSiteInfo& site,
                           const Considered& considered) {
  Selected s;
  s.op = site.op;
  s.site = site.str();
  s.scope = program.scope_of(node).text();
  const std::string* only = wanted(site.op);
  s.because = only ? "override" : "plugin";
  for (const Verdict& v : considered.verdicts) {
    if (v.item == considered.winner) {
      s.winner = implementation_title(*v.item);
      continue;
    }
    const bool other = only && *only != implementation_name(*v.item);
    s.declined.emplace_back(implementation_title(*v.item), v.declined ? *v.declined
                                                           : other    ? "available; the override selects another"
                                                                      : "available; another comes first");
  }
  return s;
}

std::shared_ptr<const HostFunction> Selection::choose(const Program& program, const Node& node) {
  if (idle()) return nullptr;
  const std::string op = node.op == Op::call ? node.callee : std::string(op_name(node.op));
  if (!named_.count(op) && !wanted(op)) return nullptr;
  const CallSiteInfo site = site_of(program, node);
  const Considered& c = consider(site);
  if (!c.winner) return nullptr;
  return make_implementation_call(c.winner, site, record(program, node, site, c));
}

void Selection::opened(const Program& program, const Node& call) {
  constexpr const char* kWhy = "the functional has no gradient of its own, so its body is differentiated";
  const CallSiteInfo site = site_of(program, call);
  if (wants_device(site.op))
    throw Error(
        ErrorKind::Usage,
        fmt::format("the override {}={} cannot serve {} in a training step: {}", site.op, device_, site.str(), kWhy),
        {}, {fmt::format("leave it out, or write {}={}", site.op, kPortable)});
  Selected s = record(program, call, site, consider(site));
  s.winner = kPortable;
  if (s.because != "override") s.because = "body";
  s.declined.emplace_back(device_, kWhy);
  opened_.push_back(std::move(s));
}

Selected Selection::settled(const Program& program, const Node& node, bool by_device, const std::string& why_not) {
  const CallSiteInfo site = site_of(program, node);
  const Considered& c = consider(site);
  if (!by_device && wants_device(site.op)) refuse_override(site, c.verdicts);
  Selected s = record(program, node, site, c);
  s.winner = by_device ? device_ : kPortable;
  if (s.because != "override") s.because = by_device ? "device" : "body";
  if (by_device)
    s.declined.emplace_back(kPortable, "available; the device comes first");
  else
    s.declined.emplace_back(device_, wants_body(site.op) ? "the override selects another" : no_kernel(why_not));
  return s;
}

}  // namespace harmonics::engine
