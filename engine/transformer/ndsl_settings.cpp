#include "engine/transformer/ndsl_settings.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kLargestSize = int64_t{1} << 31;

const NdslKey* ndsl_key(const std::string& name) {
  for (const NdslKey& key : ndsl_keys()) {
    if (name == key.name) return &key;
    for (const char* synonym : key.synonyms)
      if (name == synonym) return &key;
  }
  return nullptr;
}

const char* kind_of_key(NdslKey::Kind kind) {
  switch (kind) {
    case NdslKey::Kind::whole:
      return "a whole number";
    case NdslKey::Kind::real:
      return "a number";
    case NdslKey::Kind::truth:
      return "true or false";
    case NdslKey::Kind::text:
      return "a string";
    case NdslKey::Kind::list:
      return "a list";
    case NdslKey::Kind::map:
      break;
  }
  return "a map";
}

bool fits(NdslKey::Kind kind, const document::Node& node) {
  switch (kind) {
    case NdslKey::Kind::whole:
      return document::whole_of(node).has_value();
    case NdslKey::Kind::real:
      return document::real_of(node).has_value();
    case NdslKey::Kind::truth:
      return document::truth_of(node).has_value();
    case NdslKey::Kind::text:
      return node.kind == document::Kind::scalar;
    case NdslKey::Kind::list:
      return node.kind == document::Kind::list;
    case NdslKey::Kind::map:
      break;
  }
  return node.kind == document::Kind::map;
}

// Replaces 'dropout' by all kinds of dropout that the level lacks.
void spread_dropout(NdslLevel& level) {
  const auto all = level.extract("dropout");
  if (all.empty()) return;
  for (const char* kind : {"attention_dropout", "residual_dropout", "embedding_dropout"})
    level.emplace(kind, all.mapped());
}

}  // namespace

const std::vector<NdslKey>& ndsl_keys() {
  using K = NdslKey::Kind;
  static const std::vector<NdslKey> kRows = {
      {"vocab_size", K::whole},
      {"hidden_size", K::whole, {"n_embd", "d_model"}},
      {"num_layers", K::whole, {"num_hidden_layers", "n_layer"}},
      {"num_query_heads", K::whole, {"num_attention_heads", "n_head"}, true},
      {"num_kv_heads", K::whole, {"num_key_value_heads"}, true},
      {"head_dim", K::whole, {}, true},
      {"intermediate_size", K::whole, {"n_inner", "ffn_hidden_size"}, true},
      {"max_position_embeddings", K::whole, {"n_positions"}},
      {"type_vocab_size", K::whole},
      {"rms_norm_eps", K::real, {}, true},
      {"layer_norm_eps", K::real, {"layer_norm_epsilon"}, true},
      {"eps", K::real, {"epsilon"}, true},
      {"unit_offset", K::truth, {}, true},
      {"norm_bias", K::truth, {}, true},
      {"rope_theta", K::real, {"rotary_emb_base", "rope_base"}, true},
      {"rope_local_theta", K::real, {"rope_local_base_freq"}, true},
      {"rope_scaling", K::map, {}, true},
      {"original_max_position_embeddings", K::real, {}, true},
      {"rope_parameters", K::map},
      {"rope_pairing", K::text, {}, true},
      {"partial_rotary_factor", K::real, {"rotary_pct"}, true},
      {"use_qk_norm", K::truth, {}, true},
      {"use_qkv_bias", K::truth, {"qkv_bias"}, true},
      {"use_out_bias", K::truth, {}, true},
      {"attention_bias", K::truth, {}, true},
      {"use_mlp_bias", K::truth, {"mlp_bias"}, true},
      {"causal", K::truth, {}, true},
      {"sliding_window", K::whole, {}, true},
      {"use_sliding_window", K::truth},
      {"max_window_layers", K::whole},
      {"sliding_window_pattern", K::whole},
      {"layer_types", K::list},
      {"query_pre_attn_scalar", K::real, {}, true},
      {"scale_attn_weights", K::truth, {}, true},
      {"scale_attn_by_inverse_layer_idx", K::truth, {}, true},
      {"attn_logit_softcapping", K::real, {}, true},
      {"final_logit_softcapping", K::real},
      {"dropout", K::real},
      {"attention_dropout", K::real, {"attn_pdrop", "attention_probs_dropout_prob"}, true},
      {"residual_dropout", K::real, {"resid_pdrop", "resid_dropout", "hidden_dropout", "hidden_dropout_prob"}, true},
      {"embedding_dropout", K::real, {"embd_pdrop", "embed_pdrop"}},
      {"above", K::real, {}, true},
      {"hidden_act", K::text, {"hidden_activation", "activation_function", "activation"}, true},
      {"attention_sinks", K::truth, {}, true},
      {"num_experts", K::whole, {"num_local_experts", "n_routed_experts"}, true},
      {"num_experts_per_tok", K::whole, {"top_k"}, true},
      {"moe_intermediate_size", K::whole, {}, true},
      {"norm_topk_prob", K::truth, {}, true},
      {"router_aux_loss_coef", K::real, {}, true},
      {"router_z_loss_coef", K::real, {}, true},
      {"routing", K::text, {}, true},
      {"capacity_factor", K::real, {"expert_capacity_factor", "moe_expert_capacity_factor"}, true},
      {"output_router_logits", K::truth, {}, true},
      {"scoring_func", K::text, {}, true},
      {"routed_scaling_factor", K::real, {}, true},
      {"use_router_bias", K::truth, {}, true},
      {"n_group", K::whole, {}, true},
      {"topk_group", K::whole, {}, true},
      {"num_shared_experts", K::whole, {"n_shared_experts"}, true},
      {"shared_expert_intermediate_size", K::whole, {}, true},
      {"use_shared_expert_gate", K::truth, {}, true},
      {"first_k_dense_replace", K::whole},
      {"decoder_sparse_step", K::whole},
      {"mlp_only_layers", K::list},
      {"tie_word_embeddings", K::truth},
      {"initializer_range", K::real},
      {"positions", K::text},
      {"scale", K::text},
      {"norm", K::text},
      {"token_types", K::truth},
      {"use_pooler", K::truth},
      {"op", K::text},
      {"none", K::truth},
      {"bias", K::truth}};
  return kRows;
}

