#include "engine/model/type_mix.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

namespace {

// ---- roles of tensors

enum class TensorRole { output, embedding, joint, key_value, value, key, query, attention_output, down, other };

struct RoleRow {
  std::string_view part;  // of the name
  TensorRole role;
};
// The first row whose part occurs in the name applies.
constexpr RoleRow kRoles[] = {
    {"attn_qkv.weight", TensorRole::joint}, {"attn_kv_b.weight", TensorRole::key_value},
    {"attn_v.weight", TensorRole::value},   {"attn_k.weight", TensorRole::key},
    {"attn_q.weight", TensorRole::query},   {"attn_output.weight", TensorRole::attention_output},
    {"ffn_down", TensorRole::down}};

TensorRole role_of(std::string_view name) {
  if (name == "output.weight") return TensorRole::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return TensorRole::embedding;
  for (const RoleRow& row : kRoles)
    if (name.find(row.part) != std::string_view::npos) return row.role;
  return TensorRole::other;
}

// Returns whether the rules for values apply: joint projections contain values.
bool holds_values(TensorRole role) {
  return role == TensorRole::value || role == TensorRole::joint || role == TensorRole::key_value;
}

constexpr std::string_view kKept[] = {"_norm.weight",
                                      "ffn_gate_inp.weight",
                                      "ffn_gate_tid2eid.weight",
                                      "position_embd",
                                      "token_types",
                                      "altup",
                                      "laurel",
                                      "ssm_conv1d",
                                      "shortconv.conv.weight",
                                      "attn_rel_b.weight",
                                      "sam.pos_embd",
                                      "sam.neck.",
                                      "sam.net_",
                                      ".rel_pos",
                                      ".patch_embd",
                                      ".patch_merger",
                                      "time_mix_first",
                                      "time_mix_w",
                                      "time_mix_v0",
                                      "time_mix_v1",
                                      "time_mix_v2",
                                      "time_mix_a",
                                      "time_mix_g1",
                                      "time_mix_g2",
                                      "time_mix_decay_w",
                                      "time_mix_lerp_fused",
                                      "per_layer_model_proj",
                                      "indexer.k_proj",
                                      "indexer.q_proj",
                                      "a.rvq.codebook",
                                      "mm.a.code_embd"};

// ---- mixes and their rules

constexpr TypeMix kMixes[] = {
    {"f32", 0, DType::F32},      {"f16", 1, DType::F16},        {"bf16", 32, DType::BF16},
    {"q8_0", 7, DType::Q8_0},    {"q6_k", 18, DType::Q6_K},     {"q5_k_m", 17, DType::Q5_K},
    {"q5_k_s", 16, DType::Q5_K}, {"q5_1", 9, DType::Q5_1},      {"q5_0", 8, DType::Q5_0},
    {"q4_k_m", 15, DType::Q4_K}, {"q4_k_s", 14, DType::Q4_K},   {"q4_1", 3, DType::Q4_1},
    {"q4_0", 2, DType::Q4_0},    {"iq4_nl", 25, DType::IQ4_NL}, {"iq4_xs", 30, DType::IQ4_XS},
    {"mxfp4", 38, DType::MXFP4}, {"q3_k_l", 13, DType::Q3_K},   {"q3_k_m", 12, DType::Q3_K},
    {"q3_k_s", 11, DType::Q3_K}, {"q2_k", 10, DType::Q2_K},     {"q2_k_s", 21, DType::Q2_K},
};

// Where a rule applies. Positions are counted among the tensors of the role; fractions are of the layers.
enum class Where {
  everywhere,
  first_two,
  first_four,
  first_eighth,
  first_sixteenth,
  sensitive,  // the first and the last eighth, and every third tensor between them
  grouped,    // at least four query heads per key-value head
};

struct MixRule {
  std::string_view mix;
  TensorRole role;
  Where where;
  DType type;
  // Whether the rule requires column importance, or its absence.
  enum class Importance { any, with, without } importance = Importance::any;
};

using Given = MixRule::Importance;
// The first matching rule applies.
constexpr MixRule kRules[] = {
    {"q2_k", TensorRole::value, Where::grouped, DType::Q4_K},
    {"q2_k", TensorRole::value, Where::everywhere, DType::Q3_K},
    {"q2_k", TensorRole::down, Where::everywhere, DType::Q3_K},
    {"q2_k", TensorRole::attention_output, Where::everywhere, DType::Q3_K},
    {"q2_k_s", TensorRole::value, Where::grouped, DType::Q4_K},
    {"q2_k_s", TensorRole::down, Where::first_eighth, DType::Q4_K},
    {"q3_k_m", TensorRole::value, Where::first_two, DType::Q5_K},
    {"q3_k_m", TensorRole::value, Where::everywhere, DType::Q4_K},
    {"q3_k_m", TensorRole::down, Where::first_sixteenth, DType::Q5_K},
    {"q3_k_m", TensorRole::down, Where::everywhere, DType::Q4_K},
    {"q3_k_m", TensorRole::attention_output, Where::everywhere, DType::Q4_K},
    {"q3_k_l", TensorRole::value, Where::everywhere, DType::Q5_K},
    {"q3_k_l", TensorRole::down, Where::everywhere, DType::Q5_K},
    {"q3_k_l", TensorRole::attention_output, Where::everywhere, DType::Q5_K},
    {"q4_k_s", TensorRole::value, Where::first_four, DType::Q5_K},
    {"q4_k_s", TensorRole::down, Where::first_eighth, DType::Q5_K},
    {"q4_k_m", TensorRole::value, Where::sensitive, DType::Q6_K},
    {"q4_k_m", TensorRole::down, Where::sensitive, DType::Q6_K},
    {"q5_k_m", TensorRole::value, Where::sensitive, DType::Q6_K},
    {"q5_k_m", TensorRole::down, Where::sensitive, DType::Q6_K},
    {"iq4_nl", TensorRole::value, Where::grouped, DType::Q5_K},
    {"iq4_xs", TensorRole::value, Where::grouped, DType::Q5_K},
    {"iq4_nl", TensorRole::down, Where::first_eighth, DType::Q5_K, Given::without},
    {"iq4_xs", TensorRole::down, Where::first_eighth, DType::Q5_K, Given::without},
    {"q4_0", TensorRole::down, Where::first_eighth, DType::Q4_1, Given::with},
    {"q5_0", TensorRole::down, Where::first_eighth, DType::Q5_1, Given::with},
};

// Mixes that use 5 bits for the attention output of models with eight experts, where attention is a small part of the
// weights.
constexpr std::string_view kFiveBitOutputs[] = {"q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "iq4_nl", "iq4_xs"};

struct FallbackRow {
  DType from, to;
};
// From types with blocks of 256 elements to types with blocks of 32.
constexpr FallbackRow kFallbacks[] = {{DType::IQ4_XS, DType::IQ4_NL}, {DType::Q2_K, DType::Q4_0},
                                      {DType::Q3_K, DType::Q4_0},     {DType::Q4_K, DType::Q5_0},
                                      {DType::Q5_K, DType::Q5_1},     {DType::Q6_K, DType::Q8_0}};

bool fits_rows(const GgufTensor& tensor, DType dtype) {
  return tensor.shape.back() % static_cast<uint64_t>(element_type(dtype).block) == 0;
}

MixedType fitting(const GgufTensor& tensor, DType dtype) {
  if (fits_rows(tensor, dtype)) return {dtype};
  for (const FallbackRow& row : kFallbacks)
    if (row.from == dtype && fits_rows(tensor, row.to)) return {row.to, true};
  return {DType::F16, true};
}

int64_t layer_of(std::string_view name) {  // -1: none
  constexpr std::string_view kBlock = "blk.";
  int64_t layer = -1;
  if (name.substr(0, kBlock.size()) == kBlock)
    std::from_chars(name.data() + kBlock.size(), name.data() + name.size(), layer);
  return layer;
}

// Position of a tensor among those of its role, in layer order.
struct Place {
  int64_t index = 0, count = 0;
};

bool is_at(Where where, Place value, int64_t layers, bool grouped) {
  const int64_t i = value.index;
  switch (where) {
    case Where::everywhere:
      return true;
    case Where::first_two:
      return i < 2;
    case Where::first_four:
      return i < 4;
    case Where::first_eighth:
      return i < layers / 8;
    case Where::first_sixteenth:
      return i < layers / 16;
    case Where::sensitive:
      return i < value.count / 8 || i >= 7 * value.count / 8 || (i - value.count / 8) % 3 == 2;
    case Where::grouped:
      return grouped;
  }
  return false;
}

class Mixing {
 public:
  Mixing(const TypeMix& mix, const MixedModel& model, const TypeOverrides& overrides, bool importance)
      : mix_(mix), model_(model), overrides_(overrides), importance_(importance) {}

  DType type_of(const GgufTensor& tensor, Place place, bool tied) const {
    const TensorRole role = role_of(tensor.name);
    if (role == TensorRole::embedding && overrides_.token_embedding) return *overrides_.token_embedding;
    if (role == TensorRole::output && overrides_.output) return *overrides_.output;
    for (const auto& [pattern, dtype] : overrides_.tensors)
      if (fits_pattern(pattern, tensor.name)) return dtype;
    const bool blocks = element_type(mix_.base).block > 1;
    if (!blocks || overrides_.pure || mix_.base == DType::MXFP4) return mix_.base;
    if (role == TensorRole::output || (tied && role == TensorRole::embedding)) return type_of_scores(tensor);
    if (model_.experts == 8)
      if (const auto found = type_beside_experts(role)) return *found;
    const DType found = type_by_rule(role, place);
    // In large models with grouped heads the value projections are a small part of the weights.
    const bool large = model_.layers == 80 && model_.heads > model_.key_heads &&
                       (model_.architecture == "llama" || model_.architecture == "qwen2");
    if (large && holds_values(role) && (found == DType::Q3_K || found == DType::Q4_K)) return DType::Q5_K;
    return found;
  }

 private:
  DType type_of_scores(const GgufTensor& tensor) const {
    if (overrides_.output) return *overrides_.output;
    if (mix_.base == DType::Q8_0 || !fits_rows(tensor, mix_.base) || model_.architecture == "falcon")
      return DType::Q8_0;
    return DType::Q6_K;
  }

  std::optional<DType> type_beside_experts(TensorRole role) const {
    if (holds_values(role) || role == TensorRole::key) return DType::Q8_0;
    if (role != TensorRole::attention_output) return std::nullopt;
    const auto* end = std::end(kFiveBitOutputs);
    return std::find(std::begin(kFiveBitOutputs), end, mix_.name) != end ? DType::Q5_K : mix_.base;
  }

  DType type_by_rule(TensorRole role, Place place) const {
    const TensorRole ruled = holds_values(role) ? TensorRole::value : role;
    const bool grouped = model_.key_heads > 0 && model_.heads / model_.key_heads >= 4;
    for (const MixRule& rule : kRules) {
      if (rule.mix != mix_.name || rule.role != ruled || !is_at(rule.where, place, model_.layers, grouped)) continue;
      if (rule.importance == Given::any || (rule.importance == Given::with) == importance_) return rule.type;
    }
    return mix_.base;
  }

  const TypeMix& mix_;
  const MixedModel& model_;
  const TypeOverrides& overrides_;
  const bool importance_;
};

// Returns the positions of value and down projections, which rules depend on. With experts, a layer has several down
// projections, whose position is the layer.
std::vector<Place> places_of(const std::vector<const GgufTensor*>& tensors, const MixedModel& model) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(layer_of(tensors[a]->name), tensors[a]->name) <
           std::tuple(layer_of(tensors[b]->name), tensors[b]->name);
  });
  std::vector<Place> places(tensors.size());
  int64_t values = 0, downs = 0;
  for (const size_t i : order) {
    const TensorRole role = role_of(tensors[i]->name);
    if (holds_values(role)) places[i].index = values++;
    if (role != TensorRole::down || !is_quantizable(*tensors[i])) continue;
    const int64_t layer = layer_of(tensors[i]->name);
    places[i] = {model.experts > 1 && layer >= 0 ? layer : downs, model.layers};
    ++downs;
  }
  for (const size_t i : order)
    if (holds_values(role_of(tensors[i]->name))) places[i].count = values;
  return places;
}

}  // namespace

