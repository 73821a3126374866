// Compares each built-in .ndsl model with Hugging Face transformers (make_ndsl.py): folders of tiny models give their
// scores in one program and token by token.
#include <catch2/catch.hpp>

#include "engine/transformer/ndsl_model.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/model_results.hpp"

namespace harmonics::engine::parity {

TEST_CASE("ndsl: tiny models of every built-in architecture have the scores of transformers") {
  const TensorFile file = golden("ndsl.safetensors");
  std::vector<std::string> folders = builtin_ndsl_models();
  folders.emplace_back("GLM4MoE-groups");  // experts chosen by groups: n_group and topk_group in config.json
  folders.emplace_back("Mixtral-gelu");    // experts with the activation hidden_act of config.json
  for (const std::string& name : folders) {
    INFO(name);
    const auto expected = below(file, name);
    NdslOptions options;
    options.weights = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/" + name;
    const Model model = open_ndsl(name.substr(0, name.find('-')), options).model;
    const HTensor& tokens = expected.at("tokens");
    const auto found = forward_results(model, tokens);
    const char* output = expected.count("scores") ? "scores" : "hidden";
    const HTensor &values = expected.at(output), &result = found.at(output);
    REQUIRE(result.size() == values.size());
    const auto width = static_cast<size_t>(values.shape().back());
    const auto count = static_cast<size_t>(tokens.size());
    for (size_t row = 0; row < count; ++row) {
      INFO("token " << row);
      CHECK(relative_difference({result.data<float>() + row * width, width}, values.data<float>() + row * width) <
            1e-4);
    }
    if (std::string_view(output) != "scores") continue;
    const auto executor = make_team_executor(2);
    CompileOptions compile;
    compile.device = "cpu";
    Decoder decoder(model, *executor, compile);
    Session session(decoder);
    for (size_t row = 0; row < count; ++row) {
      const auto scores = session.append({tokens.data<int32_t>() + row, 1});
      INFO("after token " << row);
      CHECK(relative_difference(scores, values.data<float>() + row * width) < 1e-4);
    }
  }
}

TEST_CASE("ndsl: the pooler of BERT gives the vector of transformers") {
  const auto expected = below(golden("ndsl.safetensors"), "BERT");
  NdslOptions options;
  options.weights = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/BERT";
  CHECK_FALSE(forward_results(open_ndsl("BERT", options).model, expected.at("tokens")).count("pooled"));
  options.set = {{"use_pooler", "true"}};
  const HTensor pooled = forward_results(open_ndsl("BERT", options).model, expected.at("tokens")).at("pooled");
  const HTensor& wanted = expected.at("pooled");
  REQUIRE(pooled.size() == wanted.size());
  CHECK(relative_difference({pooled.data<float>(), static_cast<size_t>(pooled.size())}, wanted.data<float>()) < 1e-4);
}

}  // namespace harmonics::engine::parity
