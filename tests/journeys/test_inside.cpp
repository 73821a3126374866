// Model inspection on the command line: traced values, kept results, the HTML page, times by operation, calls.
#include <cstring>
#include <set>

#include "tests/journeys/replies.hpp"

using namespace journeys;

namespace {

const std::string kLlama = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/Llama3";
const std::string kSmall =
    "Llama3 --set num_layers=2 --set hidden_size=32 --set num_query_heads=4 --set num_kv_heads=2 --set "
    "intermediate_size=48 --set vocab_size=40 ";

}  // namespace

TEST_CASE("infer --trace writes the values of a flow's layers, one file for each batch") {
  const Folder f;
  const Result r =
      harmonics("infer " + kSamples + "mnist.hmx --untrained --batch 16 -p 'synth:digits?size=40' --trace " +
                (f / "values") + " --json");
  REQUIRE(r.code == 0);
  CHECK(json::parse(r.out).at("samples").as_int64() == 40);
  for (const char* file : {"0", "1", "2"}) CHECK(fs::exists(f / (std::string("values/") + file + ".safetensors")));
  CHECK_FALSE(fs::exists(f / "values/3.safetensors"));
  const std::string last = read(f / "values/2.safetensors");
  CHECK(has(last, "\"hidden\":{\"dtype\":\"F32\",\"shape\":[8,"));  // 40 - 2 * 16
}

TEST_CASE("infer --trace writes the operations of a .ndsl model") {
  const Folder f;
  const std::string tokens = f.write("tokens.csv", "1,2,3,4,5\n6,7,8,9,10\n");
  const Result r = harmonics("infer Llama3 --weights " + kLlama + " --batch 2 -p 'tokens=" + tokens + "#0-4' --trace " +
                             (f / "values"));
  REQUIRE(r.code == 0);
  const std::string values = read(f / "values/0.safetensors");
  for (const char* name : {"embedding", "blk.0.QKV.q", "blk.1.SwiGLU", "blk.1", "scores"})
    CHECK(has(values, "\"" + std::string(name) + "\":{"));
  const Result nothing = harmonics("infer Llama3 --weights " + kLlama + " --trace " + (f / "more"));
  CHECK(nothing.code == 2);
  CHECK(has(nothing.err, "there is nothing to trace"));
}

TEST_CASE("explain --memory lists what a step keeps, and what presets of --recompute leave") {
  const Result text = harmonics("explain " + kSmall + "--memory --batch 2 --tokens 16");
  REQUIRE(text.code == 0);
  for (const char* part : {"ln1.output", "qkv_output", "attention_out", "lse", "mlp_up_output", "mlp_down_input",
                           "qkv_input", "mlp_up_input", "blk.0", "attention", "block", "swiglu"})
    CHECK(has(text.out, part));
  const Result r = harmonics("explain " + kSmall + "--memory --batch 2 --tokens 16 --json");
  const json::object kept = json::parse(r.out).at("kept").at(0).as_object();
  uint64_t sum = 0;
  for (const json::value& value : kept.at("values").as_array()) sum += value.at("bytes").to_number<uint64_t>();
  CHECK(sum == kept.at("recompute").at(0).at("kept_bytes").to_number<uint64_t>());
  const Result flow =
      harmonics("explain " + kSamples + "mnist.hmx --memory -p 'synth:digits?size=64' -p 'synth:digits?size=64#label'");
  REQUIRE(flow.code == 0);
  CHECK(has(flow.out, "hidden"));
  CHECK(has(harmonics("explain " + kSmall + "--memory --tokens 1").out, "one sequence of one token"));
}

