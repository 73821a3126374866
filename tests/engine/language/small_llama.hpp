// A small Llama with random weights, built in memory.
#pragma once

#include <random>

#include "engine/transformer/architectures.hpp"

namespace harmonics::engine::testing {

struct SmallLlama {
  int64_t width = 24, layers = 3, heads = 6, shared = 2, hidden = 40, vocabulary = 50, context = 300;
  bool own_head = true;
  std::string pairing = "interleaved";
};

inline HTensor small_random(const Shape& shape, uint32_t seed, float scale, float middle = 0) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < shape.count(); ++i)
    values.push_back(middle + (static_cast<float>(random() % 20001) / 10000.0f - 1.0f) * scale);
  return HTensor::from(shape, values);
}

inline AttributeMap metadata_of(const SmallLlama& s) {
  return AttributeMap()
      .set("general.architecture", "llama")
      .set("llama.embedding_length", s.width)
      .set("llama.block_count", s.layers)
      .set("llama.attention.head_count", s.heads)
      .set("llama.attention.head_count_kv", s.shared)
      .set("llama.feed_forward_length", s.hidden)
      .set("llama.context_length", s.context)
      .set("llama.rope.pairing", s.pairing);
}

inline std::map<std::string, Shape> tensors_of(const SmallLlama& s) {
  const int64_t narrow = s.width / s.heads * s.shared;
  std::map<std::string, Shape> all{{"token_embd.weight", {s.vocabulary, s.width}}, {"output_norm.weight", {s.width}}};
  if (s.own_head) all["output.weight"] = {s.vocabulary, s.width};
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string b = "blk." + std::to_string(i) + ".";
    all[b + "attn_norm.weight"] = all[b + "ffn_norm.weight"] = {s.width};
    all[b + "attn_q.weight"] = all[b + "attn_output.weight"] = {s.width, s.width};
    all[b + "attn_k.weight"] = all[b + "attn_v.weight"] = {narrow, s.width};
    all[b + "ffn_gate.weight"] = all[b + "ffn_up.weight"] = {s.hidden, s.width};
    all[b + "ffn_down.weight"] = {s.width, s.hidden};
  }
  return all;
}

// Returns a model without entries, for add_architecture_entries().
inline Model bare_llama(const SmallLlama& s) {
  Model model;
  model.name = "small";
  model.metadata = ModelMetadata("small", metadata_of(s));
  uint32_t seed = 1;
  for (const auto& [name, shape] : tensors_of(s)) {
    const bool gain = shape.rank() == 1;
    model.parameters
        ->adopt(name, small_random(shape, seed++, gain ? 0.2f : 0.3f, gain ? 1.0f : 0.0f), nullptr, Role::frozen, {})
        .fixed = true;
  }
  return model;
}

inline Model small_llama(const SmallLlama& s = {}) {
  Model model = bare_llama(s);
  add_architecture_entries(model);
  return model;
}

// Returns the model as an importer gives it, to be opened with other types.
inline ImportedModel imported_from(const Model& model) {
  ImportedModel imported;
  imported.path = model.name;
  imported.metadata = model.metadata;
  for (const auto& [name, tensor] : model.parameters->all())
    imported.tensors.emplace(name, model.parameters->tensor(name));
  return imported;
}

inline std::vector<int32_t> some_tokens(int64_t count, int64_t vocabulary, uint32_t seed = 9) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary)));
  return ids;
}

}  // namespace harmonics::engine::testing
