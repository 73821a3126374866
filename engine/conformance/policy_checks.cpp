// Checks of policies: decisions about various products, on devices with and without narrow types.
#include <cstring>
#include <vector>

#include <fmt/core.h>
#include <harmonics/policy_abi.h>

#include "engine/conformance/item_checks.hpp"
#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

constexpr uint32_t kNarrow = HX_SITE_FP16_CHUNKS | HX_SITE_BF16 | HX_SITE_FP8;

struct ProductCase {
  const char *op, *path, *phase;
  std::vector<hx_type> inputs, outputs;
  uint32_t roundings;
};

std::vector<ProductCase> product_cases() {
  std::vector<ProductCase> all;
  for (const int64_t rows : {1, 64})
    for (const int64_t width : {3, 32, 1024})
      for (const char* phase : {"forward", "decode", "gradient"})
        for (const uint32_t roundings : {0u, uint32_t{HX_SITE_BF16}, kNarrow}) {
          const hx_type x = to_c({DType::F32, {rows, width}}), w = to_c({DType::F32, {10, width}}),
                        y = to_c({DType::F32, {rows, 10}});
          all.push_back({"linear", "net.hidden", phase, {x, w}, {y}, roundings});
          all.push_back({"dot", "", phase, {x, w}, {y}, roundings});
        }
  return all;
}

struct Decided {
  hx_status status = HX_OK;
  uint32_t rounding = 0;
  std::string activation_type;
  bool operator==(const Decided&) const = default;
};

class CheckedPolicy {
 public:
  CheckedPolicy(const ItemPtr& item, const AttributeMap& arguments)
      : item_(item), arguments_(arguments), view_(arguments_) {}
  CheckedPolicy(const CheckedPolicy&) = delete;
  CheckedPolicy& operator=(const CheckedPolicy&) = delete;
  Decided operator()(const ProductCase& c) const {
    const hx_product product{sizeof product,
                             c.roundings,
                             c.op,
                             c.path,
                             c.phase,
                             static_cast<uint32_t>(c.inputs.size()),
                             static_cast<uint32_t>(c.outputs.size()),
                             c.inputs.data(),
                             c.outputs.data()};
    hx_product_precision out{sizeof out, 0, nullptr};
    const hx_status status = item_->table<hx_policy_vt>().decide(item_->self, &product, view_.get(), &out);
    if (status == HX_DECLINED) return {HX_DECLINED, 0, ""};
    if (status != HX_OK) throw plugin_error(*item_, status);
    return {HX_OK, out.rounding, out.activation_type ? out.activation_type : ""};
  }

 private:
  ItemPtr item_;
  AttributeMap arguments_;
  AttributeView view_;
};

std::string text_of(const ProductCase& c) {
  return fmt::format("{} in the phase {} with rows of {}", c.op, c.phase, c.inputs[0].dims[1]);
}

Finding possible(const CheckedPolicy& policy, const std::vector<ProductCase>& cases) {
  size_t decided = 0, rounded = 0;
  for (const ProductCase& c : cases) {
    const Decided a = policy(c);
    if ((a.rounding & ~c.roundings) != 0)
      return {Outcome::Failed,
              fmt::format("for {} it chose the rounding {:#x} of {:#x}", text_of(c), a.rounding, c.roundings),
              "choose one of hx_product.roundings, which are those of the device"};
    if ((a.rounding & (a.rounding - 1)) != 0)
      return {Outcome::Failed, fmt::format("for {} it chose several roundings: {:#x}", text_of(c), a.rounding),
              "choose one"};
    if (!a.activation_type.empty() && (std::strcmp(c.op, "linear") != 0 || std::strcmp(c.phase, "gradient") == 0))
      return {Outcome::Failed, fmt::format("it quantises the rows of {}", text_of(c)),
              "only `linear` in the forward pass quantises rows"};
    decided += a.status == HX_OK;
    rounded += a.rounding != 0 || !a.activation_type.empty();
  }
  return {Outcome::Passed,
          fmt::format("it decides about {} of {} products and rounds {}", decided, cases.size(), rounded), ""};
}

Finding repeated(const CheckedPolicy& policy, const std::vector<ProductCase>& cases) {
  std::vector<Decided> once;
  for (const ProductCase& c : cases) once.push_back(policy(c));
  for (size_t i = cases.size(); i-- > 0;)
    if (!(policy(cases[i]) == once[i]))
      return {Outcome::Failed, "it gives another answer for the same product: " + text_of(cases[i]),
              "decisions depend on the product and the settings alone: they decide about the bits of results"};
  return {};
}

}  // namespace

void check_policy(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const CheckedPolicy policy(item, arguments_to_try(*item));
  const std::vector<ProductCase> cases = product_cases();
  if (!attempt(log, "chooses only roundings that the device supports", [&] { return possible(policy, cases); })) return;
  attempt(log, "accepts the values that its ranges allow", [&] {
    return at_the_ends(*item, [&](const AttributeMap& arguments) {
      const Finding f = possible(CheckedPolicy(item, arguments), cases);
      return f.outcome == Outcome::Failed ? f.text : "";
    });
  });
  attempt(log, "repeats its decisions", [&] { return repeated(policy, cases); });
  attempt(log, "threads", [&]() -> Finding {
    std::vector<Decided> expected;
    for (const ProductCase& c : cases) expected.push_back(policy(c));
    const std::string error = on_four_threads(20, [&] {
      for (size_t i = 0; i < cases.size(); ++i)
        if (!(policy(cases[i]) == expected[i]))
          throw Error(ErrorKind::Plugin, "another decision than on one thread: " + text_of(cases[i]));
    });
    return {error.empty() ? Outcome::Passed : Outcome::Failed, error, ""};
  });
  attempt(log, "many calls", [&] {
    size_t i = 0;
    return many_calls(settings, [&] { policy(cases[i++ % cases.size()]); });
  });
}

}  // namespace harmonics::engine