const std::vector<TypeMix>& type_mixes() {
  static const std::vector<TypeMix> all(std::begin(kMixes), std::end(kMixes));
  return all;
}

std::vector<std::string> type_mix_names() {
  std::vector<std::string> names;
  for (const TypeMix& mix : kMixes) names.emplace_back(mix.name);
  for (const char* medium : {"q5_k", "q4_k", "q3_k"}) names.emplace_back(medium);
  return names;
}

const TypeMix& type_mix_named(std::string_view name) {
  const std::string medium = std::string(name) + "_m";
  for (const TypeMix& mix : kMixes)
    if (mix.name == name || mix.name == medium) return mix;
  Error error(ErrorKind::Usage, fmt::format("there is no mix of types '{}'", name));
  if (const std::string meant = did_you_mean(std::string(name), type_mix_names()); !meant.empty()) error.note(meant);
  throw error;
}

MixedModel MixedModel::of(const GgufFile& file) {
  MixedModel model;
  if (const GgufValue* value = file.find("general.architecture"))
    if (const auto text = value->text()) model.architecture = std::string(*text);
  const auto number = [&](const char* key) -> int64_t {
    const GgufValue* value = file.find(model.architecture + "." + key);
    if (!value) return 0;
    if (const auto list = value->integers()) return list->empty() ? 0 : list->front();  // one number per layer
    return std::max<int64_t>(0, value->integer().value_or(0));
  };
  model.layers = number("block_count");
  model.heads = number("attention.head_count");
  model.key_heads = number("attention.head_count_kv");
  if (model.key_heads == 0) model.key_heads = model.heads;
  model.experts = number("expert_count");
  return model;
}