NdslLevel ndsl_level(const ndsl::Settings& settings, bool of_operation, NdslFaults& faults) {
  NdslLevel level;
  for (const auto& [name, setting] : settings) {
    const NdslKey* key = ndsl_key(name);
    if (!key || (of_operation && !key->of_operations)) {
      std::vector<std::string> known;
      for (const NdslKey& one : ndsl_keys())
        if (!of_operation || one.of_operations) {
          known.emplace_back(one.name);
          known.insert(known.end(), one.synonyms.begin(), one.synonyms.end());
        }
      const std::string meant = did_you_mean(name, known);
      if (!key)
        for (const std::string& one : meant_by(name, known))
          if (const NdslKey* other = ndsl_key(one)) faults.doubt(other->name);
      faults.add(setting.place,
                 key ? fmt::format("{} is a setting of the model, not of an operation", shown_name(name))
                     : fmt::format("there is no setting {}", shown_name(name)),
                 key ? "" : meant);
      continue;
    }
    if (!fits(key->kind, setting.value)) {
      faults.doubt(key->name);
      faults.add(
          {setting.place.source, setting.value.span},
          fmt::format("'{}' is {}; it must be {}", name, document::what_is(setting.value), kind_of_key(key->kind)), "",
          ErrorKind::Syntax);
    } else if (!level.emplace(key->name, setting).second)
      faults.add(setting.place, fmt::format("'{}' is given twice, by two of its names", key->name));
  }
  spread_dropout(level);
  return level;
}

NdslLevel ndsl_level_of_hf(const document::Document& config) {
  NdslLevel level;
  const auto put = [&](const std::string& name, const document::Node& value, Span place) {
    const NdslKey* key = ndsl_key(name);
    const bool none = value.kind == document::Kind::null;  // null also hides values of lower levels
    if (key && (none || fits(key->kind, value))) level.emplace(key->name, ndsl::Setting{value, {config.source, place}});
  };
  for (const document::Entry& entry : config.root.entries) put(entry.key, entry.value, entry.place);
  const auto rope = level.find("rope_parameters");
  if (rope == level.end()) return level;
  const document::Node value = rope->second.value;
  const Span place = rope->second.place.span;
  const auto part = [&](const document::Node& of, const char* theta) {
    if (const document::Node* base = of.find("rope_theta")) put(theta, *base, place);
    if (const document::Node* factor = of.find("partial_rotary_factor")) put("partial_rotary_factor", *factor, place);
  };
  if (const document::Node* full = value.find("full_attention")) {
    part(*full, "rope_theta");
    put("rope_scaling", *full, place);
    if (const document::Node* window = value.find("sliding_attention")) part(*window, "rope_local_theta");
  } else {
    part(value, "rope_theta");
    put("rope_scaling", value, place);
  }
  return level;
}

