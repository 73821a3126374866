// The same weights in every form that a verb writes, given to every verb that reads them.
#include <map>

#include <boost/json.hpp>

#include "tests/journeys/replies.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

bool reads_folders() { return harmonics("list importers").out.find("huggingface") != std::string::npos; }

constexpr const char* kSmall =
    "name: Small\n"
    "type: model\n"
    "architecture:\n"
    "  variant: dense\n"
    "  block: [{op: RMSNorm}, {op: CausalSelfAttention}, {op: SwiGLU_FFN}]\n"
    "config: {vocab_size: 256, hidden_size: 32, num_layers: 2, num_query_heads: 4, num_kv_heads: 2, "
    "intermediate_size: 48, max_position_embeddings: 64}\n";

// A small model that 'train' has trained for a few steps.
struct Trained : Folder {
  std::string model = write("small.ndsl", kSmall), rows = write("rows.csv", "1,2,3,4\n5,6,7,8\n"), out = *this / "out";
  explicit Trained(const std::string& more = "") {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "the cat sat on the mat. ";
    const std::string config =
        write("c.yaml", "model_dsl: " + model + "\ntokenizer: bytes\ndatasets: " + write("text.txt", text) +
                            "\nsequence_len: 32\nmicro_batch_size: 2\nmax_steps: 4\n"
                            "learning_rate: 1e-2\n" +
                            more + "output_dir: " + out + "\n");
    REQUIRE(harmonics("train " + config + " --quiet").code == 0);
  }
  std::string scores(const std::string& model_and_weights) const {
    const Result result = harmonics("infer " + model_and_weights + " --producer tokens=" + rows + "#0-3 --quiet");
    INFO(result.err);
    CHECK(result.code == 0);
    return result.out;
  }
  std::string text(const std::string& model_and_weights) const {
    const Result result = harmonics("generate " + model_and_weights + " 'the cat' --temperature 0 --max-tokens 8 -q");
    INFO(result.err);
    CHECK(result.code == 0);
    return result.out;
  }
};

}  // namespace

TEST_CASE("forms: a .ndsl file takes weights in every form that train and export write") {
  if (!reads_folders()) return;  // built without PCRE2
  const Trained f;
  const std::string whole = f.scores(f.out + "/model"), text = f.text(f.out + "/model");
  REQUIRE(!whole.empty());
  for (const char* name : {"a.gguf", "a.safetensors", "a/"})
    REQUIRE(harmonics("export " + f.out + "/model " + (f / name)).code == 0);
  const std::string forms[] = {
      f.out + "/model", f.out + "/weights.safetensors",    f.out + "/checkpoints", f / "a.gguf", f / "a.safetensors",
      f / "a",          f.out + "/model/model.safetensors"};
  for (const std::string& form : forms) {
    INFO(form);
    CHECK(f.scores(f.model + " --weights " + form) == whole);
    CHECK(f.text(f.model + " --weights " + form + " --tokenizer " + f.out + "/tokenizer.json") == text);
    CHECK(harmonics("explain " + f.model + " --weights " + form + " --show entries").code == 0);
  }
  CHECK(f.text(f.model + " --weights " + (f / "a.gguf")) == text);  // with the tokenizer of the file
  const Result other =
      harmonics("infer Llama2 --weights " + f.out + "/weights.safetensors --producer tokens=" + f.rows);
  CHECK(other.code == 65);
}

