// PEFT's LoRA adapters for a tiny Llama (make_adapters.py): scores equal those of transformers.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "engine/language/decoder.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/architectures.hpp"
#include "tests/message_of.hpp"
#include "tests/parity/golden.hpp"

namespace harmonics::engine::parity {

namespace {

std::string golden_path(const std::string& name) {
  return std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/" + name;
}

// Without PCRE2, GGUF cannot be read.
std::optional<ImportedModel> adapted_base() {
  const std::string path = golden_path("architectures/llama.gguf");
  const auto file = MappedFile::open(path);
  if (!is_importable(path, {static_cast<const char*>(file->data()), file->bytes()}, Registry::global())) return {};
  return import_model(path, Registry::global());
}

// Returns the scores after every token, one token at a time.
std::vector<std::vector<float>> scores_with(const Model& model, const HTensor& tokens) {
  const auto executor = make_team_executor(1);
  CompileOptions options;
  options.device = "cpu";
  Decoder decoder(model, *executor, options);
  Session session(decoder);
  std::vector<std::vector<float>> all;
  for (int64_t t = 0; t < tokens.size(); ++t) {
    const auto scores = session.append({tokens.data<int32_t>() + t, 1});
    all.emplace_back(scores.begin(), scores.end());
  }
  return all;
}

std::vector<std::vector<float>> adapted_scores(const ImportedModel& imported, const std::vector<AdapterFile>& adapters,
                                               const HTensor& tokens) {
  ModelOptions options;
  options.adapters = adapters;
  return scores_with(model_of(imported, options), tokens);
}

double worst_difference(const std::vector<std::vector<float>>& found, const float* expected) {
  double worst = 0;
  for (const auto& row : found)
    for (const float score : row) {
      const double difference = std::abs(static_cast<double>(score) - static_cast<double>(*expected++));
      worst = std::isnan(score) ? HUGE_VAL : std::max(worst, difference);
    }
  return worst;
}

double worst_difference(const std::vector<std::vector<float>>& found, const std::vector<std::vector<float>>& expected) {
  std::vector<float> flat;
  for (const auto& row : expected) flat.insert(flat.end(), row.begin(), row.end());
  return worst_difference(found, flat.data());
}

}  // namespace

TEST_CASE("adapters: folders of PEFT have the scores of transformers") {
  const auto base = adapted_base();
  if (!base) return;
  const TensorFile file = golden("adapters.safetensors");
  for (const std::string name : {"every", "attention", "patterns"}) {
    INFO(name);
    const auto expected = below(file, name);
    const auto found = adapted_scores(*base, {{golden_path("adapters/" + name), 1}}, expected.at("tokens"));
    CHECK(worst_difference(found, expected.at("scores").data<float>()) < 1e-4);
    const auto without = adapted_scores(*base, {}, expected.at("tokens"));
    CHECK(worst_difference(without, expected.at("scores").data<float>()) > 0.1);
  }
}

TEST_CASE("adapters: two at once add up") {
  const auto base = adapted_base();
  if (!base) return;
  const auto expected = below(golden("adapters.safetensors"), "both");
  const auto found = adapted_scores(
      *base, {{golden_path("adapters/every"), 1}, {golden_path("adapters/attention.gguf"), 1}}, expected.at("tokens"));
  CHECK(worst_difference(found, expected.at("scores").data<float>()) < 1e-4);
}

TEST_CASE("adapters: in GGUF they compute what the folder of PEFT does") {
  const auto base = adapted_base();
  if (!base) return;
  const auto expected = below(golden("adapters.safetensors"), "every");
  for (const std::string name : {"every", "attention"}) {
    const auto peft = adapted_scores(*base, {{golden_path("adapters/" + name), 0.7}}, expected.at("tokens"));
    const auto gguf = adapted_scores(*base, {{golden_path("adapters/" + name + ".gguf"), 0.7}}, expected.at("tokens"));
    CHECK(peft == gguf);
  }
  const auto none = adapted_scores(*base, {{golden_path("adapters/every"), 0}}, expected.at("tokens"));
  CHECK(none == adapted_scores(*base, {}, expected.at("tokens")));
}

TEST_CASE("adapters: merged into the weights they compute the same within rounding") {
  const auto base = adapted_base();
  if (!base) return;
  const auto expected = below(golden("adapters.safetensors"), "both");
  const auto resolved = resolve_spec(*base);
  std::vector<Adapter> adapters;
  for (const char* name : {"adapters/every", "adapters/attention.gguf"})
    adapters.push_back(read_adapter({golden_path(name), 1}, *resolved, Registry::global()));
  ImportedModel merged = *base;
  merged.tensors = merged_tensors(*base, *resolved, adapters);
  CHECK(worst_difference(adapted_scores(merged, {}, expected.at("tokens")), expected.at("scores").data<float>()) <
        1e-4);
}

TEST_CASE("adapters: quantised weights stay as they are") {
  const auto base = adapted_base();
  if (!base) return;
  const HTensor tokens = below(golden("adapters.safetensors"), "every").at("tokens");
  ModelOptions options;
  options.weights = DType::F16;
  options.adapters = {{golden_path("adapters/every"), 1}};
  const Model model = model_of(*base, options);
  CHECK(model.parameters->all().at("blk.0.attn_q.weight").type.dtype == DType::F16);
  CHECK(worst_difference(scores_with(model, tokens), adapted_scores(*base, options.adapters, tokens)) < 0.05);
}

TEST_CASE("adapters: weights that read the same value share one product") {
  const auto base = adapted_base();
  if (!base) return;
  const auto products = [&](std::vector<AdapterFile> adapters) {
    ModelOptions options;
    options.adapters = std::move(adapters);
    const Model model = model_of(*base, options);
    const Program program = model.trace(model.entry("decode"), {1, 1, 64});
    return std::count_if(program.nodes.begin(), program.nodes.end(),
                         [](const Node& node) { return node.callee == "linear"; });
  };
  // In each of two layers, q, k and v share one product, and gate and up another; o, down and the head have their own.
  CHECK(products({{golden_path("adapters/every"), 1}}) == products({}) + 2 * (4 + 7) + 2);
  CHECK(products({{golden_path("adapters/every"), 1}, {golden_path("adapters/attention"), 1}}) ==
        products({}) + 2 * (4 + 7) + 2);
}

TEST_CASE("adapters: what does not fit is refused by name") {
  const auto base = adapted_base();
  if (!base) return;
  const auto refusal = [&](const std::string& path) {
    return message_of([&] { read_adapter({path, 1}, *resolve_spec(*base), Registry::global()); });
  };
  CHECK_THAT(refusal(golden_path("architectures/llama.gguf")), Catch::Contains("expected an adapter of the type lora"));
  const ImportedModel qwen = import_model(golden_path("architectures/qwen2.gguf"), Registry::global());
  const std::string other = message_of([&] {
    read_adapter({golden_path("adapters/every.gguf"), 1}, *resolve_spec(qwen), Registry::global());
  });
  CHECK_THAT(other, Catch::Contains("is for the architecture 'llama'") && Catch::Contains("qwen2"));
  const ImportedModel wide = import_model(golden_path("architectures/llama3.gguf"), Registry::global());
  const std::string shapes = message_of([&] {
    read_adapter({golden_path("adapters/attention.gguf"), 1}, *resolve_spec(wide), Registry::global());
  });
  CHECK_THAT(shapes, Catch::Contains("blk.0.attn_q.weight.lora_a") && Catch::Contains("[3, 24] and [24, 3]") &&
                         Catch::Contains("[32, 24]"));
  const std::string tied = message_of([&] {
    read_adapter({golden_path("adapters/missing"), 1}, *resolve_spec(*base), Registry::global());
  });
  CHECK_THAT(tied, Catch::Contains("missing"));
}

}  // namespace harmonics::engine::parity
