// Mixes of types: the types in llama.cpp's files.
#include <catch2/catch.hpp>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/error.hpp>

#include "engine/model/type_mix.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

struct Tensors {
  std::vector<std::string> names;
  std::vector<GgufTensor> all;

  void add(const std::string& name, std::vector<uint64_t> shape) {
    names.push_back(name);
    GgufTensor tensor;
    tensor.type = find_gguf_type(DType::F32);
    tensor.shape = std::move(shape);
    all.push_back(tensor);
  }
  std::vector<std::string> types(const std::string& mix, const MixedModel& model, const TypeOverrides& overrides = {},
                                 bool importance = false) {
    std::vector<const GgufTensor*> rows;
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].name = names[i];
      rows.push_back(&all[i]);
    }
    std::vector<std::string> found;
    for (const auto& type : mixed_types(type_mix_named(mix), model, rows, overrides, importance))
      found.push_back(type ? std::string(element_type(type->dtype).name) + (type->fallback ? "!" : "") : "-");
    return found;
  }
  std::string type_of(const std::string& tensor, const std::string& mix, const MixedModel& model,
                      const TypeOverrides& overrides = {}, bool importance = false) {
    const std::vector<std::string> found = types(mix, model, overrides, importance);
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == tensor) return found[i];
    return "none";
  }
};

// Returns layers of attention and feed-forward networks, ordered by name as in files: blk.10 precedes blk.2.
Tensors layered_model(int64_t layers, bool tied, bool experts = false) {
  Tensors t;
  t.add("token_embd.weight", {512, 256});
  t.add("output_norm.weight", {256});
  if (!tied) t.add("output.weight", {512, 256});
  std::vector<std::string> blocks;
  for (int64_t i = 0; i < layers; ++i) blocks.push_back(fmt::format("blk.{}.", i));
  std::sort(blocks.begin(), blocks.end());
  for (const std::string& block : blocks) {
    t.add(block + "attn_norm.weight", {256});
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) t.add(block + name + ".weight", {256, 256});
    t.add(block + "attn_q.bias", {256});
    if (experts) t.add(block + "ffn_gate_inp.weight", {8, 256});
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"})
      if (experts)
        t.add(block + name + "_exps.weight", {8, 256, 256});
      else
        t.add(block + name + ".weight", {256, 256});
  }
  return t;
}

// Returns the layers whose tensor has the type.
std::string layers_with(Tensors& t, const std::string& part, const std::string& type, const std::string& mix,
                        const MixedModel& model, bool importance = false) {
  std::string found;
  for (int64_t i = 0; i < model.layers; ++i)
    if (t.type_of(fmt::format("blk.{}.{}.weight", i, part), mix, model, {}, importance) == type)
      found += (found.empty() ? "" : " ") + std::to_string(i);
  return found;
}

const MixedModel kSmall{"llama", 16, 8, 4, 0};     // two heads share keys and values
const MixedModel kGrouped{"llama", 16, 32, 8, 0};  // four heads share

}  // namespace

