// harmonics tokenize: encoding, decoding, and training tokenizers.
#include <boost/json.hpp>

#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

json::value checked_tokenize(const std::string& arguments) {
  const Result result = harmonics("tokenize " + arguments + " --json");
  REQUIRE(result.code == 0);
  const json::value v = json::parse(result.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/tokenize.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  return v;
}

}  // namespace

TEST_CASE("tokenize: text becomes ids, and ids become the text") {
  const json::value v = checked_tokenize("bytes 'Hi \xC3\xA4'");
  CHECK(json::serialize(v.at("tokens")) == "[72,105,32,195,164]");
  CHECK(harmonics("tokenize bytes --decode '[72, 105, 32, 195, 164]'").out == "Hi \xC3\xA4\n");
  CHECK(harmonics("tokenize bytes Hi --count").out == "2 tokens, 2 bytes\n");
  const Result wrong = harmonics("tokenize bytes --decode '72 256'");
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("'256' is not an id of this tokenizer; ids are whole numbers from 0 to 255") !=
        std::string::npos);
}

TEST_CASE("tokenize: a trained tokenizer is read again, with fewer tokens than bytes") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 50; ++i) text += "the cat sat on the mat, and the rat sat on the cat\n";
  const std::string file = folder.write("text.txt", text), to = folder / "tokenizer.json";
  const json::value made = checked_tokenize(to + " --train 280 --file " + file);
  CHECK(made.at("tokens").as_int64() == 274);
  CHECK(has(harmonics("tokenize " + (folder / "again.json") + " --train 280 --file " + file).err,
            "274 tokens from 10 different words; no further pair of tokens occurs twice\n"));
  CHECK_FALSE(has(harmonics("tokenize " + (folder / "again.json") + " --train 270 --file " + file).err, "no further"));
  const json::value v = checked_tokenize(to + " 'the cat'");
  CHECK(v.at("count").as_int64() == 2);
  CHECK(v.at("pieces").at(1).as_string() == " cat");
  CHECK(harmonics("tokenize " + to + " --special '<|endoftext|>'").out == "0\n");
  CHECK(harmonics("tokenize " + to + " --train 280").code == 2);
}

TEST_CASE("tokenize: a folder needs no weights") {
  if (!has(harmonics("list importers").out, "huggingface")) return;  // built without PCRE2
  const std::string golden = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/";
  const std::string words = golden + "tokenizers/byte_pairs.json";
  const std::string expected = harmonics("tokenize " + words + " 'the cat sat'").out;
  REQUIRE_FALSE(expected.empty());
  for (const char* name : {"GPT2LMHeadModel", "Qwen2ForCausalLM"}) {  // described, and with a spec
    INFO(name);
    const Folder folder;
    std::string config = read(golden + "qwen2/config.json");
    const std::string own = "Qwen2ForCausalLM";
    fs::create_directories(folder / "model");
    folder.write("model/config.json", config.replace(config.find(own), own.size(), name));
    fs::copy_file(words, folder / "model/tokenizer.json");
    const Result result = harmonics("tokenize " + (folder / "model") + " 'the cat sat'");
    CHECK(result.err == "");
    CHECK(result.out == expected);
  }
}
