// Models in smaller types: mixes, importance matrices, rates.
#include <catch2/catch.hpp>

#include <filesystem>
#include <map>

#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

std::string tiny_model(const Folder& folder) {
  const std::string path = folder / "m.gguf";
  REQUIRE(std::system((std::string(HARMONICS_BINARY_DIR) + "/bin/make_model tiny f16 " + path).c_str()) == 0);
  return path;
}

json::value checked_reply(const std::string& verb, const std::string& arguments) {
  const Result r = harmonics(verb + " " + arguments + " --json --quiet");
  INFO(r.err);
  REQUIRE(r.code == 0);
  const json::value reply = json::parse(r.out);
  CHECK(SchemaCheck::run(schema(verb), reply) == std::vector<std::string>{});
  return reply;
}

bool reads_gguf() { return has(harmonics("list importers").out, "gguf"); }

}  // namespace

TEST_CASE("quantize: a mix is planned, written and read") {
  if (!reads_gguf()) return;
  const Folder f;
  const std::string model = tiny_model(f), smaller = f / "q.gguf";
  const Result plan = harmonics("quantize " + model + " --type q4_k_m --tensor 'blk.0.ffn_up.*=q8_0' --dry-run");
  REQUIRE(plan.code == 0);
  CHECK(has(plan.out, "token_embd.weight"));
  CHECK(has(plan.out, "bits per weight"));
  const json::value table =
      checked_reply("quantize", model + " --type q4_k_m --tensor 'blk.0.ffn_up.*=q8_0' --dry-run");
  std::map<std::string, std::string> types;
  for (const json::value& row : table.at("table").as_array())
    types[std::string(row.at("name").as_string())] = std::string(row.at("to").as_string());
  CHECK(types["token_embd.weight"] == "Q6_K");  // also used for the scores
  CHECK(types["blk.0.ffn_up.weight"] == "Q8_0");
  CHECK(types["blk.1.ffn_up.weight"] == "Q4_K");
  CHECK(types["blk.0.attn_norm.weight"] == "F32");
  CHECK_FALSE(std::filesystem::exists(smaller));
  const json::value written = checked_reply("quantize", model + " " + smaller + " --type q4_k_m");
  CHECK(std::filesystem::file_size(smaller) < std::filesystem::file_size(model) / 2);
  CHECK(written.at("relative_error").as_double() < 0.2);
  const Result text = harmonics("generate " + smaller + " abc --max-tokens 4 --temperature 0 --quiet");
  CHECK(text.code == 0);
  CHECK(text.out.starts_with("abc"));
}

TEST_CASE("quantize: importance is measured and used") {
  if (!reads_gguf()) return;
  const Folder f;
  const std::string model = tiny_model(f), importance = f / "i.gguf";
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word " + std::to_string(i * 37 % 11) + ", ";
  const json::value measured =
      checked_reply("importance", model + " " + f.write("t.txt", words) + " " + importance + " --chunk 64");
  CHECK(measured.at("tensors").as_int64() == 15);  // seven maps in each of two layers, and the scores' map
  CHECK(measured.at("chunks").as_int64() >= 5);
  const json::value weighed = checked_reply("quantize", model + " --type q4_k_m --dry-run --importance " + importance);
  int64_t used = 0;
  for (const json::value& row : weighed.at("table").as_array()) used += row.at("importance").as_bool();
  CHECK(used == 15);
  const std::string plain = f / "plain.gguf", better = f / "better.gguf";
  REQUIRE(harmonics("quantize " + model + " " + plain + " --type q3_k_m").code == 0);
  REQUIRE(harmonics("quantize " + model + " " + better + " --type q3_k_m --importance " + importance).code == 0);
  CHECK(read(plain) != read(better));
}

TEST_CASE("quantize: wrong use is refused") {
  if (!reads_gguf()) return;
  const Folder f;
  const std::string model = tiny_model(f), to = " " + (f / "q.gguf");
  const Result no_output = harmonics("quantize " + model);
  CHECK(no_output.code == 2);
  CHECK(has(no_output.err, "quantize lacks OUTPUT"));
  CHECK(harmonics("quantize " + model + to + " --type q4_k_x").code == 2);
  CHECK(harmonics("quantize " + model + to + " --tensor blk").code == 2);
  const Result type = harmonics("quantize " + model + to + " --tensor 'blk.*=q9'");
  CHECK(type.code == 2);
  CHECK(has(type.err, "there is no type 'q9' for 'blk.*'"));
  const Result other = harmonics("quantize " + model + to + " --importance " + f.write("x.dat", "nothing"));
  CHECK(other.code != 0);
  CHECK(has(other.err, "is not an importance matrix"));
  CHECK_FALSE(std::filesystem::exists(f / "q.gguf"));
}

TEST_CASE("bench: rates of a language model") {
  if (!reads_gguf()) return;
  const Folder f;
  const std::string flags = tiny_model(f) + " --prefill 16,3 --decode 4 --texts 1,3 --repeat 2 --threads 1,2";
  const json::value reply = checked_reply("bench", flags);
  std::vector<std::string> tests;
  for (const json::value& row : reply.at("rows").as_array()) {
    tests.emplace_back(row.at("test").as_string());
    CHECK(row.at("tokens_per_second").as_double() > 0);
    CHECK(row.at("runs").as_int64() == 2);
  }
  CHECK(tests == std::vector<std::string>{"pp16", "pp3", "tg4", "tg4x3", "pp16", "pp3", "tg4", "tg4x3"});
  CHECK(reply.at("description").as_string() == "qwen3 f16");
  const Result table = harmonics("bench " + flags);
  CHECK(table.code == 0);
  CHECK(has(table.out, "| qwen3 f16"));
  CHECK(has(table.out, " tg4 |"));
  CHECK(harmonics("bench " + flags + " --prefill 0 --decode 0").code == 0);  // lists repeat
  CHECK(harmonics("bench " + (f / "m.gguf") + " --prefill 0 --decode 0").code == 2);
}