TEST_CASE("explain and export refuse flags that a form of output has no place for") {
  const Folder f;
  const std::string page = " --html " + (f / "page.html");
  const std::pair<std::string, std::string> uses[] = {
      {"explain " + kSmall + "--numbers n.json", "--numbers has no effect without --html FILE.html"},
      {"explain " + kSmall + "--html page.pdf", "--html 'page.pdf' does not end in .html or .htm"},
      {"explain " + kSmall + "--show kernels" + page, "--show has no effect beside --html"},
      {"explain " + kSmall + "--memory --select", "--select has no effect beside --memory of a model"},
      {"explain " + kSamples + "mnist.hmx --memory --infer", "--infer has no effect beside --memory"},
      {"export Llama3 " + (f / "m.gguf") + " --entry forward", "--entry has no effect without --cpp"},
      {"export Llama3 " + (f / "m.cpp") + " --cpp --shard-size 1G", "--shard-size has no effect beside --cpp"}};
  for (const auto& [use, message] : uses) {
    const Result r = harmonics(use);
    CHECK(r.code == 2);
    CHECK(has(r.err, "error: " + message + "\n"));
  }
  CHECK_FALSE(fs::exists(f / "page.html"));
}

TEST_CASE("explain --html writes one page with blocks, shapes and the numbers of a profile") {
  const Folder f;
  const Result r = harmonics("explain " + kSmall + "--html " + (f / "model.html") + " --tokens 8");
  REQUIRE(r.code == 0);
  const std::string page = read(f / "model.html");
  for (const char* part : {"<h3>blk.0 to blk.1</h3>", "QKV.q", "SwiGLU", "token_embd.weight", "parameters"})
    CHECK(has(page, part));
  CHECK_FALSE(has(page, "src="));
  CHECK_FALSE(has(page, "http"));
  const std::string digits = "-p 'synth:digits?size=64' -p 'synth:digits?size=64#label'";
  const Result profile =
      harmonics("profile " + kSamples + "mnist.hmx " + digits + " --batch 16 --steps 3 --quiet --json");
  REQUIRE(profile.code == 0);
  const std::string numbers = f.write("numbers.json", profile.out);
  const Result flow = harmonics("explain " + kSamples + "mnist.hmx " + digits + " --html " + (f / "flow.html") +
                                " --numbers " + numbers);
  REQUIRE(flow.code == 0);
  CHECK(has(read(f / "flow.html"), "numbers of numbers.json"));
  CHECK(has(read(f / "flow.html"), "samples_per_second"));
  const Result bad = harmonics("explain " + kSmall + "--html " + (f / "x.html") + " --numbers " + f.write("n", "[1]"));
  CHECK(bad.code == 2);
}

TEST_CASE("profile sums the time of each operation of a model's blocks") {
  const Folder f;
  const std::string model = f.write("tiny.ndsl",
                                    "name: Tiny\nextends: Llama3\nconfig: {num_layers: 2, hidden_size: 32, "
                                    "num_query_heads: 4, num_kv_heads: 2, intermediate_size: 48, vocab_size: 40, "
                                    "max_position_embeddings: 16}\n");
  const std::string flow = f.write("tiny.hmx",
                                   "harmonic tiny { producer tokens; producer next; layer scores; cycle { tokens "
                                   "-(model(\"tiny.ndsl\"))-> scores; scores <-(cross_entropy)- next; } }");
  std::string rows, targets;
  for (int i = 0; i < 8; ++i) {
    for (int t = 0; t < 8; ++t) {
      rows += (t ? "," : "") + std::to_string((3 * i + t) % 40);
      targets += (t ? "," : "") + std::to_string((3 * i + t + 1) % 40);
    }
    rows += "\n", targets += "\n";
  }
  const Result r =
      harmonics("profile " + flow + " -p 'tokens=" + f.write("tokens.csv", rows) +
                "?dtype=i32' -p 'next=" + f.write("next.csv", targets) + "?dtype=i32' --batch 4 --steps 3 --json");
  REQUIRE(r.code == 0);
  std::set<std::string> names;
  const json::object profile = last_line(r.out);
  for (const json::value& line : profile.at("operations").as_array())
    names.insert(std::string(line.at("operation").as_string()));
  for (const char* name : {"LN1", "QKV", "Attention", "MLPUp", "MLPDown", "QKV, gradient"})
    CHECK(names.count(name) == 1);
}

