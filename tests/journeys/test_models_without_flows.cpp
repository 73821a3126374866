// harmonics explain and infer on other programs' models, and the entries of flows.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

// "" without the data.
std::string stories_file() {
  const std::string data = data_folder();
  return data.empty() || !fs::exists(fs::path(data) / "llama2c") ? "" : data + "/llama2c/stories260K.bin";
}

}  // namespace

TEST_CASE("models: explain shows entries, programs, kernels and memory") {
  const std::string file = stories_file();
  if (file.empty()) return;
  const Result shown = harmonics("explain " + file + " --show entries");
  REQUIRE(shown.code == 0);
  CHECK(has(shown.out, "decode"));
  CHECK(has(shown.out, "-> scores f32[1, 512]"));
  const Result object = harmonics("explain " + file + " --json --show entries,program,kernels,memory --tokens 3");
  REQUIRE(object.code == 0);
  const json::value v = json::parse(object.out);
  CHECK(SchemaCheck::run(schema("explain"), v) == std::vector<std::string>{});
  std::set<std::string> names;
  for (const json::value& entry : v.at("entries").as_array()) {
    names.emplace(entry.at("name").as_string());
    if (entry.at("name") == "forward") CHECK(entry.at("outputs").at("scores").as_string() == "f32[1, 3, 512]");
    CHECK(entry.at("inputs").at("tokens").as_string() == "i32[1, 3]");
  }
  CHECK(names == std::set<std::string>{"decode", "embed", "forward", "loss", "prefill"});
  CHECK(has(std::string(v.at("kernels").at(0).at("title").as_string()), "of the entry decode"));
  const Result loss = harmonics("explain " + file + " --entry loss --show program --batch 2 --tokens 5");
  REQUIRE(loss.code == 0);
  CHECK(has(loss.out, "softmax_cross_entropy"));
  const Result wrong = harmonics("explain " + file + " --entry dekode");
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "did you mean 'decode'?"));
  CHECK(harmonics("explain " + file + " --entry decode --weights x.safetensors").code == 2);
}

TEST_CASE("models: explain shows the entries of a flow") {
  Folder f;
  const std::string flow =
      f.write("g.hmx", "harmonic g { producer x {3}; producer y {2}; layer o {2}; cycle { x -> o; o <-(mse)- y; } }\n");
  const Result shown = harmonics("explain " + flow + " --show entries --batch 5");
  REQUIRE(shown.code == 0);
  CHECK(has(shown.out, "entries of g, for a batch of 5"));
  CHECK(has(shown.out, "forward    x f32[5, 3] -> out:o f32[5, 2]"));
  CHECK(has(shown.out, "loss       x f32[5, 3], y f32[5, 2] -> "));
  const Result one = harmonics("explain " + flow + " --show entries --entry forward --json");
  REQUIRE(one.code == 0);
  CHECK(json::parse(one.out).at("entries").as_array().size() == 1);
}

TEST_CASE("models: infer continues a text as generate does") {
  const std::string file = stories_file();
  if (file.empty()) return;
  const std::string tokenizer = " --tokenizer " + file.substr(0, file.rfind('/')) + "/tok512.bin";
  const std::string prompt = " --prompt 'Once upon a time' --temperature 0";
  const Result inferred = harmonics("infer " + file + tokenizer + prompt + " --generate 20 --json");
  const Result generated = harmonics("generate " + file + tokenizer + prompt + " --max-tokens 20 --json");
  REQUIRE(inferred.code == 0);
  REQUIRE(generated.code == 0);
  const json::value v = json::parse(inferred.out);
  CHECK(SchemaCheck::run(schema("infer"), v) == std::vector<std::string>{});
  CHECK(v.at("text") == json::parse(generated.out).at("text"));
}

