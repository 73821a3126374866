// Policies, which choose the precision of each product. An extension of the contract that may still change
// (policy_abi.h). plugin.hpp does not include this header.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/importer.hpp>
#include <harmonics/policy_abi.h>

namespace harmonics {

// The format to which operands of a product are rounded. Sums are f32.
enum class RoundTo : uint32_t { f32 = 0, fp16 = HX_SITE_FP16_CHUNKS, bf16 = HX_SITE_BF16, fp8 = HX_SITE_FP8 };

// A matrix product of a program. Its strings are valid during ProductPolicy::decide.
struct ProductSite {
  std::string_view op, path, phase;
  std::vector<hx_type> inputs, outputs;
  uint32_t roundings = 0;
  bool device_has(RoundTo rounding) const {
    return rounding == RoundTo::f32 || (roundings & static_cast<uint32_t>(rounding)) != 0;
  }
};

struct ProductPrecision {
  RoundTo rounding = RoundTo::f32;
  const char* activation_type = nullptr;  // "q8_0": rows of x are quantised; a literal
};

// Called from any thread, also concurrently.
class ProductPolicy {
 public:
  // Chooses the precision of a product; nullopt: that of the run. Equal products and settings must give equal results.
  virtual std::optional<ProductPrecision> decide(const ProductSite& product, const Arguments& settings) const = 0;
  virtual ~ProductPolicy() = default;
};

namespace detail {

HARMONICS_FACE inline const hx_policy_vt* policy_vt() {
  static const hx_policy_vt vt = {
      sizeof(hx_policy_vt),
      [](void* self, const hx_product* p, const hx_attributes* settings, hx_product_precision* out) {
        return guarded([&] {
          const ProductSite site{p->op,
                                 p->path,
                                 p->phase,
                                 {p->inputs, p->inputs + p->n_inputs},
                                 {p->outputs, p->outputs + p->n_outputs},
                                 p->roundings};
          const auto answer = object<ProductPolicy>(self).decide(site, Arguments(settings));
          if (!answer) return HX_DECLINED;
          out->rounding = static_cast<uint32_t>(answer->rounding);
          out->activation_type = answer->activation_type;
          return HX_OK;
        });
      },
      destroy<ProductPolicy>};
  return &vt;
}

}  // namespace detail

// Registers a policy. Returns false if the program does not support policies of this version.
HARMONICS_FACE inline bool register_policy(FunctionRegistry& registry, const std::string& name,
                                           std::shared_ptr<ProductPolicy> policy, const std::string& description = "",
                                           const std::vector<Argument>& settings = {}) {
  return detail::register_extended(registry, HX_POLICY_EXTENSION, HX_POLICY, "policy", name, std::move(policy),
                                   description, settings, detail::policy_vt());
}

}  // namespace harmonics
