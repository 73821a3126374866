// Adapters that `train` writes for 4-bit weights give the same text applied, merged and exported.
#include "tests/journeys/replies.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

bool reads_folders() { return harmonics("list importers").out.find("huggingface") != std::string::npos; }

std::string sentences(const Folder& f, const std::string& name, const std::string& sentence) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += sentence;
  return f.write(name, text);
}

void succeed(const std::string& arguments) {
  const Result result = harmonics(arguments);
  INFO(arguments << "\n" << result.err);
  REQUIRE(result.code == 0);
}

std::string text_after(const std::string& prompt, const std::string& model) {
  const Result result = harmonics("generate " + model + " '" + prompt + "' --temperature 0 --max-tokens 12 --json");
  INFO(model << "\n" << result.err);
  REQUIRE(result.code == 0);
  return std::string(json::parse(result.out).at("text").as_string());
}

// A base model of two layers that learned one sentence, and adapters that learn another one.
struct AdaptedTraining {
  Folder f;
  std::string model, base, other;

  explicit AdaptedTraining(const std::string& name, const std::string& settings) : model(name) {
    const std::string text = sentences(f, "first.txt", "the cat sat on the mat. ");
    other = sentences(f, "second.txt", "the cow ran to the sea. ");
    succeed("train " +
            f.write("base.yaml", "model_dsl: " + model +
                                     "\nmodel_settings: {num_layers: 2, hidden_size: 64, num_query_heads: 4, "
                                     "max_position_embeddings: 64, vocab_size: 256, " +
                                     settings + "}\ntokenizer: bytes\ndatasets: " + text +
                                     "\nsequence_len: 32\nmicro_batch_size: 8\nmax_steps: 120\n"
                                     "learning_rate: 1e-2\nwarmup_steps: 5\noutput_dir: " +
                                     (f / "base") + "\n") +
            " --quiet");
    base = f / "base/model";
  }

  // Trains an adapter and returns its folder.
  std::string adapter(const std::string& name, const std::string& lora, const std::string& more = "") const {
    succeed("train " +
            f.write(name + ".yaml", "model: " + base + "\ndatasets: " + other + "\nlora: {" + lora +
                                        "}\nsequence_len: 32\nmicro_batch_size: 8\n"
                                        "max_steps: 240\nlearning_rate: 1e-2\nwarmup_steps: 5\noutput_dir: " +
                                        (f / name) + "\n" + more) +
            " --quiet");
    return f / (name + "/adapter");
  }
};

}  // namespace

TEST_CASE("lora: an adapter trained over 4 bits gives the same text applied, merged and exported") {
  if (!reads_folders()) return;  // built without PCRE2
  const AdaptedTraining t("Llama3", "num_kv_heads: 2, intermediate_size: 128");
  const std::string lora = "r: 8, alpha: 16, target_modules: [q_proj, v_proj, up_proj, down_proj], base: nf4_64",
                    plain = t.adapter("plain", lora), again = t.adapter("again", lora, "recompute: [block, lora]\n");
  CHECK(read(plain + "/adapter_model.safetensors") == read(again + "/adapter_model.safetensors"));

  const std::string prompt = "the cow", learned = text_after(prompt, t.base + " --lora " + again);
  CHECK(learned == " ran to the ");
  CHECK(text_after(prompt, t.base) != learned);

  const Folder& f = t.f;
  const std::string from_folder = f / "merged/", from_description = f / "described/", gguf = f / "merged.gguf";
  succeed("export " + t.base + " " + from_folder + " --lora " + again);
  CHECK(text_after(prompt, from_folder) == learned);
  const std::string described = t.base + "/model.ndsl";
  CHECK(text_after(prompt, described + " --weights " + t.base + " --lora " + again) == learned);
  succeed("export " + described + " " + from_description + " --weights " + t.base + " --lora " + again);
  CHECK(read(from_description + "model.safetensors") == read(from_folder + "model.safetensors"));
  CHECK(text_after(prompt, from_description) == learned);
  succeed("export " + described + " " + gguf + " --weights " + t.base + " --lora " + again + " --quiet");
  CHECK(text_after(prompt, gguf + " --tokenizer " + t.base + "/tokenizer.json") == learned);

  const Result output = harmonics("generate " + t.base + " a --lora " + (f / "again"));
  CHECK(has(output.err, "and so no adapter\nhelp: did you mean '" + again + "'?\n"));
  const Result alone = harmonics("generate " + again + " a");
  CHECK(has(alone.err, "help: it has an adapter: give its model, and --lora " + again + "\n"));
  const Result without = harmonics("export " + described + " " + (f / "none/") + " --lora " + again);
  CHECK(without.code == 2);
  CHECK(has(without.err, "--lora changes weights"));
  CHECK(has(without.err, "--weights FOLDER"));
}