bool is_quantizable(const GgufTensor& tensor) {
  constexpr std::string_view kEnd = "weight";
  const std::string_view name = tensor.name;
  const auto axes = std::count_if(tensor.shape.begin(), tensor.shape.end(), [](uint64_t length) { return length > 1; });
  if (tensor.shape.size() < 2 || axes < 1 || name.size() < kEnd.size() ||
      name.substr(name.size() - kEnd.size()) != kEnd)
    return false;
  if (std::all_of(tensor.shape.begin(), tensor.shape.end() - 1, [](uint64_t length) { return length == 1; }))
    return false;  // a single row
  return std::none_of(std::begin(kKept), std::end(kKept),
                      [&](std::string_view kept) { return name.find(kept) != std::string_view::npos; });
}

bool fits_pattern(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, after = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<std::optional<MixedType>> mixed_types(const TypeMix& mix, const MixedModel& model,
                                                  const std::vector<const GgufTensor*>& tensors,
                                                  const TypeOverrides& overrides, bool importance) {
  const bool tied = std::none_of(tensors.begin(), tensors.end(),
                                 [](const GgufTensor* tensor) { return tensor->name == "output.weight"; });
  const std::vector<Place> places = places_of(tensors, model);
  const Mixing mixing(mix, model, overrides, importance);
  std::vector<std::optional<MixedType>> types;
  for (size_t i = 0; i < tensors.size(); ++i)
    types.push_back(is_quantizable(*tensors[i])
                        ? std::optional(fitting(*tensors[i], mixing.type_of(*tensors[i], places[i], tied)))
                        : std::nullopt);
  return types;
}

}  // namespace harmonics::engine