TEST_CASE("models: infer computes scores for the samples of a stream") {
  const std::string file = stories_file();
  if (file.empty()) return;
  const json::value expected = json::parse(read(file.substr(0, file.size() - 4) + ".expected.json"));
  const auto& greedy = expected.at("tokens_greedy").as_array();
  constexpr size_t kTokens = 4, kVocabulary = 512, kRows = 3;
  std::string csv;
  for (size_t row = 0; row < kRows; ++row)
    for (size_t i = 0; i < kTokens; ++i)
      csv += std::to_string(greedy.at(i).as_int64()) + (i + 1 < kTokens ? "," : "\n");
  Folder f;
  const std::string rows = f.write("rows.csv", csv), scores = f / "scores.npy";
  const Result r = harmonics("infer " + file + " --producer 'tokens=file:" + rows + "#0-3' --consumer file:" + scores +
                             " --batch 2 --json");
  REQUIRE(r.code == 0);
  const json::value v = json::parse(r.out);
  CHECK(SchemaCheck::run(schema("infer"), v) == std::vector<std::string>{});
  CHECK(v.at("samples").as_int64() == static_cast<int64_t>(kRows));
  const std::string bytes = read(scores);
  std::vector<float> all(kRows * kTokens * kVocabulary);
  REQUIRE(bytes.size() > all.size() * sizeof(float));
  std::memcpy(all.data(), bytes.data() + bytes.size() - all.size() * sizeof(float), all.size() * sizeof(float));
  const auto& first = expected.at("logits_after_BOS_at_position_0").as_array();
  for (size_t i = 0; i < kVocabulary; ++i) REQUIRE(all[i] == Approx(first.at(i).to_number<double>()).margin(1e-3));
  for (size_t row = 0; row < kRows; ++row)
    for (size_t i = 0; i < kTokens; ++i) {
      const auto at = all.begin() + static_cast<std::ptrdiff_t>((row * kTokens + i) * kVocabulary);
      CHECK(std::max_element(at, at + kVocabulary) - at == greedy.at(i + 1).as_int64());
    }
  const Result unbound = harmonics("infer " + file + " --producer other=file:" + rows);
  CHECK(unbound.code == 2);
  CHECK(has(unbound.err, "has no producer named 'other'"));
}

TEST_CASE("models: infer takes a spec and values of its variables") {
  if (!has(harmonics("list importers").out, "gguf")) return;
  Folder f;
  const std::string model = f / "m.gguf";
  REQUIRE(std::system((std::string(HARMONICS_BINARY_DIR) + "/bin/make_model tiny f16 " + model).c_str()) == 0);
  const std::string specs = std::string(HARMONICS_SOURCE_DIR) + "/engine/transformer/specs/";
  const std::string spec = " --spec " + specs + "qwen3.json", rows = f.write("rows.csv", "1,2,3,4\n5,6,7,8\n");
  const auto infer = [&](const std::string& flags) {
    return harmonics("infer " + model + " --producer 'tokens=file:" + rows + "#0-3' --consumer file:" + (f / "s.npy") +
                     " --precision fp32 --quiet" + flags);
  };
  const auto scores = [&](const std::string& flags) {
    const Result r = infer(flags);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return read(f / "s.npy");
  };
  const std::string known = scores("");
  CHECK(scores(spec) == known);
  CHECK(scores(spec + " --set rope_base=500") != known);
  // The architecture's own variables are read from a copy of its spec like from any other file.
  std::string text = read(specs + "qwen3.json");
  const std::string norm = R"("in": "x", "weight": "output_norm", "epsilon": "rms_eps")";
  REQUIRE(text.find(norm) != std::string::npos);
  text.replace(text.find(norm), norm.size(), R"("in": "x", "weight": "output_norm", "epsilon": "10.0")");
  CHECK(scores(" --spec " + f.write("other.json", text)) != known);

  const Result no_variable = infer(spec + " --set rope_bass=500");
  CHECK(no_variable.code == 2);
  CHECK(has(no_variable.err, "rope_bass"));
  const Result foreign = infer(" --spec " + specs + "gemma2.json");
  CHECK(foreign.code != 0);
  CHECK(has(foreign.err, "gemma2."));
  const Result broken = infer(" --spec " + f.write("broken.json", text.substr(0, 200)));
  CHECK(broken.code != 0);
  CHECK(has(broken.err, "broken.json"));
}

TEST_CASE("models: --precision int8 multiplies weights of q8_0 by whole numbers") {
  const std::string file = stories_file();
  if (file.empty() || !has(harmonics("list exporters").out, "gguf")) return;
  Folder f;
  const std::string plain = f / "plain.gguf", small = f / "small.gguf";
  REQUIRE(harmonics("export " + file + " " + plain).code == 0);
  REQUIRE(harmonics("quantize " + plain + " " + small).code == 0);
  for (const char* entry : {"decode", "prefill"}) {
    const std::string explain =
        "explain " + small + " --show kernels --tokens 5 --entry " + entry + " --device cpu --precision ";
    const Result rounded = harmonics(explain + "int8"), exact = harmonics(explain + "fp32");
    INFO(rounded.out << rounded.err);
    REQUIRE(rounded.code == 0);
    CHECK(has(rounded.out, "q8_0 times q8_0"));
    CHECK_FALSE(has(rounded.out, "q8_0 weights"));
    CHECK_FALSE(has(exact.out, "times q8_0"));
    CHECK(harmonics("explain " + small + " --show kernels --tokens 5 --device cpu --entry " + entry).out ==
          rounded.out);  // like generate without --precision
    CHECK(has(exact.out, "q8_0 weights"));
  }
}