TEST_CASE("lora: train continues an adapter, which is then the reference of preferences") {
  if (!reads_folders()) return;
  const AdaptedTraining trained("Llama3", "num_kv_heads: 2, intermediate_size: 128");
  const Folder& f = trained.f;
  const std::string first =
      trained.adapter("first", "r: 4, alpha: 8, target_modules: [q_proj, v_proj], use_rslora: true");
  const auto rows = [&](const std::string& keys) {
    const Result run =
        harmonics("train " + f.write("more.yaml", "model: " + trained.base + "\nlearning_rate: 1e-3\n" +
                                                      "logging_steps: 1\nmax_steps: 2\noutput_dir: " + (f / "more") +
                                                      "\n" + keys));
    INFO(run.err);
    REQUIRE(run.code == 0);
    const std::string text = read(f / "more/log.jsonl");
    fs::remove_all(f / "more");
    return std::pair(json::parse(text.substr(0, text.find('\n'))).at("metrics").as_object(), run.err);
  };
  const std::string data = "datasets: " + trained.other + "\nsequence_len: 32\n";
  const std::string settings = "adapter: lora\nlora_model_dir: " + first + "\n";
  const auto [further, notes] = rows(data + settings + "lora_r: 16\nlora_alpha: 64\n");
  CHECK(further.at("loss").to_number<double>() < 1);
  CHECK(has(notes, "note: r, alpha of 'lora' have no effect: the adapter '" + first + "' has its own\n"));
  CHECK(rows(data + "lora: {r: 4}\n").first.at("loss").to_number<double>() > 1);

  const std::string pairs =
      f.write("pairs.json", R"([{"prompt": "the cow ", "chosen": "ran to", "rejected": "sat on"}])");
  const std::string config = "datasets: [{path: " + pairs + ", type: preference}]\ndpo: {}\nsequence_len: 64\n";
  for (const std::string base : {"", ", base: q8_0"}) {
    const auto metrics = rows(config + "lora: {from: " + first + base + "}\n").first;
    INFO(base);
    CHECK(std::abs(metrics.at("loss").to_number<double>() - std::log(2)) < 1e-6);
    CHECK(metrics.at("rewards/chosen").to_number<double>() == 0);
  }
  const Result none =
      harmonics("train " + f.write("none.yaml", "model: " + trained.base + "\n" + data +
                                                    "lora: {from: nowhere}\noutput_dir: " + (f / "none") + "\n"));
  CHECK(none.code != 0);
  CHECK(has(none.err, "error: there is no adapter 'nowhere'\n"));
  const Result commas =
      harmonics("train " + f.write("commas.yaml", "model: " + trained.base + "\n" + data + "lora: {from: \"a,b\"}\n"));
  CHECK(has(commas.err, "give a path without commas"));
}

TEST_CASE("lora: an adapter of a described model has the modules of its hf_mapping") {
  if (!reads_folders()) return;
  const AdaptedTraining t("GPT2", "intermediate_size: 128");
  const std::string adapter = t.adapter("own", "r: 8, alpha: 16, target_modules: [c_fc, o_proj]");
  CHECK(has(harmonics("inspect " + adapter + "/adapter_model.safetensors").out,
            "base_model.model.transformer.h.1.mlp.c_fc.lora_A.weight"));
  const std::string learned = text_after("the cow", t.base + " --lora " + adapter), merged = t.f / "merged/";
  CHECK(learned != text_after("the cow", t.base));
  succeed("export GPT2 " + merged + " --weights " + t.base + " --lora " + adapter);
  CHECK(text_after("the cow", merged) == learned);

  const std::string of_embedding = t.adapter("embedding", "r: 2, alpha: 4, target_modules: [embed_tokens]");
  const Result shared = harmonics("export GPT2 " + merged + " --weights " + t.base + " --lora " + of_embedding);
  CHECK(shared.code != 0);
  CHECK(has(shared.err, "an adapter changes 'token_embd.weight' as the embedding of "));
  CHECK(has(shared.err, "which uses it as the head too\nhelp: give the adapter to the command that runs the model"));
}

TEST_CASE("lora: weights that a run saved take an adapter when they are exported") {
  if (!reads_folders()) return;
  const AdaptedTraining t("Llama3", "num_kv_heads: 2, intermediate_size: 128");
  const std::string adapter = t.adapter("own", "r: 8, alpha: 16"), saved = t.f / "base/weights.safetensors",
                    merged = t.f / "merged/";
  succeed("export " + t.base + "/model.ndsl " + merged + " --weights " + saved + " --lora " + adapter +
          " --tokenizer " + t.base);
  CHECK(text_after("the cow", merged) == text_after("the cow", t.base + " --lora " + adapter));
}
