// The CPU device: maps call sites to kernels.
#include <unordered_map>

#include <dnnl.h>
#include <harmonics/plugin.hpp>

#include "bf16_product.hpp"
#include "families.hpp"
#include "half_product.hpp"

HARMONICS_PLUGIN("harmonics.cpu", "0.1.0", "Apache-2.0", "Harmonics");

namespace harmonics::cpu {
namespace {

const std::unordered_map<std::string_view, Plan>& plans() {
  static const std::unordered_map<std::string_view, Plan> table = {
#define HM_ROW(name, operands) {#name, plan_elementwise},
      HM_SCALAR_OPS(HM_ROW)
#undef HM_ROW
          {"reshape", plan_elementwise},
      {"fused_elementwise", plan_chain},
      {"fused_reduce", plan_fused_reduce},
      {"dropout", plan_dropout},
      {"dropout_grad", plan_dropout},
      {"transpose", plan_transpose},
      {"broadcast", plan_broadcast},
      {"slice", plan_slice},
      {"reverse", plan_reverse},
      {"pad", plan_pad},
      {"concat", plan_concat},
      {"bitcast", plan_bitcast},
      {"full", plan_full},
      {"iota", plan_iota},
      {"random_uniform", plan_random_uniform},
      {"reduce_sum", plan_reduce},
      {"reduce_max", plan_reduce},
      {"reduce_min", plan_reduce},
      {"reduce_prod", plan_reduce},
      {"argmax", plan_arg_extreme},
      {"argmin", plan_arg_extreme},
      {"cumsum", plan_cumsum},
      {"reduce_window", plan_window},
      {"reduce_window_grad", plan_window_grad},
      {"dot", plan_dot},
      {"dot_add", plan_dot_add},
      {"linear", plan_any_linear},
      {"softmax", plan_softmax},
      {"log_softmax", plan_softmax},
      {"softmax_grad", plan_softmax},
      {"log_softmax_grad", plan_softmax},
      {"softmax_cross_entropy", plan_softmax_cross_entropy},
      {"softmax_cross_entropy_grad", plan_softmax_cross_entropy},
      {"sgd_outer", plan_sgd_outer},
      {"update_outer", plan_update_outer},
      {"sgd", plan_optimizer},
      {"adam", plan_optimizer},
      {"adamw", plan_optimizer},
      {"rmsprop", plan_rmsprop},
      {"lion", plan_optimizer},
      {"lamb", plan_lamb},
      {"global_norm", plan_global_norm},
      {"layer_norm", plan_row_norm},
      {"layer_norm_grad", plan_row_norm},
      {"rms_norm", plan_row_norm},
      {"rms_norm_grad", plan_row_norm},
      {"batch_norm", plan_batch_norm},
      {"batch_norm_grad", plan_batch_norm},
      {"group_norm", plan_group_norm},
      {"group_norm_grad", plan_group_norm},
      {"lstm_scan", plan_recurrent},
      {"lstm_scan_grad", plan_recurrent},
      {"gru_scan", plan_recurrent},
      {"gru_scan_grad", plan_recurrent},
      {"conv", plan_convolution},
      {"conv_grad_input", plan_convolution},
      {"conv_grad_weight", plan_convolution},
      {"conv_max_pool", plan_pooled_convolution},
      {"conv_max_pool_grad_input", plan_pooled_convolution},
      {"conv_max_pool_grad_weight", plan_pooled_convolution},
      {"max_pool", plan_pool},
      {"max_pool_grad", plan_pool},
      {"avg_pool", plan_pool},
      {"avg_pool_grad", plan_pool},
      {"patches", plan_patches},
      {"unpatches", plan_patches},
      {"quantize", plan_quantize},
      {"dequantize", plan_quantize},
      {"attention", plan_attention},
      {"attention_grad", plan_attention},
      {"rope", plan_rope},
      {"cache_append", plan_cache_append},
      {"gather", plan_gather},
      {"embedding", plan_gather},
      {"scatter_add", plan_scatter_add},
      {"gather_nd", plan_gather_nd},
      {"scatter_nd", plan_scatter_nd},
      {"dynamic_slice", plan_dynamic_slice},
      {"update_slice", plan_update_slice},
      {"top_k", plan_top_k},
      {"sort", plan_sort},
      {"embedding_grad", plan_embedding_grad},
  };
  return table;
}

// Empty tensors are computed by the reference.
bool has_elements(const Site& site) {
  for (uint32_t i = 0; i < site.workspace(); ++i)
    if (count(site.buffer(i)) == 0) return false;
  return true;
}

bool takes_stored(std::string_view op) {
  return op == "linear" || op == "embedding" || op == "attention" || op == "cache_append";
}

class CpuDevice final : public Device {
 public:
  CpuDevice() { half_product(), bf16_routines(); }
  bool has_fp16_chunks() const override { return half_product() != nullptr; }
  uint32_t roundings() const override {
    return (has_fp16_chunks() ? uint32_t{HX_SITE_FP16_CHUNKS} : 0) | (bf16_routines() ? uint32_t{HX_SITE_BF16} : 0);
  }
  std::string describe() const override {
    const dnnl_version_t* v = dnnl_version();
    return std::string("CPU, ") + isa().name + ", oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) +
           "." + std::to_string(v->patch) + (half_product() == half::emulated ? ", fp16 emulated" : "") +
           (bf16_routines() == &bf16::emulated ? ", bf16 emulated" : "");
  }
  bool find(const hx_call_site& raw, hx_kernel& out) override {
    const Site site(raw);
    const auto plan = plans().find(site.op());
    if (plan == plans().end() || !has_elements(site)) return false;
    if (site.has_stored() && !takes_stored(site.op())) return declined("does not support stored element types");
    return plan->second(site, out);
  }
};

}  // namespace
}  // namespace harmonics::cpu

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  registry.register_device("cpu", std::make_shared<harmonics::cpu::CpuDevice>(),
                           "vector kernels and oneDNN on this processor");
}
