// harmonics embed, on the llama2.c checkpoint.
#include <cmath>
#include <sstream>

#include <boost/json.hpp>

#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

std::string embedding_arguments() {
  const std::string data = data_folder();
  if (data.empty() || !fs::exists(fs::path(data) / "llama2c")) return "";
  return "embed " + data + "/llama2c/stories260K.bin --tokenizer " + data + "/llama2c/tok512.bin ";
}

}  // namespace

TEST_CASE("embed: vectors of words and of the lines of a file are the same") {
  const std::string embed = embedding_arguments();
  if (embed.empty()) return;
  const Folder f;
  const Result object = harmonics(embed + "'Once upon a time' Lily --json");
  INFO(object.err);
  REQUIRE(object.code == 0);
  const json::value v = json::parse(object.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/embed.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  CHECK(v.at("pooling").as_string() == "last");
  const auto& all = v.at("embeddings").as_array();
  REQUIRE(all.size() == 2);
  double squares = 0;
  for (const json::value& x : all[0].at("vector").as_array()) squares += std::pow(x.to_number<double>(), 2);
  CHECK(std::abs(squares - 1) < 1e-4);

  const Result lines = harmonics(embed + "--file " + f.write("lines", "Lily\r\nOnce upon a time\n"));
  REQUIRE(lines.code == 0);
  std::istringstream printed(lines.out);
  std::string line;
  for (const size_t which : {1, 0}) {
    REQUIRE(std::getline(printed, line));
    CHECK(json::parse(line) == all[which]);
  }
  const std::string piped = "printf 'Lily\\nOnce upon a time\\n' | '" + kProgram + "' " + embed + "--file - > '";
  CHECK(std::system((piped + (f / "piped") + "'").c_str()) == 0);
  CHECK(read(f / "piped") == lines.out);
  const Result mean = harmonics(embed + "Lily --pooling mean --json");
  REQUIRE(mean.code == 0);
  CHECK(json::parse(mean.out).at("pooling").as_string() == "mean");
  CHECK(json::parse(mean.out).at("embeddings").at(0).at("vector") != all[1].at("vector"));
}

TEST_CASE("embed: texts are needed once, and a text that is too long is named") {
  const std::string embed = embedding_arguments();
  if (embed.empty()) return;
  const Folder f;
  const Result none = harmonics(embed);
  CHECK(none.code == 2);
  CHECK(has(none.err, "no text is given"));
  const std::string file = f.write("lines", "Lily\n");
  CHECK(harmonics(embed + "Lily --file " + file).code == 2);
  CHECK(harmonics(embed + "--file " + f.write("empty", "")).code == 2);
  CHECK(harmonics(embed + "Lily --pooling rank").code == 2);
  const Result longer = harmonics(embed + "Lily " + std::string(3000, 'x'));
  CHECK(longer.code == 2);
  CHECK(has(longer.err, "text 2: the text has "));
}

TEST_CASE("embed: generate and chat name it for models that give vectors only") {
  if (!has(harmonics("list importers").out, "gguf")) return;
  const std::string model = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/architectures/bert.gguf";
  for (const char* verb : {"generate ", "chat "}) {
    const Result r = harmonics(verb + model);
    CHECK(r.code == 2);
    CHECK(has(r.err, "does not generate text: it computes embeddings of texts"));
    CHECK(has(r.err, "harmonics embed " + model + " TEXT"));
  }
}
