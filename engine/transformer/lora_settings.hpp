// Settings of an adapter to train (LoRA: Hu et al. 2021; DoRA: Liu et al. 2024).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

struct LoraSettings {
  int64_t rank = 8;
  double alpha = 16;   // the scale is alpha / rank
  double dropout = 0;  // dropout rate of the adapters' inputs in training
  // Modules by PEFT name: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, embed_tokens, lm_head, router,
  // experts. "all-linear": all linear maps except the head, routers and experts. If a file has one weight for several
  // modules (qkv_proj), only the module's rows are adapted.
  std::vector<std::string> targets{"all-linear"};
  bool rslora = false;           // the scale is alpha / sqrt(rank)
  bool dora = false;             // also trains the norms of the weights' rows
  std::string init = "kaiming";  // initialisation of A; or "gaussian". B is initialised with zeros
  uint64_t seed = 0;             // seed of A
  std::string from = {};         // adapter to continue training; determines rank, alpha and targets

  double factor() const;  // the scale
};

// Parses "rank=16, alpha=32, targets=q_proj+v_proj, dora"; an entry without value is true. Throws ErrorKind::Usage for
// unknown names, with the nearest one, and for invalid values, with the valid ones.
LoraSettings parse_lora(std::string_view text);
// Throws ErrorKind::Usage for values out of range.
void expect_lora(const LoraSettings& settings);

}  // namespace harmonics::engine
