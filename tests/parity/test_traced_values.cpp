// Values inside models: compares those of every built-in .ndsl model with transformers (make_layer_values.py) and with
// the reference device.
#include <catch2/catch.hpp>

#include <filesystem>

#include "engine/bound/traced_values.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/model_results.hpp"

namespace harmonics::engine::parity {

namespace {

Model tiny_model(const std::string& name) {
  NdslOptions options;
  options.weights = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/" + name;
  return open_ndsl(name, options).model;
}

TensorFile traced(const Model& model, const HTensor& tokens, const std::string& device) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("values", ""), values = path + ".d";
  const auto executor = make_team_executor(2);
  CompileOptions compile;
  compile.device = device;
  ValueFiles files(values, model.name);
  const int32_t* first = tokens.data<int32_t>();
  trace_tokens(model, *executor, compile, {first, first + tokens.size()}, files);
  CHECK(files.samples() == 1);
  return read_safetensors(values + "/0.safetensors");  // stays mapped after the file is removed
}

double difference(const HTensor& found, const HTensor& expected) {
  REQUIRE(found.size() == expected.size());
  return relative_difference({found.data<float>(), static_cast<size_t>(found.size())}, expected.data<float>());
}

}  // namespace

TEST_CASE("traced values: layers and operations of built-in models are those of transformers") {
  const TensorFile tokens = golden("ndsl.safetensors"), file = golden("ndsl_layers.safetensors");
  size_t compared = 0;
  for (const std::string& name : builtin_ndsl_models()) {
    INFO(name);
    const TensorFile found = traced(tiny_model(name), below(tokens, name).at("tokens"), "cpu");
    const auto expected = below(file, name);
    CHECK(expected.count("blk.0") == 1);
    for (const auto& [value, numbers] : expected) {
      INFO(value);
      REQUIRE(found.tensors.count(value) == 1);
      CHECK(difference(found.tensors.at(value), numbers) < 1e-4);
      ++compared;
    }
  }
  CHECK(compared == file.tensors.size());
  CHECK(compared > 160);
}

TEST_CASE("traced values: every operation has a value, the same on the reference device") {
  const TensorFile tokens = golden("ndsl.safetensors");
  for (const char* name : {"Llama3", "GPT2", "Qwen3MoE"}) {
    INFO(name);
    const Model model = tiny_model(name);
    const HTensor ids = below(tokens, name).at("tokens");
    const TensorFile found = traced(model, ids, "cpu"), expected = traced(model, ids, "reference");
    CHECK(found.metadata.at("harmonics.samples") == "1");
    std::vector<std::string> names{"embedding",
                                   "final_norm",
                                   "blk.0",
                                   "blk.1",
                                   "scores",
                                   "tokens",
                                   "blk.0.QKV.q",
                                   "blk.1.Attention",
                                   "blk.0.ResidualAdd",
                                   "blk.0.ResidualAdd.2"};
    if (std::string_view(name) == "Llama3")
      names.insert(names.end(), {"blk.0.RoPE.k", "blk.1.MLPUp.gate", "blk.1.MLPUp.up", "blk.1.SwiGLU", "blk.0.LN1"});
    for (const std::string& value : names) CHECK(found.tensors.count(value) == 1);
    REQUIRE(found.tensors.size() == expected.tensors.size());
    for (const auto& [value, numbers] : expected.tensors) {
      INFO(value);
      REQUIRE(found.tensors.count(value) == 1);
      REQUIRE(found.tensors.at(value).shape() == numbers.shape());
      if (numbers.dtype() == DType::F32) CHECK(difference(found.tensors.at(value), numbers) < 1e-4);
    }
  }
}

}  // namespace harmonics::engine::parity