TEST_CASE("forms: quantize reads every form of a model and export keeps its vocabulary") {
  if (!reads_folders()) return;
  const Trained f;
  const std::string model = f.out + "/model";
  REQUIRE(harmonics("export " + model + " " + (f / "a.safetensors")).code == 0);
  REQUIRE(harmonics("quantize " + model + " " + (f / "b.gguf")).code == 0);
  REQUIRE(harmonics("quantize " + (f / "a.safetensors") + " " + (f / "c.gguf")).code == 0);
  CHECK(f.scores(f / "c.gguf") == f.scores(f / "b.gguf"));
  CHECK(f.text(f / "c.gguf") == f.text(f / "b.gguf"));
  CHECK_FALSE(fs::exists(f / "c.gguf.whole.gguf"));
  REQUIRE(harmonics("export " + (f / "b.gguf") + " " + (f / "d.safetensors")).code == 0);
  REQUIRE(harmonics("export " + (f / "d.safetensors") + " " + (f / "e.gguf")).code == 0);
  CHECK(f.text(f / "e.gguf") == f.text(f / "b.gguf"));  // a vocabulary of bytes has no merges
  const Result planned = harmonics("quantize " + (f / "b.gguf") + " --dry-run --requantize --json");
  CHECK(json::parse(planned.out).at("relative_error").is_null());
}

TEST_CASE("forms: export refuses a tokenizer that it would not write") {
  if (!reads_folders()) return;
  const Trained f;
  const std::string tokenizer = " --tokenizer " + f.out + "/tokenizer.json", weights = " --weights " + f.out;
  const Result file = harmonics("export " + f.model + " " + (f / "a.gguf") + weights + "/model" + tokenizer);
  CHECK(file.code == 2);
  CHECK(has(file.err, "--tokenizer is for Hugging Face folders"));
  CHECK(harmonics("export " + f.model + " " + (f / "a/") + weights + "/weights.safetensors" + tokenizer).code == 0);
  CHECK(f.text(f / "a") == f.text(f.out + "/model"));
}

TEST_CASE("forms: weights without their model name the remedy") {
  if (!reads_folders()) return;
  const Trained f("lora: {r: 2}\nmodel_settings: {num_layers: 2}\n");
  const std::string saved = f.out + "/weights.safetensors", base = f / "base.gguf";
  const Result alone = harmonics("generate " + saved + " hi");
  CHECK(alone.code == 65);
  CHECK(has(alone.err, "has tensors, but no description of their model\nhelp: give it as --weights"));
  REQUIRE(harmonics("export " + f.model + " " + base + " --quiet").code == 0);
  const std::string expected = f.scores(base + " --lora " + f.out + "/adapter");
  CHECK(f.scores(base + " --lora " + f.out + "/adapter/adapter_model.safetensors") == expected);
  const Result adapter = harmonics("explain " + base + " --lora " + saved);
  CHECK(adapter.code == 65);
  CHECK(has(adapter.err, "is not an adapter\nhelp: adapters are PEFT folders and GGUF files"));
  for (const std::string& model : {"export " + base + " " + (f / "m.gguf"), "explain " + f.model + " --show entries"}) {
    const Result without = harmonics(model + " --weights " + saved);
    CHECK(without.code == 0);
    CHECK(has(without.err, "also has an adapter, which is not applied: --lora takes its folder"));
  }
  const std::string with_base = f.model + " --weights " + saved + " --lora " + f.out + "/adapter";
  CHECK_FALSE(f.scores(with_base) == f.scores(f.model + " --weights " + saved));
}

TEST_CASE("forms: FLOPs of an entry are those of its results") {
  const Folder f;
  const std::string model = f.write("small.ndsl", kSmall);
  const json::value shown = json::parse(harmonics("explain " + model + " --show entries --json").out);
  std::map<std::string, double> flops;
  for (const json::value& entry : shown.at("entries").as_array())
    flops[std::string(entry.at("name").as_string())] = entry.at("flops").to_number<double>();
  CHECK(flops.at("forward") - flops.at("embed") == 2 * 32 * 256);  // the product with the head
  CHECK(flops.at("prefill") < flops.at("decode") - 2 * 32 * 256);
}

