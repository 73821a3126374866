// harmonics generate, on the llama2.c checkpoint.
#include <boost/json.hpp>

#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

std::string folder_of_stories() {
  const std::string data = data_folder();
  return data.empty() || !fs::exists(fs::path(data) / "llama2c") ? "" : data + "/llama2c/";
}

std::string stories(const std::string& folder, const std::string& flags) {
  return "generate " + folder + "stories260K.bin --tokenizer " + folder + "tok512.bin " + flags;
}

}  // namespace

TEST_CASE("generate: the greedy text is llama2.c's") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  std::string expected = read(folder + "stories260K.expected.txt");
  while (!expected.empty() && expected.back() == '\n') expected.pop_back();
  for (const char* more : {"--threads 1", "--threads 2", "--context 512"}) {
    const Result r = harmonics(stories(folder, std::string("--temperature 0 --max-tokens 256 ") + more));
    INFO(r.err);
    REQUIRE(r.code == 0);
    CHECK(r.out == expected + "\n");
  }
}

TEST_CASE("generate: the prompt is continued, and the object says how far") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  const std::string flags = "--prompt 'Once upon a time' --max-tokens 64 --temperature 0 ";
  const Result text = harmonics(stories(folder, flags)), object = harmonics(stories(folder, flags + "--json"));
  REQUIRE(text.code == 0);
  REQUIRE(object.code == 0);
  CHECK(text.out.rfind("Once upon a time, there was a little girl named Lily.", 0) == 0);
  const json::value v = json::parse(object.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/generate.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  CHECK(text.out == "Once upon a time" + std::string(v.at("text").as_string()) + "\n");
  CHECK(v.at("tokens").as_int64() == 64);
  CHECK(v.at("stopped_by").as_string() == "tokens");
  CHECK(has(text.err, "64 tokens in "));
}

TEST_CASE("generate: a seed gives one text, another seed another") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  const auto text = [&](const std::string& flags) {
    const Result r = harmonics(stories(folder, "--max-tokens 40 --quiet " + flags));
    REQUIRE(r.code == 0);
    return r.out;
  };
  CHECK(text("--seed 7") == text("--seed 7 --threads 1"));
  CHECK(text("--seed 7") != text("--seed 8"));
}

TEST_CASE("generate: in other types of weights and caches") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  for (const char* types : {"--cache-type f16", "--cache-type bf16", "--weight-type bf16",
                            "--weight-type q8_0 --cache-type f16", "--weight-type q8_0 --precision fp32"}) {
    const Result r = harmonics(stories(folder, std::string("--temperature 0 --max-tokens 20 ") + types));
    INFO(types << "\n" << r.err);
    REQUIRE(r.code == 0);
    CHECK(r.out.rfind("Once upon a time, there was a little", 0) == 0);
  }
  CHECK(harmonics(stories(folder, "--weight-type q9")).code == 2);
  const Result narrow = harmonics(stories(folder, "--cache-type q8_0"));  // its heads have width 8
  CHECK(narrow.code == 2);
  CHECK(has(narrow.err, "its heads are 8 wide, and a cache of q8_0 needs whole blocks of 32"));
}

TEST_CASE("generate: devices without kernels for blocks compute with decoded weights") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  const bool opencl = has(harmonics("list devices").out, "opencl");
  for (const char* type : {"q8_0", "q4_0"}) {
    const auto text = [&](const std::string& device) {
      const Result r = harmonics(stories(folder, std::string("--temperature 0 --max-tokens 12 --precision fp32") +
                                                     " --weight-type " + type + " --device " + device));
      INFO(type << " on " << device << "\n" << r.err);
      REQUIRE(r.code == 0);
      return r.out;
    };
    const std::string expected = text("cpu");
    CHECK(text("reference") == expected);
    if (opencl) CHECK(text("opencl") == expected);
  }
}

TEST_CASE("generate: packed weights in blocks give the same text") {
  if (!has(harmonics("list importers").out, "gguf")) return;
  const Folder f;
  const std::string model = f / "model.gguf";
  REQUIRE(std::system((std::string(HARMONICS_BINARY_DIR) + "/bin/make_model tiny q4_k_m " + model).c_str()) == 0);
  const auto text = [&](const std::string& flags) {
    const Result r = harmonics("generate " + model + " 'a long text' --max-tokens 40 --temperature 0 --json " + flags);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return json::parse(r.out).at("text");
  };
  const json::value packed = text("");
  CHECK(packed == text("--packed-cache off"));  // as stored in the file
  CHECK(packed == text("--precision int8"));    // the default for texts
  CHECK(packed == text(""));                    // from the stored packed forms
}