NdslLevel ndsl_level_of_defaults(const ndsl::Settings& settings, NdslFaults& faults) {
  ndsl::Settings given;
  NdslLevel none;
  for (const auto& [name, setting] : settings) {
    const NdslKey* key = setting.value.kind == document::Kind::null ? ndsl_key(name) : nullptr;
    if (key)
      none.emplace(key->name, setting);
    else
      given.emplace(name, setting);
  }
  NdslLevel level = ndsl_level(given, false, faults);
  level.merge(none);
  return level;
}

NdslLevel ndsl_level_of_texts(const std::map<std::string, std::string>& texts) {
  NdslLevel level;
  for (const auto& [name, text] : texts) {
    const NdslKey* key = ndsl_key(name);
    if (!key) {
      std::vector<std::string> known;
      for (const NdslKey& one : ndsl_keys()) known.emplace_back(one.name);
      const std::string meant = did_you_mean(name, known);
      throw Error(ErrorKind::Usage, fmt::format("there is no setting {}", shown_name(name)), {},
                  {meant.empty() ? "'harmonics explain MODEL' shows the settings of a model" : meant});
    }
    const auto source = std::make_shared<const SourceText>("--set " + name, text);
    const document::Document read = document::parse_document(source);
    if (!fits(key->kind, read.root))
      throw Error(ErrorKind::Usage, fmt::format("the setting '{}' is {}; it must be {}", name,
                                                document::what_is(read.root), kind_of_key(key->kind)));
    level[key->name] = {read.root, {source, read.root.span}};
  }
  spread_dropout(level);
  return level;
}

const ndsl::Setting* NdslSettings::find(const std::string& key) const {
  for (const NdslLevel* level : levels_)
    if (const auto at = level->find(key); at != level->end())
      return at->second.value.kind == document::Kind::null ? nullptr : &at->second;
  return nullptr;
}

void NdslSettings::missing(const std::string& key) const {
  if (faults_.doubts(key) || faults_.doubts({"extends", "config"})) return faults_.doubt(key);
  faults_.doubt(key);
  faults_.add(where_, fmt::format("this needs '{}', which the configuration does not give", key), "", ErrorKind::Shape);
}

const ndsl::Place& NdslSettings::place_of(const std::string& key) const {
  const ndsl::Setting* found = find(key);
  return found ? found->place : where_;
}

int64_t NdslSettings::whole(const std::string& key, std::optional<int64_t> otherwise, int64_t least,
                            int64_t most) const {
  const ndsl::Setting* found = find(key);
  if (!found && otherwise) return *otherwise;
  if (!found) {
    missing(key);
    return least;
  }
  const int64_t value = document::whole_of(found->value).value_or(least - 1);
  if (value >= least && value <= most) return value;
  faults_.doubt(key);
  faults_.add(found->place, fmt::format("'{}' is {}; it must be {} to {}", key, found->value.text, least, most), "",
              ErrorKind::Shape);
  return least;
}

int64_t NdslSettings::size(const std::string& key, std::optional<int64_t> otherwise) const {
  return whole(key, otherwise, 1, kLargestSize);
}

double NdslSettings::real(const std::string& key, std::optional<double> otherwise) const {
  const ndsl::Setting* found = find(key);
  if (!found && otherwise) return *otherwise;
  if (!found) missing(key);
  return found ? document::real_of(found->value).value_or(0) : 0;
}

bool NdslSettings::truth(const std::string& key, bool otherwise) const {
  const ndsl::Setting* found = find(key);
  return found ? document::truth_of(found->value).value_or(otherwise) : otherwise;
}

std::string NdslSettings::text(const std::string& key, const std::string& otherwise) const {
  const ndsl::Setting* found = find(key);
  return found ? found->value.text : otherwise;
}

NdslSettings NdslSettings::over(const NdslLevel& level, ndsl::Place where, bool below_first) const {
  std::vector<const NdslLevel*> all = levels_;
  all.insert(all.begin() + (below_first && !all.empty() ? 1 : 0), &level);
  return {std::move(all), faults_, std::move(where)};
}

}  // namespace harmonics::engine
