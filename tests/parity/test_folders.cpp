// Hugging Face folders (make_folders.py): models have the scores of transformers, tokenizers the ids of tokenizers, and
// rewritten folders compute the same.
#include <catch2/catch.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>

#include <boost/json.hpp>

#include "engine/corpus/corpus_tokenizer.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/model/exported.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/trained_weights.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/message_of.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/model_results.hpp"

namespace harmonics::engine::parity {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolders[] = {"llama3", "qwen2", "gemma3", "qwen3moe", "bert"};

std::string golden_folder(const std::string& name) {
  return std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/" + name;
}

bool reads_folders() { return is_model(golden_folder("llama3"), Registry::global()); }

// A temporary folder.
class Scratch {
 public:
  Scratch() {
    std::string path = (fs::temp_directory_path() / "harmonics-folders-XXXXXX").string();
    path_ = ::mkdtemp(path.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string at(const std::string& name) const { return (path_ / name).string(); }
  // Returns a copy of a folder with a changed text in config.json.
  std::string changed(const std::string& name, const std::string& from, const std::string& to) const {
    const std::string copy = at(name + std::to_string(++copies_));
    fs::copy(golden_folder(name), copy);
    std::string text = text_of(copy + "/config.json");
    const size_t found = text.find(from);
    REQUIRE(found != std::string::npos);
    write(copy + "/config.json", text.replace(found, from.size(), to));
    return copy;
  }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

 private:
  fs::path path_;
  mutable int copies_ = 0;
};

std::vector<float> floats_of(const HTensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

std::string failure_of(const std::string& folder) {
  return message_of([&] { model_of(import_language_model(folder, Registry::global())); });
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<int32_t> ids_of(const boost::json::value& list) {
  return boost::json::value_to<std::vector<int32_t>>(list);
}

// `composes`: also with separate accents, which GGUF's tokenizers leave unchanged.
void check_tokenizer(const Tokenizer& tokenizer, const boost::json::array& cases, bool begins, bool composes = true) {
  REQUIRE(cases.size() >= 19);
  for (const boost::json::value& one : cases) {
    const std::string text(one.at("text").as_string());
    if (!composes && contains(text, "\xCC\x81")) continue;
    INFO(one);
    CHECK(tokenizer.encode(text, {false, false, true}) == ids_of(one.at("plain")));
    if (begins) CHECK(tokenizer.encode(text, {true, false, true}) == ids_of(one.at("whole")));
  }
}

// `turned`: GGUF orders a head's rows differently, so sums are rounded differently.
void check_folder(const std::string& name, const std::map<std::string, HTensor>& expected, bool turned) {
  INFO(name);
  const Scratch scratch;
  const HTensor& tokens = expected.at("tokens");
  const auto found = forward_results(model_of(import_model(golden_folder(name), Registry::global())), tokens);
  const std::string output = expected.count("scores") ? "scores" : "hidden";
  const HTensor &result = found.at(output), &values = expected.at(output);
  REQUIRE(result.size() == values.size());
  CHECK(relative_difference(floats_of(result), values.data<float>()) < 1e-4);

  const std::string gguf = scratch.at("model.gguf"), folder = scratch.at("folder/");
  write_again(golden_folder(name), gguf);
  write_again(gguf, folder);
  const auto again = [&](const std::string& written) {
    return floats_of(forward_results(model_of(import_model(written, Registry::global())), tokens).at(output));
  };
  CHECK(again(folder) == floats_of(result));
  if (!turned) {
    CHECK(again(gguf) == floats_of(result));
    return;
  }
  CHECK(relative_difference(again(gguf), floats_of(result).data()) < 1e-5);
  const std::string second = scratch.at("second.gguf");
  write_again(folder, second);
  CHECK(again(second) == again(gguf));
}

}  // namespace

TEST_CASE("folders: models have the results of transformers, and the same bits once written again") {
  if (!reads_folders()) return;  // built without PCRE2
  const TensorFile first = golden("folders.safetensors");
  for (const std::string name : kFolders) check_folder(name, below(first, name), name == "llama3");
  const TensorFile further = golden("further_architectures.safetensors");
  for (const std::string name : {"arcee", "cohere2", "olmo3", "olmoe", "starcoder2"})
    check_folder(name, below(further, name), name == "arcee");
  const TensorFile rest = golden("further_folders.safetensors");
  for (const std::string name :
       {"olmo2", "command-r", "ernie4_5", "seed_oss", "exaone4", "starcoder2-window", "stablelm", "glm4", "nemotron",
        "hunyuan-dense", "granitemoe", "nomic-bert", "exaone", "gpt-oss", "gpt-oss-mxfp4", "gptneox-serial"})
    check_folder(name, below(rest, name), name == "granitemoe");
}

TEST_CASE("folders: models that .ndsl texts describe have the results of transformers") {
  if (!reads_folders()) return;
  const TensorFile file = golden("further_folders.safetensors");
  for (const std::string name : {"phi", "gpt2", "gptneox", "qwen2moe"}) {
    INFO(name);
    const auto expected = below(file, name);
    const ImportedModel model = import_language_model(golden_folder(name), Registry::global());
    const HTensor result = forward_results(model_of(model), expected.at("tokens")).at("scores");
    CHECK(relative_difference(floats_of(result), expected.at("scores").data<float>()) < 1e-4);
  }
}

TEST_CASE("folders: settings that specs lack are described by .ndsl texts") {
  if (!reads_folders()) return;
  const TensorFile file = golden("described_folders.safetensors");
  for (const std::string name : {"llama", "qwen3", "gemma2", "qwen3moe", "mixtral", "gpt2"}) {
    INFO(name);
    const auto expected = below(file, name);
    const ImportedModel model = import_language_model(golden_folder("described/" + name), Registry::global());
    const HTensor result = forward_results(model_of(model), expected.at("tokens")).at("scores");
    CHECK(relative_difference(floats_of(result), expected.at("scores").data<float>()) < 1e-4);
  }
}

TEST_CASE("folders: settings that are missing or null have the values of transformers") {
  if (!reads_folders()) return;
  const Scratch scratch;
  const auto metadata = [&](const std::string& name, const std::string& from, const std::string& to) {
    return import_model(scratch.changed(name, from, to), Registry::global()).metadata;
  };
  CHECK(metadata("gemma3", "\"sliding_window\": 5", "\"sliding_window\": null")
            .integer("gemma3.attention.sliding_window") == 0);
  CHECK(metadata("llama3", "\"use_cache\": true", "\"sliding_window\": 5").has("llama.attention.sliding_window") ==
        false);
  const std::string mistral = scratch.changed("llama3", "LlamaForCausalLM", "MistralForCausalLM");
  CHECK(import_model(mistral, Registry::global()).metadata.integer("llama.attention.sliding_window") == 4096);
  const auto refused = [&](const char* name, const char* from, const char* to) {
    return failure_of(scratch.changed(name, from, to));
  };
  CHECK(contains(refused("gemma3", "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true"),
                 "use_bidirectional_attention is true, and only false is implemented for gemma3"));
  CHECK(contains(refused("olmo3", "\"rope_theta\": 10000.0", "\"rope_theta\": 100.0"),
                 ".sliding_attention.rope_theta is"));
  // Of a folder without the setting, transformers does not normalise the weights of experts; .ndsl models describe it.
  const auto is_described = [&](const char* from, const char* to) {
    return import_model(scratch.changed("qwen3moe", from, to), Registry::global()).metadata.has("huggingface.config");
  };
  CHECK_FALSE(is_described("\"use_cache\"", "\"use_cache\""));
  CHECK(is_described("\"norm_topk_prob\": true,", ""));
}

TEST_CASE("folders: GGUF files of architectures whose folders .ndsl texts describe are written as folders") {
  if (!reads_folders()) return;
  const TensorFile file = golden("further_architectures.safetensors");
  for (const std::string name : {"phi2", "gpt2", "gptneox", "gptneox_serial", "qwen2moe", "mixtral"}) {
    INFO(name);
    const Scratch scratch;
    const std::string folder = scratch.at("folder/");
    write_again(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/architectures/" + name + ".gguf", folder);
    const auto expected = below(file, name);
    const ImportedModel model = import_language_model(folder, Registry::global());
    const HTensor result = forward_results(model_of(model), expected.at("tokens")).at("scores");
    CHECK(relative_difference(floats_of(result), expected.at("scores").data<float>()) < 1e-4);
  }
}

TEST_CASE("folders: the rotated part of heads is read by its names") {
  if (!reads_folders()) return;
  const auto expected = below(golden("further_folders.safetensors"), "stablelm");
  const auto difference = [&](const std::string& other, const std::string& removed) {
    const Scratch scratch;
    const std::string folder = scratch.changed("stablelm", "\"partial_rotary_factor\": 0.34,", removed);
    std::string config = Scratch::text_of(folder + "/config.json");
    config.insert(config.find('{') + 1, other);
    Scratch::write(folder + "/config.json", config);
    const Model model = model_of(import_model(folder, Registry::global()));
    return relative_difference(floats_of(forward_results(model, expected.at("tokens")).at("scores")),
                               expected.at("scores").data<float>());
  };
  for (const char* name : {"partial_rotary_factor", "rope_pct", "rotary_pct", "rope_percent", "rotary_emb_fraction"}) {
    INFO(name);
    CHECK(difference("\"" + std::string(name) + "\": 0.34,", "") < 1e-4);
  }
  CHECK(difference("\"rotary_dim\": 2,", "") < 1e-4);
  CHECK(difference("\"partial_rotary_factor\": 1.0,", "\"partial_rotary_factor\": 0.34,") < 1e-4);  // transformers 5
  CHECK(difference("\"rotary_dim\": 6,", "") > 1e-2);
  const Scratch scratch;
  const std::string without = scratch.changed("stablelm", "\"partial_rotary_factor\": 0.34,", "");
  CHECK(import_model(without, Registry::global()).metadata.integer("stablelm.rope.dimension_count") == 1);  // 0.25
  const auto refused = [&](const char* to) {
    return failure_of(scratch.changed("stablelm", "\"use_cache\": true", to));
  };
  CHECK(contains(refused("\"rotary_dim\": 7"), ".rotary_dim is 7; a head has 6 dimensions"));
}

TEST_CASE("folders: trained weights are written in the order of rows that the folder's format has") {
  if (!reads_folders()) return;
  for (const std::string name : {"llama3", "granitemoe", "qwen3moe", "gptneox-serial"}) {
    INFO(name);
    const ImportedModel learner = import_language_model(golden_folder(name), Registry::global());
    DescribedOptions options;
    options.whole = true;
    const ImportedModel whole = import_language_model(golden_folder(name), Registry::global(), options);
    const auto learned = resolve_spec(learner), written = resolve_spec(whole);
    TensorFile trained;  // unchanged values
    each_weight(learner, *learned, [&](const std::string& parameter, const HTensor& tensor) {
      trained.tensors["scores.model." + parameter] = tensor;
    });
    for (const auto& [tensor, value] : trained_tensors(whole, *written, *learned, trained, "trained")) {
      INFO(tensor);
      const HTensor& original = whole.tensors.at(tensor);
      REQUIRE(type_of(value).str() == type_of(original).str());
      CHECK(std::memcmp(value.bytes(), original.bytes(), type_of(value).bytes()) == 0);
    }
  }
}

TEST_CASE("folders: mxfp4 stays mxfp4, and is written with the same bytes") {
  if (!reads_folders()) return;
  const Scratch scratch;
  const std::string name = "gpt-oss-mxfp4", folder = scratch.at("folder/");
  const ImportedModel model = import_model(golden_folder(name), Registry::global());
  CHECK(model.tensor("blk.0.ffn_up_exps.weight").dtype() == DType::MXFP4);
  CHECK(model.tensor("blk.0.ffn_up_exps.weight").shape() == Shape{3, 32, 32});
  CHECK(model.tensor("blk.1.ffn_down_exps.bias").dtype() == DType::F32);
  write_again(golden_folder(name), folder);
  const TensorFile before = read_safetensors(golden_folder(name) + "/model.safetensors"),
                   after = read_safetensors(folder + "model.safetensors");
  REQUIRE(after.tensors.size() == before.tensors.size());
  for (const auto& [tensor, value] : before.tensors) {
    INFO(tensor);
    const HTensor& again = after.tensors.at(tensor);
    REQUIRE(type_of(again).str() == type_of(value).str());
    CHECK(std::memcmp(again.bytes(), value.bytes(), type_of(value).bytes()) == 0);
  }
  CHECK(contains(Scratch::text_of(folder + "config.json"), "\"quant_method\": \"mxfp4\""));
}

TEST_CASE("folders: parts of weights that are missing or misshapen are named") {
  if (!reads_folders()) return;
  const Scratch scratch;
  const auto without = [&](const std::string& tensor, const std::string& other, const HTensor& value) {
    const std::string folder = scratch.changed("gpt-oss-mxfp4", "\"mxfp4\"", "\"mxfp4\"");
    TensorFile file = read_safetensors(folder + "/model.safetensors");
    file.tensors.erase(tensor);
    if (!other.empty()) file.tensors[other] = value;
    Scratch::write(folder + "/model.safetensors", write_safetensors(file));
    return failure_of(folder);
  };
  const std::string gate = "model.layers.0.mlp.experts.gate_up_proj";
  CHECK(contains(without(gate + "_scales", "", {}), "lacks its scales, '" + gate + "_scales'"));
  CHECK(contains(without(gate + "_scales", gate + "_scales", HTensor(DType::U8, Shape{3, 64, 2})),
                 "without one byte for each block of '" + gate + "_blocks'"));
  CHECK(contains(without(gate + "_blocks", "", {}), "'" + gate + "' ('blk.0.ffn_gate_exps.weight' of GGUF)"));
  CHECK(contains(without("", gate, HTensor(DType::F32, Shape{3, 32, 64})), "both whole and in blocks"));
  const std::string bias = gate + "_bias";
  CHECK(contains(without(bias, bias, HTensor(DType::F32, Shape{3, 63})), "of 63 rows, which are not two halves"));
  CHECK(contains(without(bias, bias, HTensor(DType::F32, Shape{3})), "of shape [3]"));
  CHECK(contains(failure_of(scratch.changed("granitemoe", "\"intermediate_size\": 20", "\"intermediate_size\": 22")),
                 "'model.layers.0.block_sparse_moe.input_linear.weight' in its file"));
}

TEST_CASE("folders: settings say whether biases exist") {
  if (!reads_folders()) return;
  const Scratch scratch;
  const std::string surplus =
      failure_of(scratch.changed("stablelm", "\"use_qkv_bias\": true", "\"use_qkv_bias\": false"));
  CHECK(contains(surplus, "'model.layers.0.self_attn.k_proj.bias'"));
  CHECK(contains(surplus, "does not compute with"));
  const std::string folder = scratch.changed("stablelm", "\"use_qkv_bias\": true", "\"use_qkv_bias\": true");
  TensorFile file = read_safetensors(folder + "/model.safetensors");
  file.tensors.erase("model.layers.1.self_attn.v_proj.bias");
  Scratch::write(folder + "/model.safetensors", write_safetensors(file));
  CHECK(contains(failure_of(folder), "lacks the tensor 'model.layers.1.self_attn.v_proj.bias'"));
}

TEST_CASE("folders: scaled positions of blocks without a window are written by the kind of block") {
  if (!reads_folders()) return;
  const Scratch scratch;
  write_again(golden_folder("olmo3"), scratch.at("folder/"));
  const boost::json::value config = boost::json::parse(Scratch::text_of(scratch.at("folder/config.json")));
  CHECK(config.at_pointer("/rope_parameters/full_attention/rope_type").as_string() == "yarn");
  CHECK(config.at_pointer("/rope_parameters/sliding_attention/rope_type").as_string() == "default");
  CHECK_FALSE(config.as_object().contains("rope_scaling"));
  write_again(golden_folder("gptneox-serial"), scratch.at("neox/"));  // the class reads no rope_theta beside the head
  CHECK(contains(Scratch::text_of(scratch.at("neox/config.json")), "\"rotary_emb_base\": 1E4"));
}

TEST_CASE("folders: weights stay where they lie in their file") {
  if (!reads_folders()) return;
  const ImportedModel model = import_model(golden_folder("llama3"), Registry::global());
  REQUIRE(model.others.size() == 1);
  const auto* begin = static_cast<const char*>(model.others[0]->data());
  for (const auto& [name, tensor] : model.tensors) {
    const auto* at = static_cast<const char*>(tensor.bytes());
    const bool mapped = at >= begin && at < begin + model.others[0]->bytes();
    INFO(name);
    CHECK(mapped == (name != "rope_freqs.weight"));
  }
  CHECK(model.metadata.text("llama.rope.pairing") == "half");
  CHECK(model_name(model.path) == "llama3");
}

TEST_CASE("folders: tensors that are missing, too many or misshapen are named as in the folder and as in GGUF") {
  if (!reads_folders()) return;
  const Scratch scratch;
  const std::string missing =
      failure_of(scratch.changed("llama3", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"));
  CHECK(contains(missing, "lacks the tensors "));
  CHECK(contains(missing, "'model.layers.2.input_layernorm.weight' ('blk.2.attn_norm.weight' of GGUF)"));
  const std::string surplus =
      failure_of(scratch.changed("llama3", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"));
  CHECK(contains(surplus, "'model.layers.1.input_layernorm.weight'"));
  CHECK(contains(surplus, "does not compute with"));
  const std::string misshapen =
      failure_of(scratch.changed("llama3", "\"intermediate_size\": 20", "\"intermediate_size\": 21"));
  CHECK(contains(misshapen, "'blk.0.ffn_gate.weight' is f32[20, 24]"));
  CHECK(contains(misshapen, "'blk.0.ffn_gate.weight' is 'model.layers.0.mlp.gate_proj.weight' in its file"));
}

TEST_CASE("folders: settings that no spec implements are refused with their place") {
  if (!reads_folders()) return;
  const Scratch scratch;
  const auto refused = [&](const char* name, const char* from, const char* to) {
    return failure_of(scratch.changed(name, from, to));
  };
  CHECK(contains(refused("glm4", "\"silu\"", "\"gelu\""), ".hidden_act is \"gelu\", and only \"silu\""));
  const std::string unknown = refused("qwen2", "Qwen2ForCausalLM", "Qwen4MoeForCausalLM");
  CHECK(contains(unknown, "the architecture 'Qwen4MoeForCausalLM'"));
  CHECK(contains(unknown, "the nearest known ones: Qwen2MoeForCausalLM, Qwen3MoeForCausalLM, Qwen2ForCausalLM"));
  CHECK(contains(refused("gpt-oss", "\"truncate\": false", "\"truncate\": true"),
                 "is true; models of gpt-oss need false"));
  CHECK(
      contains(refused("olmo3", "\"yarn\"", "\"longrope\""), "by 'longrope', a kind that models of olmo2 cannot have"));
  CHECK(contains(refused("exaone4", "\"sliding_window_pattern\": 4", "\"sliding_window_pattern\": 2"),
                 ".sliding_window_pattern is 2, and only 4 or \"LLLG\" is implemented"));
  CHECK(contains(refused("qwen2", "\"hidden_size\": 24", "\"hidden_size\": null"), ".hidden_size is missing"));
  CHECK(contains(refused("qwen2", "\"hidden_size\": 24", "\"hidden_size\": [24"), "is not JSON: line"));
  CHECK(contains(refused("gemma3", "\"full_attention\"\n  ]", "\"sliding_attention\"\n  ]"), "no error"));
  const std::string empty = scratch.changed("qwen2", "24", "24");
  fs::remove(empty + "/model.safetensors");
  CHECK(contains(failure_of(empty), "there is neither model.safetensors nor model.safetensors.index.json"));
  CHECK_FALSE(contains(failure_of(empty), "pytorch_model.bin"));
  Scratch::write(empty + "/pytorch_model.bin", "pickled");
  CHECK(contains(failure_of(empty), "the folder has pytorch_model.bin; to convert it, in Python: transformers."));
  Scratch::write(empty + "/model.safetensors.index.json", R"({"weight_map": {"a": "../b.safetensors"}})");
  CHECK(contains(failure_of(empty), "is not a name in its folder"));
  Scratch::write(empty + "/model.safetensors.index.json", R"({"weight_map": [1]})");
  CHECK(contains(failure_of(empty), ".weight_map is not an object"));
}

TEST_CASE("folders: tokenizers give the ids of tokenizers, also once written again") {
  if (!reads_folders()) return;
  const boost::json::value expected = boost::json::parse(Scratch::text_of(golden_folder("tokenizers.json")));
  for (const std::string name : {"byte_pairs", "sentence_pieces", "unigram", "word_pieces"}) {
    INFO(name);
    const auto& cases = expected.at(name).as_array();
    const bool begins = name == "byte_pairs" || name == "sentence_pieces";
    const auto tokenizer = Tokenizer::open(golden_folder("tokenizers/" + name + ".json"), Registry::global());
    check_tokenizer(*tokenizer, cases, begins);

    const Scratch scratch;
    const std::string folder = scratch.changed("qwen2", "24", "24");
    std::string config = Scratch::text_of(folder + "/config.json");
    fs::copy_file(golden_folder("tokenizers/" + name + ".json"), folder + "/tokenizer.json");
    Scratch::write(folder + "/tokenizer_config.json",
                   R"({"chat_template": [{"name": "tool_use", "template": "{{ tools }}"},
                      {"name": "default", "template": "{{ messages[0].content }}"}],
                      "bos_token": {"content": "<s>"}})");
    Scratch::write(folder + "/generation_config.json", R"({"eos_token_id": [1, 2]})");
    const std::string gguf = scratch.at("model.gguf"), again = scratch.at("again/");
    if (name == "unigram") {  // with NFKC
      CHECK(contains(message_of([&] { write_again(folder, gguf); }), "in a way that GGUF has no name for"));
      continue;
    }
    write_again(folder, gguf);
    write_again(gguf, again);
    check_tokenizer(*Tokenizer::open(gguf, Registry::global()), cases, false, false);
    check_tokenizer(*Tokenizer::open(again, Registry::global()), cases, false);
    const ImportedModel model = import_model(again, Registry::global());
    CHECK(model.metadata.text("tokenizer.chat_template") == "{{ messages[0].content }}");
    CHECK(model.metadata.text("tokenizer.chat_template.tool_use") == "{{ tools }}");
    CHECK(std::get<std::vector<int64_t>>(*model.metadata.values().find("huggingface.eos_token_ids")) ==
          std::vector<int64_t>{1, 2});
  }
}

TEST_CASE("folders: tokenizers of characters and of bytes have the same ids in GGUF") {
  if (!reads_folders()) return;
  const std::string text = "h\u00e9llo \u2026 w\u00f6rld\u201c\n\u65e5\u672c  \U0001F642!";
  for (const std::string& json :
       {bytes_tokenizer_json(),
        characters_tokenizer_json(U" !\nhelowrd\u00e9\u00f6\u201c\u2026\u65e5\u672c\U0001F642")}) {
    const Scratch scratch;
    const std::string folder = scratch.changed("qwen2", "24", "24"), gguf = scratch.at("model.gguf"),
                      again = scratch.at("again/");
    Scratch::write(folder + "/tokenizer.json", json);
    write_again(folder, gguf);
    write_again(gguf, again);
    const auto expected = Tokenizer::open(folder, Registry::global());
    const std::vector<int32_t> ids = expected->encode(text);
    CHECK(expected->decode(ids) == text);
    for (const std::string& path : {gguf, again}) {
      const auto written = Tokenizer::open(path, Registry::global());
      CHECK(written->encode(text) == ids);
      CHECK(written->decode(ids) == text);
      CHECK(written->encode("\u00e8\u2025") == expected->encode("\u00e8\u2025"));  // unknown characters
    }
  }
}

TEST_CASE("folders: tokenizer files that lie are refused with the place") {
  if (!reads_folders()) return;
  const auto failure = [](const std::string& text) {
    return message_of([&] { Tokenizer::read(text, "tokenizer.json", Registry::global(), {"huggingface", {}}); });
  };
  CHECK(contains(failure("{"), "is not JSON: line 1"));
  CHECK(contains(failure("{}"), ".model is missing"));
  CHECK(contains(failure(R"({"model": {"type": "BPE", "vocab": {"a": 4000000}, "merges": []}})"), ".model.vocab.a"));
  CHECK(contains(failure(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}})"),
                 ".model.vocab.b is the id of two tokens"));
  CHECK(contains(failure(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}})"), ".model.merges[0]"));
  CHECK(contains(failure(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}})"), "BPE, Unigram and WordPiece"));
  CHECK(contains(failure(R"({"model": {"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": 7}})"), "is not a token"));
  CHECK(contains(failure(R"({"model": {"type": "Unigram", "vocab": [["a", 0.5]]}, "normalizer": {"type": "Nmt"}})"),
                 ".normalizer.type is \"Nmt\", which is not known"));
}

TEST_CASE("folders: without weights the texts' settings are read all the same") {
  if (!reads_folders()) return;
  const Scratch scratch;
  for (const char* name : {"Qwen2ForCausalLM", "GPT2LMHeadModel"}) {
    INFO(name);
    const std::string folder = scratch.changed("qwen2", "Qwen2ForCausalLM", name);
    fs::remove(folder + "/model.safetensors");
    Scratch::write(folder + "/tokenizer_config.json", R"({"chat_template": "{{ messages[0].content }}"})");
    Scratch::write(folder + "/generation_config.json", R"({"eos_token_id": [1, 2]})");
    const ImportedModel model = import_model(folder, Registry::global(), {"huggingface", {{"weights", "false"}}});
    CHECK(model.metadata.text("tokenizer.chat_template") == "{{ messages[0].content }}");
    CHECK(std::get<std::vector<int64_t>>(*model.metadata.values().find("huggingface.eos_token_ids")) ==
          std::vector<int64_t>{1, 2});
  }
}

TEST_CASE("folders: configurations of published models give their numbers of parameters") {
  const std::string data = journeys::data_folder();
  if (!reads_folders() || data.empty() || !fs::exists(data + "/hf_configs")) return;
  const auto count = [&](const std::string& name) {
    DescribedOptions settings;
    settings.weights = false;
    const ImportedModel model = import_language_model(data + "/hf_configs/" + name, Registry::global(), settings);
    int64_t sum = 0;
    const auto resolved = resolve_spec(model);
    for (const auto& [tensor, type] : resolved->tensors()) sum += type.shape.count();
    return sum;
  };
  CHECK(count("Llama-2-7B") == 6'738'415'616);
  CHECK(count("meta-llama--Meta-Llama-3.1-8B") == 8'030'261'248);
  CHECK(count("Qwen--Qwen3-8B") == 8'190'735'360);
  CHECK(count("Qwen3-1.7B") == 1'720'574'976);
  CHECK(count("Qwen--Qwen3-30B-A3B") == 30'532'122'624);
  CHECK(count("mistralai--Mixtral-8x7B-v0.1") == 46'702'792'704);  // described by a .ndsl text
  CHECK(contains(message_of([&] { count("pythia-1.4b-reward-gpt-neox"); }), "the architecture 'GPTNeoXRewardModel'"));
}

TEST_CASE("folders: the pooling of sentence-transformers is taken over") {
  if (!reads_folders()) return;
  const Scratch scratch;
  const std::string folder = scratch.changed("bert", "24", "24");
  fs::create_directory(folder + "/1_Pooling");
  Scratch::write(folder + "/1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  CHECK(import_model(folder, Registry::global()).metadata.integer("bert.pooling_type") == 2);
  Scratch::write(folder + "/1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  CHECK(contains(failure_of(folder), "pools in a way that is not implemented"));
}

TEST_CASE("folders: hostile files of weights are refused") {
  const std::string data = journeys::data_folder();
  if (!reads_folders() || data.empty() || !fs::exists(data + "/malformed/safetensors")) return;
  for (const auto& entry : fs::directory_iterator(data + "/malformed/safetensors")) {
    const Scratch scratch;
    const std::string folder = scratch.changed("llama3", "24", "24");
    fs::copy_file(entry.path(), folder + "/model.safetensors", fs::copy_options::overwrite_existing);
    CHECK(contains(failure_of(folder), "'model.safetensors' is not a safetensors file"));
  }
}

}  // namespace harmonics::engine::parity