TEST_CASE("generate: what is wrong is said with the remedy") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  const Result missing = harmonics("generate " + folder + "stories260K.bin");
  CHECK(missing.code == 2);
  CHECK(has(missing.err, "'generate' lacks --tokenizer FILE: '" + folder + "stories260K.bin' has no tokenizer in it"));
  // The tokenizer is opened beside the model. Of the errors of both, its own is said.
  const std::string unknown = "the spec 'llama.json' has no variable 'nothing'";
  const Result both = harmonics("generate " + folder + "stories260K.bin --set nothing=1");
  CHECK(has(both.err, "'generate' lacks --tokenizer FILE"));
  CHECK_FALSE(has(both.err, unknown));
  CHECK(has(harmonics(stories(folder, "--set nothing=1")).err, unknown));
  const Result swapped = harmonics("generate " + folder + "tok512.bin --tokenizer " + folder + "tok512.bin");
  CHECK(swapped.code != 0);
  CHECK(has(swapped.err, "tok512.bin"));
  const Result longer = harmonics(stories(folder, "--context 4 --prompt 'Once upon a time there was'"));
  CHECK(longer.code == 2);
  CHECK(has(longer.err, "but the context has room for 4 of 4"));
  CHECK(has(longer.err, "shorten the prompt, or give a larger --context"));
  CHECK_FALSE(has(harmonics(stories(folder, "--context 512 --max-tokens 1")).err, "was trained for"));
  CHECK(
      has(harmonics(stories(folder, "--context 513 --max-tokens 1")).err, "--context 513 exceeds the 512 tokens that"));
  const Result full = harmonics(stories(folder, "--context 8 --temperature 0 --max-tokens 50"));
  CHECK(full.code == 0);
  CHECK(has(full.err, "the context of 8 tokens is full: give a larger --context"));
}

TEST_CASE("generate: names of a hub are refused with the command that downloads the model") {
  const auto advice = [](const std::string& arguments) {
    const Result r = harmonics(arguments);
    CHECK(r.code != 0);
    const std::string before = "models are not downloaded automatically; to download one: ";
    const size_t at = r.err.find(before);
    return at == std::string::npos ? "" : r.err.substr(at + before.size(), r.err.find('\n', at) - at - before.size());
  };
  const std::string whole = "hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B";
  for (const char* name : {"Qwen/Qwen3-0.6B", "hf.co/Qwen/Qwen3-0.6B", "hf:Qwen/Qwen3-0.6B", "hf://Qwen/Qwen3-0.6B",
                           "https://huggingface.co/Qwen/Qwen3-0.6B"}) {
    INFO(name);
    for (const char* verb : {"generate ", "chat ", "serve ", "embed ", "bench ", "quantize ", "pull "})
      CHECK(advice(verb + std::string(name) +
                   (*verb == 'e'   ? " text"
                    : *verb == 'q' ? " /tmp/none.gguf"
                                   : "")) == whole);
  }
  const std::string file = " --include '*Q4_K_M*.gguf' --local-dir a-GGUF";
  CHECK(advice("generate b/a-GGUF") == "hf download b/a-GGUF" + file);
  CHECK(advice("generate hf.co/b/a-GGUF:Q8_0") == "hf download b/a-GGUF --include '*Q8_0*.gguf' --local-dir a-GGUF");
  CHECK(advice("generate https://huggingface.co/b/a-GGUF/resolve/main/sub/a.gguf") ==
        "hf download b/a-GGUF sub/a.gguf --local-dir a-GGUF");
  CHECK(advice("pull") == "hf download OWNER/NAME --include '*Q4_K_M*.gguf' --local-dir NAME");
  for (const char* name : {"models/llama.gguf", "none.gguf", "'b/$(id)'", "../a", "/b/a", "b/c/a"}) {
    INFO(name);
    CHECK(advice("generate " + std::string(name)) == "");
  }
  const Folder f;  // an existing folder is not mistaken for a hub's name
  fs::create_directories(f / "b");
  CHECK(advice("generate " + (f / "b/a")) == "");
}

TEST_CASE("generate: a GGUF file brings its tokenizer along") {
  const std::string data = data_folder();
  const std::string path = data + "/gguf/llama-2-tiny-random.gguf";
  if (data.empty() || !fs::exists(path)) return;
  const Result r = harmonics("generate " + path + " --prompt 'Hello world' --max-tokens 3 --temperature 0");
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(r.out.rfind("Hello world", 0) == 0);
  CHECK(has(r.err, "3 tokens in "));
  const Result shown = harmonics("inspect " + path);
  REQUIRE(shown.code == 0);
  CHECK(has(shown.out, "importer gguf"));
}

