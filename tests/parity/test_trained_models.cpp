// Folders' models trained in a flow, compared with transformers and PyTorch (make_trained_models.py): the gradients of
// one step, and the losses of ten steps of AdamW.
#include <catch2/catch.hpp>

#include <algorithm>

#include "engine/model/imported.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/trained_flow.hpp"

namespace harmonics::engine::parity {

namespace {

constexpr int64_t kRowsOfStep = 3, kTokensOfRow = 12;

std::string trained_folder(const std::string& name) {
  return std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/" + name;
}

std::unique_ptr<BoundGraph> flow_with(const std::string& name, const std::map<std::string, HTensor>& golden) {
  auto g = memory::graph_of("harmonic g { producer tokens; producer next; layer scores; cycle { tokens -(model(\"" +
                            trained_folder(name) +
                            "\", name=m))-> scores; scores <-(cross_entropy(ignore_index=-100))- next; } }");
  g->allow_weights_in(trained_folder(""));
  memory::bind_rows(*g, "tokens", Shape{kTokensOfRow}, whole_numbers_of(golden.at("tokens")));
  memory::bind_rows(*g, "next", Shape{kTokensOfRow}, whole_numbers_of(golden.at("targets")));
  return g;
}

}  // namespace

TEST_CASE("trained models: the gradients of a step are those of transformers") {
  if (!is_model(trained_folder("llama3"), Registry::global())) return;
  const TensorFile file = golden("trained_models.safetensors");
  for (const char* name : {"llama3", "qwen2", "gemma3", "qwen3moe"}) {
    INFO(name);
    const auto expected = below(file, name);
    const ImportedModel imported = import_model(trained_folder(name), Registry::global());
    auto g = flow_with(name, expected);
    size_t compared = 0;
    for (const auto& [parameter, gradient] : gradients_of(*g, kRowsOfStep)) {
      INFO(parameter);
      const std::string own = parameter.substr(parameter.find('.') + 1);
      const auto origin = imported.origins.find(own);
      const auto want = expected.find("gradient/" + (origin == imported.origins.end() ? own : origin->second));
      if (want == expected.end()) continue;  // experts
      CHECK(worst_of(gradient, want->second) < 1e-3);
      ++compared;
    }
    const auto gradients = std::count_if(expected.begin(), expected.end(),
                                         [](const auto& row) { return row.first.starts_with("gradient/"); });
    CHECK(compared == static_cast<size_t>(gradients));
  }
}

TEST_CASE("trained models: the losses of ten steps of AdamW are those of transformers") {
  if (!is_model(trained_folder("llama3"), Registry::global())) return;
  const TensorFile file = golden("trained_models.safetensors");
  for (const char* name : {"llama3", "qwen2", "gemma3", "qwen3moe"}) {
    INFO(name);
    const auto expected = below(file, name);
    auto g = flow_with(name, expected);
    const std::vector<double> losses = losses_of(*g, "adamw(lr=1e-2, weight_decay=0.1)", kRowsOfStep, 10);
    REQUIRE(losses.size() == 10);
    for (size_t i = 0; i < losses.size(); ++i) {
      INFO("step " << i + 1);
      CHECK(losses[i] == Approx(expected.at("losses").data<float>()[i]).epsilon(1e-4));
    }
  }
}

}  // namespace harmonics::engine::parity