TEST_CASE("the device trace:cpu computes what cpu computes, and logs every call") {
  const Folder f;
  const std::string flow = kSamples + "mnist.hmx --untrained --batch 8 -p 'synth:digits?size=16' -q ";
  const Result plain = harmonics("infer " + flow + "-c file:" + (f / "plain.npy"));
  const Result traced = harmonics_in("HARMONICS_TRACE_FILE='" + (f / "log.jsonl") + "'",
                                     "infer " + flow + "--device trace:cpu -c file:" + (f / "traced.npy"));
  REQUIRE(plain.code == 0);
  REQUIRE(traced.code == 0);
  CHECK(read(f / "plain.npy") == read(f / "traced.npy"));
  size_t asked = 0, ran = 0;
  for (const std::string& line : lines_of(read(f / "log.jsonl"))) {
    const json::object o = json::parse(line).as_object();
    CHECK(o.at("inputs").is_array());
    CHECK(o.at("outputs").as_array().size() >= 1);
    if (o.contains("asked")) ++asked;
    if (!o.contains("ran")) continue;
    ++ran;
    CHECK(o.at("end").to_number<uint64_t>() >= o.at("begin").to_number<uint64_t>());
    CHECK(o.at("kernel").is_string());
  }
  CHECK(asked > 0);
  CHECK(ran >= 2 * 2);  // two batches through two layers
  const Result none = harmonics("infer " + flow + "--device cpu:cpu -c file:" + (f / "none.npy"));
  CHECK(none.code != 0);
  CHECK(has(none.err, "device 'cpu' passes no calls on to 'cpu'"));
  const Result alone = harmonics_in("HARMONICS_TRACE_FILE='" + (f / "alone.jsonl") + "'",
                                    "infer " + flow + "--device trace -c file:" + (f / "alone.npy"));
  CHECK(alone.code == 2);
  CHECK(alone.err ==
        "error: device 'trace' has no kernels: it passes calls on to another device\n"
        "help: name that device too: --device trace:cpu\n");
  CHECK_FALSE(fs::exists(f / "alone.jsonl"));
  CHECK(has(harmonics("infer " + flow + "--device trace:cpo").err, "did you mean 'cpu'?"));
}

TEST_CASE("export --cpp writes a C++ file that computes what the model does") {
  const Folder f;
  const Result r = harmonics("export Llama3 " + (f / "model.cpp") + " --cpp --tokens 6 --weights " + kLlama);
  REQUIRE(r.code == 0);
  const std::string library = std::string(HARMONICS_BINARY_DIR) + "/lib";
  REQUIRE(std::system(("timeout 300 c++ -std=c++17 -Wall -Wextra -Werror -I '" HARMONICS_SOURCE_DIR "/include' '" +
                       (f / "model.cpp") + "' -L '" + library + "' -lharmonics -Wl,-rpath,'" + library + "' -o '" +
                       (f / "model") + "'")
                          .c_str()) == 0);
  const int32_t tokens[] = {3, 1, 4, 1, 5, 9};
  f.write("tokens.bin", std::string(reinterpret_cast<const char*>(tokens), sizeof tokens));
  REQUIRE(std::system(("timeout 60 '" + (f / "model") + "' tokens='" + (f / "tokens.bin") + "' scores='" +
                       (f / "scores.bin") + "'")
                          .c_str()) == 0);
  const Result infer = harmonics("infer Llama3 --weights " + kLlama +
                                 " --batch 1 -q -p 'tokens=" + f.write("tokens.csv", "3,1,4,1,5,9\n") +
                                 "#0-5' -c 'scores=file:" + (f / "scores.npy") + "'");
  REQUIRE(infer.code == 0);
  const std::string found = read(f / "scores.bin"), npy = read(f / "scores.npy");
  REQUIRE(npy.size() > found.size());
  REQUIRE(found.size() == 6 * 32 * sizeof(float));
  const std::string expected = npy.substr(npy.size() - found.size());
  for (size_t i = 0; i < 6 * 32; ++i) {
    float a = 0, b = 0;
    std::memcpy(&a, found.data() + i * sizeof a, sizeof a);
    std::memcpy(&b, expected.data() + i * sizeof b, sizeof b);
    CHECK(a == Approx(b).epsilon(1e-3).margin(1e-4));
  }
  CHECK(std::system(("'" + (f / "model") + "' 2>/dev/null").c_str()) != 0);  // without its input
}
