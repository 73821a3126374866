// Adapters trained by a flow, written, and used by the commands that run models.
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

const std::string kAdapted = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/architectures/";

bool reads_gguf() { return has(harmonics("list importers").out, "gguf"); }

// A flow with its model and a text of letters.
struct AdapterFlow {
  Folder folder;
  std::string flow, streams, model;

  explicit AdapterFlow(const std::string& arguments, const std::string& base = "llama") {
    model = folder / "base.gguf";
    fs::copy_file(kAdapted + base + ".gguf", model);
    flow = folder.write("adapted.hmx",
                        "harmonic adapted {\n  producer letters;\n  layer next;\n  cycle (batch=4) {\n"
                        "    letters -(model(\"base.gguf\"" +
                            arguments +
                            "))-> next;\n"
                            "    next <-(next_token)- letters;\n  }\n}\n");
    std::string text;
    for (int i = 0; i < 60; ++i) text += "the cat sat on the mat. ";
    streams = " --producer letters=file:" + folder.write("letters.txt", text) + "?window=16 --steps 30 --quiet ";
  }
};

}  // namespace

TEST_CASE("lora: a flow trains an adapter, and writes it as PEFT and GGUF do") {
  if (!reads_gguf()) return;
  for (const std::string ending : {"", ".gguf"}) {
    const AdapterFlow f(", lora=\"rank=3, alpha=6, targets=q_proj+v_proj+embed_tokens\"");
    const std::string adapter = f.folder / ("adapter" + ending);
    const Result r = harmonics("run " + f.flow + f.streams + "--save-adapter " + adapter);
    REQUIRE(r.code == 0);
    const Result shown = harmonics("explain " + f.model + " --lora " + adapter);
    REQUIRE(shown.code == 0);
    CHECK(has(shown.out, "blk.1.attn_v.weight                      rank 3, alpha 6, scale 2\n"));
    CHECK(has(shown.out, "token_embd.weight                        rank 3, alpha 6, scale 2\n"));
    CHECK(harmonics("export " + f.model + " " + (f.folder / "merged.gguf") + " --lora " + adapter).code == 0);
  }
}

TEST_CASE("lora: an adapter is trained further, and on top of another one") {
  if (!reads_gguf()) return;
  const AdapterFlow f(", lora=\"rank=2, targets=k_proj, dora\"");
  const std::string first = f.folder / "first", second = f.folder / "second";
  REQUIRE(harmonics("run " + f.flow + f.streams + "--save-adapter " + first).code == 0);
  const std::string text = read(f.flow);
  const auto with = [&](const std::string& arguments) {
    std::string changed = text;
    const size_t at = changed.find(", lora=");
    return f.folder.write("other.hmx", changed.replace(at, changed.find("))->") - at, arguments));
  };
  CHECK(harmonics("run " + with(", lora=\"from=first\"") + f.streams + "--save-adapter " + second).code == 0);
  CHECK(has(harmonics("explain " + f.model + " --lora " + second).out,
            "blk.0.attn_k.weight                      rank 2"));
  CHECK(harmonics("run " + with(", adapter=\"first\", lora=\"rank=3, targets=q_proj\"") + f.streams +
                  "--save-adapter " + second)
            .code == 0);
  CHECK(harmonics("run " + with(", type=nf4, lora=\"rank=3, targets=q_proj\"") + f.streams + "--save-adapter " + second)
            .code == 0);
}

TEST_CASE("lora: the sample trains a base of bytes, then an adapter alone") {
  const Folder f;
  std::string rows;
  for (int i = 0; i < 64 * 64; ++i) rows += static_cast<char>(i % 64 * 7 + i / 64 % 5);
  const std::string streams = " --producer 'tokens=file:" + f.write("rows.raw", rows) + "?dtype=u8&shape=64' --quiet";
  const std::string base = f / "base.safetensors", adapter = f / "adapter", own = f / "adapter.safetensors";
  REQUIRE(harmonics("run " + kSamples + "lora/base.hmx" + streams + " --steps 4 --save " + base).code == 0);
  const Result adapted = harmonics("run " + kSamples + "lora/lora.hmx" + streams + " --steps 4 --weights " + base +
                                   " --save-adapter " + adapter + " --save " + own);
  REQUIRE(adapted.code == 0);
  CHECK(has(adapted.err, "not in the file, starting fresh:\n  lm.blk.0.attn_"));
  CHECK(has(adapted.err, "\n  and 22 more\n"));
  CHECK(fs::exists(adapter + "/adapter_config.json"));
  CHECK(has(harmonics("inspect " + own).out, "lm.blk.1.ffn_down.weight.lora_B"));
  CHECK(harmonics("run " + kSamples + "lora/lora.hmx" + streams + " --steps 4 --weights " + own).code == 0);
}

TEST_CASE("lora: mistakes are named") {
  if (!reads_gguf()) return;
  const auto message = [](const std::string& arguments, const std::string& flags) {
    const AdapterFlow f(arguments);
    const Result r = harmonics("run " + f.flow + f.streams + flags);
    CHECK(r.code != 0);
    return r.err;
  };
  CHECK(has(message(", lora=\"rang=3\"", ""), "there is no setting 'rang'"));
  CHECK(has(message(", lora=\"targets=q_prj\"", ""), "did you mean 'q_proj'?"));
  CHECK(has(message(", lora=\"rank=2\", freeze=true", ""), "freeze=true"));
  CHECK(has(message("", "--save-adapter x"), "the flow trains no adapter"));
  CHECK(has(message(", lora=\"from=../elsewhere\"", ""), "is outside the folder of the flow"));
}
