// The CPU device: maps call sites to kernels.
#include <dnnl.h>
#include <harmonics/plugin.hpp>

#include "families.hpp"
#include "rounded_product.hpp"

HARMONICS_PLUGIN("harmonics.cpu", "0.1.0", "Apache-2.0", "Harmonics");

namespace harmonics::cpu {
namespace {

const kernels::PlanTable<Plan>& plans() {
  static const kernels::PlanTable<Plan> table = [] {
    kernels::PlanTable<Plan> t;
#define HM_FAMILY(name) t.add(name##_plans());
#include "families.inc"
#undef HM_FAMILY
    return t;
  }();
  return table;
}

// Sites with empty tensors are left to the reference kernels.
bool has_elements(const Site& site) {
  for (uint32_t i = 0; i < site.workspace(); ++i)
    if (count(site.buffer(i)) == 0) return false;
  return true;
}

bool takes_stored(std::string_view op) {
  return op == "cast" || op == "linear" || op == "grouped_linear" || op == "embedding" || op == "attention" ||
         op == "cache_append";
}

class CpuDevice final : public Device {
 public:
  CpuDevice() { half_routines(), bf16_routines(); }
  bool has_fp16_chunks() const override { return half_routines() != nullptr; }
  uint32_t roundings() const override {
    return (has_fp16_chunks() ? uint32_t{HX_SITE_FP16_CHUNKS} : 0) | (bf16_routines() ? uint32_t{HX_SITE_BF16} : 0);
  }
  std::string describe() const override {
    const dnnl_version_t* v = dnnl_version();
    return std::string("CPU, ") + isa().name + ", oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) +
           "." + std::to_string(v->patch) + (half_routines() == &half::emulated ? ", fp16 emulated" : "") +
           (bf16_routines() == &bf16::emulated ? ", bf16 emulated" : "");
  }
  bool find(const hx_call_site& raw, hx_kernel& out) override {
    const Site site(raw);
    const Plan plan = plans().find(site.op());
    if (!plan || !has_elements(site)) return false;
    if (site.has_stored() && !takes_stored(site.op())) return declined("does not support stored element types");
    return plan(site, out);
  }
};

}  // namespace
}  // namespace harmonics::cpu

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  registry.register_device("cpu", std::make_shared<harmonics::cpu::CpuDevice>(),
                           "vector kernels and oneDNN on this processor");
}
