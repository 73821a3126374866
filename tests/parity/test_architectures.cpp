// Compares each built-in spec with Hugging Face transformers (make_architectures.py): scores after every token, in one
// program, in chunks and token by token.
#include <catch2/catch.hpp>

#include <filesystem>
#include <set>

#include "engine/language/decoder.hpp"
#include "engine/transformer/architectures.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/model_results.hpp"

namespace harmonics::engine::parity {

namespace {

std::string architecture_file(const std::string& name) {
  return std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/architectures/" + name + ".gguf";
}

// Returns the names of models in the golden file.
std::set<std::string> architecture_names(const TensorFile& file) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : file.tensors) names.insert(name.substr(0, name.find('/')));
  return names;
}

bool reads_gguf() {
  const std::string path = architecture_file("llama");
  const auto file = MappedFile::open(path);
  return is_importable(path, {static_cast<const char*>(file->data()), file->bytes()}, Registry::global());
}

void check_chunks_of(const Model& model, const HTensor& tokens, const HTensor& expected) {
  const auto executor = make_team_executor(2);
  CompileOptions options;
  options.device = "cpu";
  Decoder decoder(model, *executor, options);
  const auto count = static_cast<size_t>(tokens.size());
  const int32_t* ids = tokens.data<int32_t>();
  std::vector<std::vector<float>> after;
  Session single(decoder), whole(decoder), chunks(decoder);
  for (size_t t = 0; t < count; ++t) {
    const auto scores = single.append({ids + t, 1});
    after.emplace_back(scores.begin(), scores.end());
    INFO("after token " << t);
    CHECK(relative_difference(scores, expected.data<float>() + t * scores.size()) < 1e-3);
  }
  const auto at_once = whole.append({ids, count});
  CHECK(std::vector<float>(at_once.begin(), at_once.end()) == after.back());
  for (size_t at = 0, step = 3; at < count; at += step) {
    const size_t n = std::min(step, count - at);
    const auto scores = chunks.append({ids + at, n});
    CHECK(std::vector<float>(scores.begin(), scores.end()) == after[at + n - 1]);
  }
}

// Compares a model's results with the expected ones, and adds its architecture to `tested`.
void check_architecture(const std::string& name, const std::map<std::string, HTensor>& expected,
                        std::set<std::string>& tested) {
  INFO(name);
  const ImportedModel imported = import_model(architecture_file(name), Registry::global());
  tested.insert(imported.architecture());
  const Model model = model_of(imported);
  const HTensor& tokens = expected.at("tokens");
  const auto found = forward_results(model, tokens);
  for (const auto& [output, values] : expected) {
    if (output == "tokens") continue;
    INFO(output);
    REQUIRE(found.count(output));
    const HTensor& result = found.at(output);
    REQUIRE(result.size() == values.size());
    const auto width = static_cast<size_t>(values.shape().back());
    for (size_t row = 0; row < static_cast<size_t>(values.size()) / width; ++row)
      CHECK(relative_difference({result.data<float>() + row * width, width}, values.data<float>() + row * width) <
            1e-3);
  }
  if (expected.count("scores")) check_chunks_of(model, tokens, expected.at("scores"));
}

}  // namespace

TEST_CASE("architectures: tiny models of every built-in spec have the scores of transformers") {
  if (!reads_gguf()) return;  // built without PCRE2
  std::set<std::string> tested;
  for (const char* results : {"architectures.safetensors", "further_architectures.safetensors"}) {
    const TensorFile file = golden(results);
    for (const std::string& name : architecture_names(file)) check_architecture(name, below(file, name), tested);
  }
  const std::vector<std::string> all = builtin_architectures();
  CHECK(tested == std::set<std::string>(all.begin(), all.end()));
}

TEST_CASE("architectures: Granite without rotary positions") {
  if (!reads_gguf()) return;
  const ImportedModel imported = import_model(architecture_file("granite"), Registry::global());
  const HTensor tokens = below(golden("architectures.safetensors"), "granite").at("tokens");
  const auto scores = [&](const ModelOptions& options) {
    return forward_results(model_of(imported, options), tokens).at("scores");
  };
  ModelOptions still;
  still.set = {{"rotates", "0"}};  // the metadata granite.rope.scaling.finetuned
  const HTensor turned = scores({}), plain = scores(still);
  const auto row = [](const HTensor& all, int64_t at) {
    const auto width = static_cast<size_t>(all.shape().back());
    return std::vector<float>(all.data<float>() + static_cast<size_t>(at) * width,
                              all.data<float>() + static_cast<size_t>(at + 1) * width);
  };
  CHECK(row(turned, 0) == row(plain, 0));  // the first position is not rotated
  CHECK(row(turned, tokens.size() - 1) != row(plain, tokens.size() - 1));
}

TEST_CASE("architectures: all numbers of a model are known before data moves, each with its origin") {
  if (!reads_gguf()) return;
  const ImportedModel imported = import_model(architecture_file("gemma2"), Registry::global());
  ModelOptions options;
  options.set = {{"window", "4"}};
  const auto resolved = resolve_spec(imported, options);
  const auto& values = resolved->variables().resolved();
  CHECK(values.at("n_layers").origin == "metadata gemma2.block_count");
  CHECK(std::get<int64_t>(values.at("n_layers").value) == 2);
  CHECK(values.at("window").origin == "--set window=4");
  CHECK(std::get<int64_t>(values.at("window").value) == 4);
  CHECK(values.at("q_width").origin == "spec, prepare.globals = n_heads * head_dim");
  CHECK(values.at("vocab_size").origin == "rows of the tensor token_embd.weight");
  CHECK(values.at("rope_factor").origin == "spec, default");
}

}  // namespace harmonics::engine::parity
