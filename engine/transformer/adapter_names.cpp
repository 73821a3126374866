#include "engine/transformer/adapter_names.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "engine/transformer/spec_trace.hpp"

namespace harmonics::engine {

namespace {

// Modules of a layer, and the names of their weights in GGUF. If several modules have the same weight, the first row
// applies whose `bert` and `fused` match the model and the weight.
struct ModuleRow {
  std::string_view module, weight;
  bool bert = false, fused = false;
};
constexpr ModuleRow kModules[] = {{"self_attn.q_proj", "attn_q"},
                                  {"self_attn.k_proj", "attn_k"},
                                  {"self_attn.v_proj", "attn_v"},
                                  {"self_attn.o_proj", "attn_output"},
                                  {"self_attn.qkv_proj", "attn_qkv", false, true},
                                  {"mlp.gate_proj", "ffn_gate"},
                                  {"mlp.up_proj", "ffn_up"},
                                  {"mlp.down_proj", "ffn_down"},
                                  {"mlp.gate_up_proj", "ffn_up", false, true},
                                  {"mlp.gate", "ffn_gate_inp"},
                                  {"mlp.experts.{e}.gate_proj", "ffn_gate_exps"},
                                  {"mlp.experts.{e}.up_proj", "ffn_up_exps"},
                                  {"mlp.experts.{e}.down_proj", "ffn_down_exps"},
                                  {"block_sparse_moe.gate", "ffn_gate_inp"},
                                  {"block_sparse_moe.experts.{e}.w1", "ffn_gate_exps"},
                                  {"block_sparse_moe.experts.{e}.w3", "ffn_up_exps"},
                                  {"block_sparse_moe.experts.{e}.w2", "ffn_down_exps"},
                                  {"attention.self.query", "attn_q", true},
                                  {"attention.self.key", "attn_k", true},
                                  {"attention.self.value", "attn_v", true},
                                  {"attention.output.dense", "attn_output", true},
                                  {"intermediate.dense", "ffn_up", true},
                                  {"output.dense", "ffn_down", true}};
constexpr std::string_view kLayers[] = {"model.layers.", "layers.", "bert.encoder.layer.", "encoder.layer."};
constexpr std::string_view kWeight = ".weight", kBlock = "blk.";
constexpr std::string_view kTable = "token_embd.weight", kHead = "output.weight";

// The modules whose rows a fused weight concatenates.
struct FusedRow {
  std::string_view weight;
  std::vector<std::string_view> parts;
};
const std::vector<FusedRow>& fused_rows() {
  static const std::vector<FusedRow> kRows = {{"attn_qkv", {"q_proj", "k_proj", "v_proj"}},
                                              {"ffn_up", {"gate_proj", "up_proj"}}};
  return kRows;
}

std::string_view last_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// Splits "blk.3.attn_q.weight" into layer "3" and "attn_q"; returns empty texts for other names.
std::pair<std::string_view, std::string_view> of_block(std::string_view key) {
  if (!key.starts_with(kBlock) || !key.ends_with(kWeight)) return {};
  key.remove_prefix(kBlock.size());
  key.remove_suffix(std::min(kWeight.size(), key.size()));
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return {};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

// Returns the slices that steps take of a map's result if they cover it completely, otherwise nothing.
std::vector<std::pair<int64_t, int64_t>> whole_parts(const TracedMap& map, int64_t rows) {
  int64_t end = 0;
  for (const auto& [from, to] : map.parts) {
    if (from != end) return {};
    end = to;
  }
  if (end != rows) return {};
  return map.parts;
}

class Targets {
 public:
  explicit Targets(const ResolvedSpec& resolved) : resolved_(resolved) {
    const std::vector<std::string>& names = resolved.spec().architectures;
    bert_ = std::find(names.begin(), names.end(), "bert") != names.end();
  }

  std::vector<AdapterTarget> all() {
    for (const TracedMap& map : resolved_.maps()) {
      const auto weight = resolved_.weights().find(map.key);
      if (weight == resolved_.weights().end() || weight->second.parameter.empty() || weight->second.shape.rank() != 2 ||
          !known_.insert(map.key).second)
        continue;
      add(map, weight->second);
    }
    return std::move(all_);
  }

 private:
  void add(const TracedMap& map, const BoundWeight& weight) {
    AdapterTarget target;
    target.key = map.key;
    target.x = map.x;
    target.looked_up = map.looked_up;
    target.whole = target.rows = weight.shape[weight.transposed ? 1 : 0];
    target.width = weight.shape[weight.transposed ? 0 : 1];
    const auto [layer, part] = of_block(map.key);
    const FusedRow* fused = nullptr;
    const auto slices = whole_parts(map, target.whole);
    for (const FusedRow& row : fused_rows())
      if (row.weight == part && row.parts.size() == slices.size()) fused = &row;
    target.experts = weight.experts;
    target.module = {module_of(map.key, layer, part, fused != nullptr), 0, target.whole};
    if (!target.module.name.empty()) target.name = last_of(target.module.name);
    if (const auto said = resolved_.modules().find(map.key);
        said != resolved_.modules().end() && !said->second.name.empty())
      target.module = said->second;
    if (target.module.name.empty()) return;
    if (target.name.empty()) target.name = last_of(target.module.name);
    if (target.looked_up) target.name = "embed_tokens";
    if (part == "ffn_gate_inp") target.name = "router";
    if (target.experts) target.name = "experts";
    if (map.key == kHead) target.name = "lm_head";
    target.other = last_of(target.module.name);
    target.by_default = !target.looked_up && target.name != "router" && !target.experts && target.name != "lm_head";
    all_.push_back(target);
    target.other = {};
    for (size_t i = 0; fused && i < slices.size(); ++i) {
      target.name = fused->parts[i];
      target.from = slices[i].first;
      target.rows = slices[i].second - slices[i].first;
      target.by_default = false;
      all_.push_back(target);
    }
  }

  std::string module_of(std::string_view key, std::string_view layer, std::string_view part, bool fused) const {
    if (key == kTable) return bert_ ? "embeddings.word_embeddings" : "model.embed_tokens";
    if (key == kHead) return "lm_head";
    if (!part.empty()) {
      for (const ModuleRow& row : kModules)
        if (row.weight == part && row.bert == bert_ && row.fused == fused)
          return fmt::format("{}{}.{}", bert_ ? "encoder.layer." : "model.layers.", layer, row.module);
      return "";
    }
    // The file uses the names of Hugging Face.
    return key.ends_with(kWeight) ? std::string(key.substr(0, key.size() - kWeight.size())) : std::string();
  }

  const ResolvedSpec& resolved_;
  bool bert_ = false;
  std::set<std::string> known_;
  std::vector<AdapterTarget> all_;
};

}  // namespace

std::string weight_of_module(std::string_view module) {
  if (module == "lm_head") return std::string(kHead);
  if (module == "model.embed_tokens" || module == "embeddings.word_embeddings") return std::string(kTable);
  for (const std::string_view begin : kLayers) {
    if (!module.starts_with(begin)) continue;
    const std::string_view rest = module.substr(begin.size());
    const size_t dot = rest.find('.');
    if (dot == 0 || dot == std::string_view::npos || dot > 6) return "";
    const std::string_view layer = rest.substr(0, dot), part = rest.substr(dot + 1);
    if (layer.find_first_not_of("0123456789") != std::string_view::npos) return "";
    for (const ModuleRow& row : kModules)
      if (part == row.module) return fmt::format("blk.{}.{}.weight", layer, row.weight);
    return "";
  }
  return "";
}

int64_t WeightModule::place_of(int64_t row, int64_t weight_rows) const {
  if (heads == 0) return from + row;
  const int64_t part_rows = weight_rows / parts, of_head = part_rows / heads, all = rows / part_rows,
                part = (from + row) / part_rows, in_part = row % part_rows;
  return (in_part / of_head * all + part) * of_head + in_part % of_head;
}

std::map<std::string, WeightModule> modules_of_folder(const ResolvedSpec& resolved, const ModelMetadata& metadata) {
  constexpr std::string_view kLayer = "{i}";
  std::map<std::string, const specs::FolderModule*> by_pattern;
  for (const specs::FolderModule& row : resolved.spec().folder_modules) by_pattern.emplace(row.tensor, &row);
  std::map<std::string, WeightModule> all;
  for (const auto& [key, weight] : resolved.weights()) {
    if (weight.shape.rank() != 2) continue;
    const auto [layer, part] = of_block(key);
    const std::string pattern = part.empty() ? key : fmt::format("{}{}.{}{}", kBlock, kLayer, part, kWeight);
    const auto found = by_pattern.find(pattern);
    if (found == by_pattern.end()) continue;
    const specs::FolderModule& row = *found->second;
    WeightModule module{row.name, 0, weight.shape[weight.transposed ? 1 : 0]};
    if (const size_t at = module.name.find(kLayer); at != std::string::npos)
      module.name.replace(at, kLayer.size(), layer);
    if (!row.by_head.empty()) {
      module.parts = 3;
      module.heads = metadata.integer(metadata.text("general.architecture", std::string()) + "." + row.by_head);
      if (module.heads < 1 || module.rows % (module.parts * module.heads) != 0) continue;
    }
    module.has_adjacent_pairs = row.has_adjacent_pairs;
    if (resolved.spec().renames_modules) module.older = std::exchange(module.name, "");
    all.emplace(key, std::move(module));
  }
  return all;
}

std::vector<ModuleWeight> weights_of_module(std::string_view module, const ResolvedSpec& resolved) {
  constexpr std::string_view kExperts = ".experts.";
  constexpr size_t kMostDigits = 6;
  std::string pattern(module);
  int64_t expert = -1;
  if (const size_t at = pattern.find(kExperts); at != std::string::npos) {
    const size_t from = at + kExperts.size(),
                 to = std::min(pattern.find_first_not_of("0123456789", from), pattern.size());
    if (to > from && to - from <= kMostDigits) {
      expert = std::stoll(pattern.substr(from, to - from));
      pattern.replace(from, to - from, "{e}");
    }
  }
  std::vector<ModuleWeight> all;
  // Adapters of a model without its head lack the first part of each name.
  const auto is_meant = [&](const std::string& name) {
    return name == pattern || (name.ends_with(pattern) && name[name.size() - pattern.size() - 1] == '.' &&
                               pattern.find_first_of("0123456789") != std::string::npos);
  };
  for (const auto& [key, said] : resolved.modules())
    if (is_meant(said.name) || is_meant(said.older)) all.push_back({key, expert, said});
  if (!all.empty()) return all;
  const std::string same = pattern + std::string(kWeight);
  const std::string key = resolved.weights().count(same) ? same : weight_of_module(pattern);
  if (!key.empty()) all.push_back({key, expert});
  return all;
}

std::vector<AdapterTarget> adapter_targets(const ResolvedSpec& resolved) { return Targets(resolved).all(); }

int64_t width_of_adjacent_pairs(const ResolvedSpec& resolved, const std::string& key) {
  const auto said = resolved.modules().find(key);
  const bool adjacent = said != resolved.modules().end()
                            ? said->second.has_adjacent_pairs
                            : key.ends_with("attn_q.weight") || key.ends_with("attn_k.weight");
  if (!adjacent) return 0;
  bool interleaved = false;
  for (const auto& [name, rope] : resolved.spec().ropes)
    if (const auto pairing = rope.fields.find("pairing"); pairing != rope.fields.end())
      interleaved |= resolved.variables().text(specs::text_of(pairing->second), rope.place) == "interleaved";
  if (!interleaved) return 0;
  for (const specs::Tensor& tensor : resolved.spec().tensors) {
    if (tensor.role != "cache") continue;
    LocalValues first;
    if (tensor.repeat) first[tensor.repeat->variable] = 0;
    return cache_type(resolved, tensor, first, {1, 1, 1}, DType::F32).shape.back();
  }
  return 0;
}

}  // namespace harmonics::engine
