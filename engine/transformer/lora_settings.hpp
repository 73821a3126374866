// How an adapter that is trained is made (Hu et al. 2021; DoRA: Liu et al. 2024).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

struct LoraSettings {
  int64_t rank = 8;
  double alpha = 16;   // the products' factor is alpha / rank
  double dropout = 0;  // of what the adapted maps read, in training
  // Modules by the names of PEFT: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, embed_tokens, lm_head,
  // router, experts; "all-linear": all linear maps but the head, routers and experts. Where a file has one weight for
  // several modules (qkv_proj), a module's own rows are adapted.
  std::vector<std::string> targets{"all-linear"};
  bool rslora = false;           // the factor is alpha / root of rank
  bool dora = false;             // trains the lengths of the weights' rows too
  std::string init = "kaiming";  // of A; or "gaussian". B begins as zeros
  uint64_t seed = 0;             // of A
  std::string from = {};         // an adapter whose matrices are trained further; it gives rank, alpha and targets

  double factor() const;  // alpha / rank, or by the root
};

// "rank=16, alpha=32, targets=q_proj+v_proj, dora": an entry without value is true. Throws ErrorKind::Usage with the
// nearest name, or the value and what it may be.
LoraSettings parse_lora(std::string_view text);
// Throws ErrorKind::Usage for values out of range.
void expect_lora(const LoraSettings& settings);

}  // namespace harmonics::engine