TEST_CASE("generate: a stop text ends the text, and filters choose among the likely tokens") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  const std::string flags = "--prompt 'Once upon a time' --max-tokens 64 ";
  const Result stopped = harmonics(stories(folder, flags + "--temperature 0 --stop ' named' --stop zzz --json"));
  REQUIRE(stopped.code == 0);
  const json::value v = json::parse(stopped.out);
  CHECK(v.at("text").as_string() == ", there was a little girl");
  CHECK(v.at("stopped_by").as_string() == "stop");
  const Result greedy = harmonics(stories(folder, flags + "--temperature 0 --quiet"));
  const Result narrow = harmonics(stories(folder, flags + "--top-k 1 --seed 3 --quiet"));
  CHECK(narrow.out == greedy.out);
  const Result turned = harmonics(stories(folder, flags + "--temperature 0 --repeat-penalty 3 --quiet"));
  CHECK(turned.out != greedy.out);
  const Result wrong = harmonics(stories(folder, flags + "--top-p 0"));
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "--top-p"));
}

TEST_CASE("generate: drafted tokens do not change a text") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  const std::string flags = "--max-tokens 60 --seed 3 --quiet ";
  const std::string with_draft = "--draft " + folder + "stories260K.bin ";
  for (const std::string temperature : {"--temperature 0 ", "--temperature 0.8 "}) {
    const Result plain = harmonics(stories(folder, flags + temperature));
    REQUIRE(plain.code == 0);
    const Result looked_up = harmonics(stories(folder, flags + temperature + "--lookup 3 --draft-tokens 4"));
    INFO(looked_up.err);
    CHECK(looked_up.out == plain.out);
    if (temperature == "--temperature 0 ")
      CHECK(harmonics(stories(folder, flags + temperature + with_draft)).out == plain.out);
  }
  const Result object = harmonics(stories(folder, "--max-tokens 30 --temperature 0.7 --json " + with_draft));
  INFO(object.err);
  REQUIRE(object.code == 0);
  const json::value v = json::parse(object.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/generate.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  CHECK(v.at("accepted").as_int64() == v.at("drafted").as_int64());  // draft model and model are equal
  CHECK(v.at("accepted").as_int64() > 15);
  CHECK(has(harmonics(stories(folder, "--max-tokens 20 " + with_draft)).err, " drafted tokens accepted"));
  CHECK(harmonics(stories(folder, "--lookup 3 " + with_draft)).code == 2);
  CHECK(has(harmonics(stories(folder, "--draft-tokens 3")).err, "--draft-tokens needs --draft MODEL or --lookup N"));
}

TEST_CASE("generate: a session goes on where it ended") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  const Folder f;
  const std::string flags = "--seed 5 --quiet --repeat-penalty 1.1 ",
                    session = "--session " + (f / "text.session") + " ";
  const Result whole = harmonics(stories(folder, flags + "--prompt 'Once upon a time' --max-tokens 50"));
  REQUIRE(whole.code == 0);
  std::string text;
  for (const char* part : {"--prompt 'Once upon a time' --max-tokens 20", "--max-tokens 30"}) {
    const Result r = harmonics(stories(folder, flags + session + part));
    INFO(r.err);
    REQUIRE(r.code == 0);
    text += r.out.substr(0, r.out.size() - 1);
  }
  CHECK(text + "\n" == whole.out);
  const Result inside = harmonics("inspect " + (f / "text.session"));
  CHECK(inside.code == 0);
  CHECK(has(inside.out, "state/000000"));
  const Result other = harmonics(stories(folder, flags + session + "--cache-type f16"));
  CHECK(other.code != 0);
  CHECK(has(other.err, "text.session' has the caches"));
  const std::string bytes = read(f / "text.session");
  const std::string cut = f.write("cut.session", bytes.substr(0, bytes.size() - 100));
  const Result damaged = harmonics(stories(folder, "--session " + cut));
  CHECK(damaged.code != 0);
  CHECK(has(damaged.err, "cut.session"));
  CHECK(read(cut).size() == bytes.size() - 100);
}

TEST_CASE("generate: a full context shifts if it may") {
  const std::string folder = folder_of_stories();
  if (folder.empty()) return;
  const Result r =
      harmonics(stories(folder, "--context 24 --max-tokens 60 --temperature 0 --overflow shift --keep 4 --json"));
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(json::parse(r.out).at("tokens").as_int64() == 60);
  const Result kept = harmonics(stories(folder, "--context 24 --overflow shift --keep 23"));
  CHECK(kept.code == 2);
  CHECK(has(kept.err, "keeping 23 tokens leaves none to drop of a context of 24"));
}