TEST_CASE("forms: a folder of checkpoints stands for its newest") {
  const Folder f;
  const std::string flow = f.write("x.hmx",
                                   "harmonic x { producer x{2}; producer y{1}; layer o{1};\n"
                                   "  cycle { x -> o; o <-(mse)- y; } }\n"),
                    data = f.write("x.csv", "a,b,c\n1,2,3\n4,5,6\n7,8,9\n");
  const std::string bound = " --producer 'x=" + data + "#0-1'", both = bound + " --producer 'y=" + data + "#2'";
  REQUIRE(harmonics("run " + flow + both + " --epochs 3 --checkpoint " + (f / "runs") + " --save " +
                    (f / "w.safetensors") + " -q")
              .code == 0);
  const Result saved = harmonics("infer " + flow + bound + " -q --weights " + (f / "w.safetensors"));
  REQUIRE(saved.code == 0);
  CHECK(harmonics("infer " + flow + bound + " -q --weights " + (f / "runs")).out == saved.out);
  REQUIRE(harmonics("export " + (f / "runs") + " " + (f / "e.gguf")).code == 0);
  CHECK(harmonics("infer " + flow + bound + " -q --weights " + (f / "e.gguf")).out == saved.out);
}

TEST_CASE("forms: bench and embed take a .ndsl file with its weights and profile and train name the verb for a model") {
  if (!reads_folders()) return;
  const Trained f;
  const std::string both = f.model + " --weights " + f.out + "/model";
  const Result measured = harmonics("bench " + both + " --prefill 4 --decode 2 --repeat 1 --json");
  CHECK(number(measured.out, "parameters") == 31'904);
  CHECK(has(harmonics("bench " + f.model).err, "lacks --weights FOLDER"));
  const auto vector_of = [](const std::string& model) {
    const Result result = harmonics("embed " + model + " hi --json");
    CHECK(result.code == 0);
    return json::parse(result.out).at("embeddings");
  };
  CHECK(vector_of(both) == vector_of(f.out + "/model"));
  CHECK(harmonics("importance " + both + " " + (f / "text.txt") + " " + (f / "i.gguf") + " --chunk 32").code == 0);
  CHECK(has(harmonics("profile " + f.out + "/model").err, "help: harmonics bench " + f.out + "/model measures"));
  const Result trained = harmonics("train " + f.out + "/model");
  CHECK(trained.code == 2);
  CHECK(has(trained.err, "help: name it in a configuration: model: " + f.out + "/model"));
}

TEST_CASE("forms: messages about files tell what is wrong with them") {
  const Folder f;
  fs::create_symlink("nowhere", f / "link.gguf");
  const Result dangling = harmonics("explain " + (f / "link.gguf"));
  CHECK(dangling.code == 66);
  CHECK(has(dangling.err, "help: it is a symbolic link to 'nowhere', which does not exist"));
  CHECK(has(harmonics("explain " + f.write("empty.gguf", "")).err, "empty.gguf' is empty"));
  CHECK(has(harmonics("validate -").err, "help: '-' is the name of a file here: standard input is /dev/stdin"));
  CHECK(
      has(harmonics("explain " + (f / "empty.gguf") + " --weights ''").err, "--weights lacks its FILE: the value is"));
  const std::string flow =
                        f.write("x.hmx", "harmonic x { producer x{1}; layer y{1}; cycle { x -> y; y <-(mse)- x; } }"),
                    saved = f / (std::string(300, 'a') + ".safetensors");
  const Result named = harmonics("run " + flow + " --producer x=" + f.write("x.csv", "1\n2\n") + " --save " + saved);
  CHECK(named.code == 73);
  CHECK(has(named.err, "File name too long\nhelp: give a shorter name"));
  CHECK_FALSE(has(named.err, "epoch 1"));  // before the first step
  const Result missing = harmonics("ckpt list " + (f / "none") + " --json");
  CHECK(missing.code == 66);
  CHECK(json::parse(missing.out).at("error").at("kind").as_string() == "no input");
  const std::string here = fs::current_path().string();
  fs::current_path(f / "");
  f.write("-m.hmx", "harmonic x { producer x; layer y{1}; x -> y; }");
  CHECK(has(harmonics("validate -m.hmx").err, "help: for the file of this name: ./-m.hmx"));
  fs::current_path(here);
}