TEST_CASE("type mixes: sensitive layers get more bits") {
  Tensors t = layered_model(16, false);
  const std::string sensitive = "0 1 4 7 10 13 14 15";
  CHECK(layers_with(t, "attn_v", "q6_k", "q4_k_m", kSmall) == sensitive);
  CHECK(layers_with(t, "ffn_down", "q6_k", "q4_k_m", kSmall) == sensitive);
  CHECK(layers_with(t, "ffn_down", "q6_k", "q5_k_m", kSmall) == sensitive);
  CHECK(layers_with(t, "attn_v", "q5_k", "q4_k_s", kSmall) == "0 1 2 3");
  CHECK(layers_with(t, "ffn_down", "q5_k", "q4_k_s", kSmall) == "0 1");
  CHECK(layers_with(t, "attn_v", "q5_k", "q3_k_m", kSmall) == "0 1");
  CHECK(layers_with(t, "ffn_down", "q5_k", "q3_k_m", kSmall) == "0");
  CHECK(layers_with(t, "ffn_down", "q5_k", "iq4_xs", kSmall) == "0 1");
  CHECK(layers_with(t, "ffn_down", "q5_k", "iq4_xs", kSmall, true).empty());
  CHECK(layers_with(t, "ffn_down", "q4_1", "q4_0", kSmall, true) == "0 1");
  CHECK(layers_with(t, "ffn_down", "q4_1", "q4_0", kSmall).empty());
  CHECK(layers_with(t, "ffn_gate", "q4_k", "q4_k_m", kSmall) == "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
}

TEST_CASE("type mixes: the types of one layer") {
  Tensors t = layered_model(16, false);
  const auto of = [&](const std::string& tensor, const std::string& mix, const MixedModel& model) {
    return t.type_of(tensor, mix, model);
  };
  CHECK(of("output.weight", "q4_0", kSmall) == "q6_k");
  CHECK(of("output.weight", "q2_k", kSmall) == "q6_k");
  CHECK(of("output.weight", "q8_0", kSmall) == "q8_0");
  CHECK(of("output.weight", "f16", kSmall) == "f16");
  CHECK(of("token_embd.weight", "q4_k_m", kSmall) == "q4_k");
  CHECK(of("blk.3.attn_norm.weight", "q4_k_m", kSmall) == "-");
  CHECK(of("blk.3.attn_q.bias", "q4_k_m", kSmall) == "-");
  CHECK(of("blk.3.attn_v.weight", "q2_k", kSmall) == "q3_k");
  CHECK(of("blk.3.attn_v.weight", "q2_k", kGrouped) == "q4_k");
  CHECK(of("blk.3.attn_output.weight", "q2_k", kSmall) == "q3_k");
  CHECK(of("blk.3.attn_output.weight", "q3_k_l", kSmall) == "q5_k");
  CHECK(of("blk.3.attn_v.weight", "iq4_nl", kGrouped) == "q5_k");
  CHECK(of("blk.3.attn_v.weight", "iq4_nl", kSmall) == "iq4_nl");
  Tensors tied = layered_model(16, true);
  CHECK(tied.type_of("token_embd.weight", "q4_k_m", kSmall) == "q6_k");
  CHECK(tied.type_of("token_embd.weight", "q8_0", kSmall) == "q8_0");
}

TEST_CASE("type mixes: models with eight experts keep their attention") {
  Tensors t = layered_model(16, false, true);
  const MixedModel model{"llama", 16, 32, 8, 8};
  CHECK(t.type_of("blk.3.attn_v.weight", "q4_k_m", model) == "q8_0");
  CHECK(t.type_of("blk.3.attn_k.weight", "q4_k_m", model) == "q8_0");
  CHECK(t.type_of("blk.3.attn_output.weight", "q4_k_m", model) == "q5_k");
  CHECK(t.type_of("blk.3.attn_output.weight", "q5_k_m", model) == "q5_k");
  CHECK(t.type_of("blk.3.ffn_gate_inp.weight", "q4_k_m", model) == "-");
  CHECK(t.type_of("blk.3.ffn_up_exps.weight", "q4_k_m", model) == "q4_k");
  CHECK(layers_with(t, "ffn_down_exps", "q6_k", "q4_k_m", model) == "0 1 4 7 10 13 14 15");
}

TEST_CASE("type mixes: rows that are not whole blocks fall back") {
  Tensors t;
  t.add("blk.0.ffn_up.weight", {8, 96});
  t.add("blk.0.ffn_gate.weight", {8, 33});
  t.add("output.weight", {8, 96});
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"q4_k_m", "q5_0!"}, {"q5_k_s", "q5_1!"},   {"q6_k", "q8_0!"},   {"q3_k_m", "q4_0!"},
      {"q2_k", "q4_0!"},   {"iq4_xs", "iq4_nl!"}, {"iq4_nl", "iq4_nl"}};
  for (const auto& [mix, type] : expected) {
    INFO(mix);
    CHECK(t.types(mix, kSmall) == std::vector<std::string>{type, "f16!", mix == "iq4_nl" ? "q8_0!" : "q8_0"});
  }
}

TEST_CASE("type mixes: what the user names wins") {
  Tensors t = layered_model(2, false);
  TypeOverrides overrides;
  overrides.output = DType::F16;
  overrides.token_embedding = DType::Q8_0;
  overrides.tensors = {{"blk.1.attn_?.weight", DType::Q5_0}, {"blk.*", DType::Q2_K}};
  CHECK(t.type_of("output.weight", "q4_k_m", kSmall, overrides) == "f16");
  CHECK(t.type_of("token_embd.weight", "q4_k_m", kSmall, overrides) == "q8_0");
  CHECK(t.type_of("blk.1.attn_v.weight", "q4_k_m", kSmall, overrides) == "q5_0");
  CHECK(t.type_of("blk.0.attn_v.weight", "q4_k_m", kSmall, overrides) == "q2_k");
  CHECK(t.type_of("blk.1.attn_output.weight", "q4_k_m", kSmall, overrides) == "q2_k");
  TypeOverrides pure;
  pure.pure = true;
  for (const std::string& type : t.types("q4_k_m", kSmall, pure)) CHECK((type == "q4_k" || type == "-"));
}

TEST_CASE("type mixes: names and patterns") {
  CHECK(type_mix_named("q4_k").name == "q4_k_m");
  CHECK(type_mix_named("q4_k_s").file_type == 14);
  CHECK(message_of([] { type_mix_named("q4_k_x"); }).find("there is no mix of types 'q4_k_x'") != std::string::npos);
  CHECK(fits_pattern("blk.*.attn_?.weight", "blk.11.attn_q.weight"));
  CHECK(fits_pattern("*", ""));
  CHECK(fits_pattern("*down*", "blk.0.ffn_down.weight"));
  CHECK(fits_pattern("a*b*c", "axxbyyc"));
  CHECK_FALSE(fits_pattern("a*b*c", "axxbyy"));
  CHECK_FALSE(fits_pattern("blk.?.", "blk.11."));
  CHECK_FALSE(fits_pattern("", "a"));
}
