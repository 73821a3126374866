// Built-in .ndsl models trained in a flow, compared with transformers and PyTorch (make_ndsl_training.py): the
// gradients of one step under the folder's names, including experts, and the losses of ten steps of AdamW.
#include <catch2/catch.hpp>

#include <cstring>

#include <boost/json.hpp>

#include "engine/base/file.hpp"
#include "engine/transformer/ndsl_mapping.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/trained_flow.hpp"

namespace harmonics::engine::parity {

namespace {

constexpr int64_t kRowsOfDescribed = 2, kTokensOfDescribed = 9;

std::string described_folder(const std::string& name) {
  return std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/" + name;
}

std::unique_ptr<BoundGraph> flow_with_described(const std::string& name, const std::map<std::string, HTensor>& golden,
                                                const std::string& set = "dropout=0") {
  auto g = memory::graph_of("harmonic g { producer tokens; producer next; layer scores; cycle { tokens -(model(\"" +
                            name + "\", weights=\"" + described_folder(name) + "\", name=m, set=\"" + set +
                            "\"))-> scores; scores <-(cross_entropy(ignore_index=-100))- next; } }");
  g->allow_weights_in(described_folder(""));
  memory::bind_rows(*g, "tokens", Shape{kTokensOfDescribed}, whole_numbers_of(golden.at("tokens")));
  memory::bind_rows(*g, "next", Shape{kTokensOfDescribed}, whole_numbers_of(golden.at("targets")));
  return g;
}

std::vector<std::string> trained_names() {
  std::vector<std::string> names;
  for (const std::string& name : builtin_ndsl_models())
    if (name != "BERT") names.push_back(name);  // an encoder has no scores
  return names;
}

}  // namespace

TEST_CASE("ndsl: the gradients of a step are those of transformers") {
  const TensorFile file = golden("ndsl_training.safetensors");
  for (const std::string& name : trained_names()) {
    INFO(name);
    const auto expected = below(file, name);
    auto g = flow_with_described(name, expected);
    NdslOptions options;
    options.weights = described_folder(name);
    const auto compiled = compile_ndsl_model(name, options);
    std::map<std::string, HTensor> gradients;
    const auto trained = gradients_of(*g, kRowsOfDescribed);
    for (const auto& [parameter, values] : trained) {
      const Shape shape = g->store().find(parameter)->type.shape;
      gradients[parameter.substr(parameter.find('.') + 1)] = HTensor::from(shape, values);
    }
    const auto by_folder = export_mapped(*compiled, gradients);
    size_t compared = 0;
    for (const auto& [key, want] : expected) {
      if (!key.starts_with("gradient/")) continue;
      const std::string tensor = key.substr(std::strlen("gradient/"));
      INFO(tensor);
      const auto found = by_folder.find(tensor);
      REQUIRE(found != by_folder.end());
      const HTensor& numbers = found->second;
      CHECK(worst_of({numbers.data<float>(), numbers.data<float>() + numbers.size()}, want) < 1e-3);
      ++compared;
    }
    CHECK(compared > 12);
  }
}

TEST_CASE("ndsl: the losses of ten steps of AdamW are those of transformers") {
  const TensorFile file = golden("ndsl_training.safetensors");
  for (const std::string& name : trained_names()) {
    INFO(name);
    const auto expected = below(file, name);
    auto g = flow_with_described(name, expected);
    const std::vector<double> losses = losses_of(*g, "adamw(lr=1e-2, weight_decay=0.1)", kRowsOfDescribed, 10);
    REQUIRE(losses.size() == 10);
    for (size_t i = 0; i < losses.size(); ++i) {
      INFO("step " << i + 1);
      CHECK(losses[i] == Approx(expected.at("losses").data<float>()[i]).epsilon(1e-4));
    }
  }
}

TEST_CASE("ndsl: with the auxiliary loss of routers, the losses of ten steps are those of transformers") {
  const TensorFile file = golden("ndsl_training.safetensors");
  const boost::json::value expected =
      boost::json::parse(read_plain_file(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/balance.json"));
  for (const auto& row : expected.at("losses").as_object()) {
    const std::string name(row.key());
    INFO(name);
    const auto flow = [&](const std::string& set) {
      return flow_with_described(name, below(file, name), "dropout=0, router_aux_loss_coef=0.3" + set);
    };
    const auto with = flow(", output_router_logits=true");
    const std::vector<double> losses = losses_of(*with, "adamw(lr=1e-2, weight_decay=0.1)", kRowsOfDescribed, 10);
    REQUIRE(losses.size() == row.value().as_array().size());
    for (size_t i = 0; i < losses.size(); ++i) {
      INFO("step " << i + 1);
      CHECK(losses[i] == Approx(row.value().at(i).to_number<double>()).epsilon(1e-4));
    }
    const auto without = flow("");  // disabled in config.json
    CHECK(losses_of(*without, "sgd", kRowsOfDescribed, 1).at(0) < losses.at(0) - 0.3);
  }
}

}  // namespace harmonics::engine::parity
