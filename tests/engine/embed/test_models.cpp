// The C++ API for models in .ndsl files.
#include <catch2/catch.hpp>

#include <algorithm>

#include <harmonics/models.hpp>

#include "tests/message_of.hpp"

using harmonics::RuntimeModelRegistry;

TEST_CASE("models: built-in and registered ones by name") {
  const auto before = RuntimeModelRegistry::list_models();
  CHECK(std::find(before.begin(), before.end(), "Llama2") != before.end());
  RuntimeModelRegistry::register_model("Printed",
                                       std::string(HARMONICS_SOURCE_DIR) + "/tests/dsl/ndsl/MyCustomModel.ndsl");
  const auto names = RuntimeModelRegistry::list_models();
  CHECK(names.size() == before.size() + 1);
  CHECK(std::is_sorted(names.begin(), names.end()));
  const harmonics::ModelConfig config = RuntimeModelRegistry::create_model_config("Printed");
  CHECK(config.at("hidden_size") == 2048);
  CHECK(config.at("rms_norm_eps") == 1e-5);
  const harmonics::BlockSpec block = RuntimeModelRegistry::create_block_spec("Printed", 3);
  CHECK(block.variant == "dense");
  CHECK(block.forward_ops == std::vector<std::string>{"LN1", "QKV", "QKNorm", "RoPE", "Attention", "AttnOut",
                                                      "ResidualLN2", "MLPUp", "SwiGLU", "MLPDown"});
  CHECK(block.use_qk_norm);
  CHECK(block.ln2_on_residual_att);
  REQUIRE(block.weights.size() > 8);
  for (const auto& [name, shape] : block.weights) CHECK(name.rfind("blk.3.", 0) == 0);
  CHECK(std::count(block.weights.begin(), block.weights.end(),
                   std::pair<std::string, harmonics::Shape>("blk.3.attn_q.weight", {2048, 2048})) == 1);
  const harmonics::RegisteredModel model = RuntimeModelRegistry::get("Printed");
  CHECK(model.layers.size() == 24);
  CHECK(model.layers.back().forward_ops == block.forward_ops);
}

TEST_CASE("models: unknown names and layers are refused") {
  CHECK(harmonics::message_of([] { RuntimeModelRegistry::get("Lama2"); }).find("did you mean 'Llama2'?") !=
        std::string::npos);
  CHECK(harmonics::message_of([] { RuntimeModelRegistry::create_block_spec("Llama2", 32); }) ==
        "'Llama2' has no layer 32; it has 32, from 0");
  CHECK(harmonics::message_of([] { RuntimeModelRegistry::register_model("X", "/nowhere.ndsl"); }) != "no error");
}
