// Special tokens added to Hugging Face folders: ids, rows initialized with means, configurations.
#include <catch2/catch.hpp>

#include <boost/json.hpp>

#include <harmonics/ops.hpp>

#include "engine/base/file.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/added_tokens.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kThreeTokens =
    R"({"added_tokens": [{"id": 2, "content": "<end>"}], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}})";

void put(const EmptyFolder& folder, const std::string& name, const std::string& text) {
  write_file_atomically(folder.path() + "/" + name, text);
}

boost::json::value json_in(const EmptyFolder& folder, const char* name) {
  return boost::json::parse(read_plain_file(folder.path() + "/" + name));
}

// Writes a folder with tables of `rows` rows for three tokens.
void write_model(const EmptyFolder& folder, int64_t rows, bool head) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * 2; ++i) values.push_back(static_cast<float>(i));
  TensorFile file;
  file.metadata["format"] = "pt";
  file.tensors["model.embed_tokens.weight"] = HTensor::from<float>({rows, 2}, values);
  file.tensors["model.layers.0.mlp.up_proj.weight"] = HTensor::from<float>({rows, 2}, values);
  if (head) file.tensors["lm_head.weight"] = cast(HTensor::from<float>({rows, 2}, values), DType::BF16);
  save_safetensors(file, folder.path() + "/model.safetensors");
  put(folder, "tokenizer.json", kThreeTokens);
  put(folder, "config.json",
      "{\"model_type\": \"llama\", \"vocab_size\": " + std::to_string(rows) +
          ", \"rms_norm_eps\": 1e-06, \"eos_token_id\": 2}");
}

std::vector<float> numbers_in(const EmptyFolder& folder, const std::string& tensor) {
  const TensorFile file = read_safetensors(folder.path() + "/model.safetensors");
  const HTensor wide = cast(file.tensors.at(tensor), DType::F32);
  return {wide.data<float>(), wide.data<float>() + wide.size()};
}

}  // namespace

TEST_CASE("added tokens: embeddings and heads get rows with the mean of the others") {
  const EmptyFolder folder;
  write_model(folder, 3, true);
  const AddedRows rows = add_special_tokens(folder.path(), {{"<new>", "<end>"}, {{"pad_token", "<pad>"}}});
  CHECK(rows.tokens == std::vector<std::pair<std::string, int64_t>>{{"<new>", 3}, {"<pad>", 4}});
  CHECK(rows.known == std::vector<std::string>{"<end>"});
  CHECK(rows.before == 3);
  CHECK(rows.after == 5);
  CHECK(rows.resized == std::vector<std::string>{"lm_head.weight", "model.embed_tokens.weight"});
  const std::vector<float> expected{0, 1, 2, 3, 4, 5, 2, 3, 2, 3};
  CHECK(numbers_in(folder, "model.embed_tokens.weight") == expected);
  CHECK(numbers_in(folder, "lm_head.weight") == expected);
  CHECK(numbers_in(folder, "model.layers.0.mlp.up_proj.weight").size() == 6);  // not a token table
  const boost::json::value config = json_in(folder, "config.json");
  CHECK(config.at("vocab_size") == 5);
  CHECK(config.at("pad_token_id") == 4);
  CHECK(config.at("eos_token_id") == 2);
  CHECK(json_in(folder, "tokenizer_config.json").at("pad_token") == "<pad>");
  CHECK(json_in(folder, "tokenizer.json").at("added_tokens").as_array().size() == 3);
  const AddedRows again = add_special_tokens(folder.path(), {{"<new>"}, {}});
  CHECK(again.tokens.empty());
  CHECK(again.known == std::vector<std::string>{"<new>"});
  CHECK(again.after == 5);
  CHECK(numbers_in(folder, "model.embed_tokens.weight") == expected);
}

TEST_CASE("added tokens: unused rows are taken first and set to the mean") {
  const EmptyFolder folder;
  write_model(folder, 6, false);
  const AddedRows rows = add_special_tokens(folder.path(), added_tokens_of({"<new>", "eos_token=<stop>"}));
  CHECK(rows.before == 6);
  CHECK(rows.after == 6);
  CHECK(numbers_in(folder, "model.embed_tokens.weight") == std::vector<float>{0, 1, 2, 3, 4, 5, 2, 3, 2, 3, 2, 3});
  CHECK(json_in(folder, "config.json").at("eos_token_id") == 4);
}

TEST_CASE("added tokens: folders that cannot take tokens are refused and stay unchanged") {
  const EmptyFolder folder;
  CHECK(message_of([&] {
          add_special_tokens(folder.path(), {{"<new>"}, {}});
        }).find("has no tokenizer.json") != std::string::npos);
  write_model(folder, 3, false);
  put(folder, "config.json", "{\"vocab_size\": 40}");
  const std::string before = read_plain_file(folder.path() + "/tokenizer.json");
  CHECK(message_of([&] {
          add_special_tokens(folder.path(), {{"<new>"}, {}});
        }).find("has no table of 40 rows") != std::string::npos);
  CHECK(read_plain_file(folder.path() + "/tokenizer.json") == before);
  CHECK(message_of([&] { with_added_tokens("[]", {"<new>"}, "t"); }).find("'t' is not a JSON object") == 0);
  CHECK(message_of([&] { with_added_tokens("{\"model\": {}}", {"<new>"}, "t"); }) == "'t' has no vocabulary");
  CHECK(message_of([&] { with_added_tokens(kThreeTokens, {""}, "t"); }).find("has no text") != std::string::npos);
}
