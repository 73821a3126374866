#include "engine/execution/precision_policy.hpp"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <harmonics/policy_abi.h>

#include "engine/base/spelling.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/plugin/named_settings.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

constexpr std::array<std::pair<Rounding, uint32_t>, 4> kFlags{{{Rounding::none, 0},
                                                               {Rounding::fp16, HX_SITE_FP16_CHUNKS},
                                                               {Rounding::bf16, HX_SITE_BF16},
                                                               {Rounding::fp8, HX_SITE_FP8}}};

class PolicyCalls {
 public:
  PolicyCalls(NamedSettings settings, const KernelSource& kernels)
      : settings_(std::move(settings)), arguments_(settings_.attributes()), view_(arguments_) {
    for (const auto& [rounding, flag] : kFlags)
      if (flag && kernels.has(rounding)) roundings_ |= flag;
  }

  std::optional<ProductDecision> decide(const Program& program, const Node& node) const {
    const NodeScope& scope = program.scope_of(node);
    const std::string op = node.op == Op::call ? node.callee : std::string(op_name(node.op)),
                      phase(phase_name(scope.phase));
    std::vector<hx_type> inputs, outputs;
    for (const ValueId v : node.inputs) inputs.push_back(to_c(program.type(v)));
    for (const ValueId v : node.outputs) outputs.push_back(to_c(program.type(v)));
    const hx_product product{sizeof product,
                             roundings_,
                             op.c_str(),
                             scope.path.c_str(),
                             phase.c_str(),
                             static_cast<uint32_t>(inputs.size()),
                             static_cast<uint32_t>(outputs.size()),
                             inputs.data(),
                             outputs.data()};
    hx_product_precision answer{sizeof answer, 0, nullptr};
    const Item& item = *settings_.row->item;
    const hx_status status = item.table<hx_policy_vt>().decide(item.self, &product, view_.get(), &answer);
    if (status == HX_DECLINED) return std::nullopt;
    const std::string where = scope.path.empty() ? op : fmt::format("{} of '{}'", op, scope.path);
    if (status != HX_OK) throw plugin_error(item, status).note("it was asked about " + where);
    ProductDecision decision;
    for (const auto& [rounding, flag] : kFlags)
      if (flag == answer.rounding) decision.rounding = rounding;
    if (answer.rounding & ~roundings_)
      throw Error(ErrorKind::Plugin,
                  fmt::format("{} rounds {} to a type that the device lacks", spoken_name(item), where), {},
                  {fmt::format("it may choose of the roundings {:#x}, and chose {:#x}", roundings_, answer.rounding)});
    if (answer.rounding != 0 && decision.rounding == Rounding::none)
      throw Error(ErrorKind::Plugin, fmt::format("{} chose several roundings for {}", spoken_name(item), where));
    if (answer.activation_type) {
      decision.activation_type = answer.activation_type;
      if (!can_quantise_rows(program, node, decision.activation_type))
        throw Error(ErrorKind::Plugin,
                    fmt::format("{} quantises the rows of {} to {}, which is not possible", spoken_name(item), where,
                                decision.activation_type),
                    {}, {"it is for `linear` in the forward pass, whose rows are whole blocks of the type"});
    }
    return decision;
  }

 private:
  const NamedSettings settings_;
  const AttributeMap arguments_;
  const AttributeView view_;
  uint32_t roundings_ = 0;
};

}  // namespace

std::function<std::optional<ProductDecision>(const Program&, const Node&)> decisions_of(const std::string& text,
                                                                                        Registry& registry,
                                                                                        const KernelSource& kernels) {
  const std::string name = text.substr(0, text.find('('));
  if (const auto known = registry.names(HX_POLICY); !registry.find(HX_POLICY, name)) {
    Error e(ErrorKind::Name, fmt::format("no plugin has a policy '{}'", name));
    if (const auto near = nearest(name, known))
      e.note(fmt::format("did you mean '{}'?", *near));
    else
      e.note(known.empty() ? "load the plugin that has it: --plugin FILE"
                           : "'harmonics list policies' shows those that are loaded");
    throw e;
  }
  const auto calls = std::make_shared<const PolicyCalls>(
      parse_named_settings("policy", text, {}, "wide_in_bf16(least=256)", registry, HX_POLICY), kernels);
  return [calls](const Program& program, const Node& node) { return calls->decide(program, node); };
}

}  // namespace harmonics::engine
