// Adapters trained for ten more steps of AdamW, compared with PEFT (make_lora.py), and 4-bit blocks compared with
// bitsandbytes (make_four_bits.py).
#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstring>
#include <filesystem>

#include <fmt/core.h>

#include <harmonics/element_conversion.hpp>

#include "engine/model/safetensors.hpp"
#include "engine/passes/observe.hpp"
#include "engine/program/step_input.hpp"
#include "engine/training/lower.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/adapter_names.hpp"
#include "engine/transformer/architectures.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/model_results.hpp"

namespace harmonics::engine::parity {

namespace {

std::string lora_path(const std::string& name) {
  return std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/" + name;
}

// Without PCRE2, GGUF cannot be read.
std::optional<ImportedModel> lora_base(const std::string& name) {
  const std::string path = lora_path("architectures/" + name + ".gguf");
  const auto file = MappedFile::open(path);
  if (!is_importable(path, {static_cast<const char*>(file->data()), file->bytes()}, Registry::global())) return {};
  return import_model(path, Registry::global());
}

// Runs a program of the model on the CPU, with rows of tokens as its inputs.
class TokenRuns {
 public:
  TokenRuns(const Model& model, const Program& program) : executor_(make_sequential_executor()) {
    CompileOptions options;
    options.device = "cpu";
    plan_ = compile(program, model.parameters.get(), *executor_, options);
  }
  const HTensor& run(const std::string& output, const int32_t* tokens, const int32_t* targets, float rate = 0,
                     int64_t step = 1) {
    values_.set(rate, step, 0);
    std::vector<const void*> inputs;
    for (const std::string& name : plan_->input_names())
      if (const auto own = step_input_of(name))
        inputs.push_back(values_.address(*own));
      else
        inputs.push_back(name == "tokens" ? tokens : targets);
    plan_->run(inputs.data());
    return plan_->output(output);
  }

 private:
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Executable> plan_;
  StepValues values_;
};

Program scores_program(const Model& model, const Shape& rows) {
  EntrySizes sizes;
  sizes.batch = rows[0], sizes.tokens = rows[1];
  return observe(model.trace(model.entry("forward"), sizes), [](const std::string& name) { return name == "scores"; });
}

double worst_score(const HTensor& found, const HTensor& expected) {
  double worst = 0;
  for (int64_t i = 0; i < expected.size(); ++i)
    worst = std::max(
        worst, std::abs(static_cast<double>(found.data<float>()[i]) - static_cast<double>(expected.data<float>()[i])));
  return worst;
}

}  // namespace

TEST_CASE("lora: ten steps of AdamW have the losses of PEFT, and the adapter written then has its scores") {
  const TensorFile file = golden("lora.safetensors");
  for (const auto& [name, base] : {std::pair<std::string, std::string>{"llama_lora", "llama"},
                                   {"llama_dora", "llama"},
                                   {"llama_embedding", "llama"},
                                   {"qwen3_lora", "qwen3"},
                                   {"qwen3_dora", "qwen3"},
                                   {"phi3_lora", "phi3"},
                                   {"qwen3moe_down", "qwen3moe"}}) {
    INFO(name);
    const auto imported = lora_base(base);
    if (!imported) return;
    const auto expected = below(file, name);
    ModelOptions options;
    options.lora.emplace();
    options.lora->from = lora_path("lora/" + name);
    const Model model = model_of(*imported, options);
    const Shape rows = expected.at("tokens").shape().from(1);
    StepOptions how;
    how.optimizer = parse_optimizer("adamw(weight_decay=0.1)");
    how.batch = rows[0], how.tokens = rows[1];
    how.device.device = "cpu";
    TokenRuns training(model, lower(model, how).program);
    for (int64_t step = 0; step < expected.at("losses").size(); ++step) {
      const int64_t at = step * rows.count();
      const HTensor& loss = training.run("loss", expected.at("tokens").data<int32_t>() + at,
                                         expected.at("targets").data<int32_t>() + at, 0.01f, step + 1);
      INFO("step " << step);
      CHECK(*loss.data<float>() == Approx(expected.at("losses").data<float>()[step]).epsilon(1e-4));
    }
    const int32_t* tokens = expected.at("tokens").data<int32_t>();
    TokenRuns forward(model, scores_program(model, rows));
    CHECK(worst_score(forward.run("scores", tokens, nullptr), expected.at("scores")) < 5e-4);

    const auto value = [&](const std::string& parameter) { return model.parameters->tensor(parameter); };
    const bool dora = name.ends_with("dora");
    for (const std::string ending : {"", ".gguf"}) {
      const std::string path = (std::filesystem::temp_directory_path() / ("harmonics_lora_" + name + ending)).string();
      if (dora && !ending.empty()) continue;
      write_adapter(*model.adapter, value, path);
      ModelOptions applied;
      applied.adapters = {{path, 1}};
      const Model again = model_of(*imported, applied);
      TokenRuns read(again, scores_program(again, rows));
      CHECK(worst_score(read.run("scores", tokens, nullptr), expected.at("scores")) < 5e-4);
      std::filesystem::remove_all(path);
    }
  }
}

TEST_CASE("lora: experts that PEFT adapts as one parameter have its scores, also trained, written and merged") {
  const auto imported = lora_base("qwen3moe");
  if (!imported) return;
  const auto expected = below(golden("lora.safetensors"), "qwen3moe_experts");
  const Shape rows = expected.at("tokens").shape().from(1);
  const int32_t* tokens = expected.at("tokens").data<int32_t>();
  const auto worst = [&](const Model& model) {
    TokenRuns forward(model, scores_program(model, rows));
    return worst_score(forward.run("scores", tokens, nullptr), expected.at("scores"));
  };
  ModelOptions options;
  options.adapters = {{lora_path("lora/qwen3moe_experts"), 1}};
  CHECK(worst(model_of(*imported, options)) < 1e-4);
  CHECK(worst(model_of(*imported)) > 1e-2);
  ModelOptions trained;
  trained.lora.emplace();
  trained.lora->from = options.adapters.front().path;
  const Model model = model_of(*imported, trained);
  CHECK(worst(model) < 1e-4);
  for (const std::string ending : {"", ".gguf"}) {
    const std::string path = (std::filesystem::temp_directory_path() / ("harmonics_lora_experts" + ending)).string();
    write_adapter(
        *model.adapter, [&](const std::string& parameter) { return model.parameters->tensor(parameter); }, path);
    ModelOptions again;
    again.adapters = {{path, 1}};
    CHECK(worst(model_of(*imported, again)) < 1e-4);
    const auto resolved = resolve_spec(*imported);
    ImportedModel merged = *imported;
    merged.tensors = merged_tensors(*imported, *resolved, {read_adapter({path, 1}, *resolved, Registry::global())});
    CHECK(worst(model_of(merged)) < 1e-4);
    std::filesystem::remove_all(path);
  }
}

// Returns a path that no other process uses.
std::string own_path(const std::string& name) {
  return (std::filesystem::temp_directory_path() / fmt::format("harmonics_{}_{}", ::getpid(), name)).string();
}

// Checks that an adapter fits a model, and is written with the same names and numbers.
void check_written_again(const ImportedModel& imported, const std::string& adapter) {
  ModelOptions options;
  options.lora.emplace();
  options.lora->from = adapter;
  const Model model = model_of(imported, options);
  const std::string path = own_path("adapter_again");
  write_adapter(
      *model.adapter, [&](const std::string& parameter) { return model.parameters->tensor(parameter); }, path);
  const auto before = read_safetensors(adapter + "/adapter_model.safetensors").tensors,
             after = read_safetensors(path + "/adapter_model.safetensors").tensors;
  CHECK(before.size() == after.size());
  for (const auto& [tensor, values] : before) {
    INFO(tensor);
    REQUIRE(after.count(tensor) == 1);
    CHECK(std::memcmp(after.at(tensor).bytes(), values.bytes(), values.size() * sizeof(float)) == 0);
  }
  std::filesystem::remove_all(path);
}

TEST_CASE("lora: adapters of PEFT fit models with other modules or rotary pairs, and are written as they were") {
  if (!lora_base("llama")) return;
  const TensorFile file = golden("folder_adapters.safetensors");
  const std::string gguf = own_path("other_modules.gguf");
  for (const std::string name :
       {"cohere2", "exaone", "glm4", "gptneox-serial", "llama3", "starcoder2", "gpt2", "gptneox", "phi"}) {
    const std::string adapter = lora_path("folder_adapters/" + name), folder = lora_path("folders/" + name);
    const auto expected = below(file, name);
    const Shape rows{1, expected.at("tokens").size()};
    const bool described = name == "gpt2" || name == "gptneox" || name == "phi";  // not by a spec
    if (!described) write_again(folder, gguf);
    for (const std::string& path : described ? std::vector{folder} : std::vector{folder, gguf}) {
      INFO(path);
      const ImportedModel imported = import_language_model(path, Registry::global());
      const auto worst = [&](const ModelOptions& options) {
        const Model model = model_of(imported, options);
        TokenRuns forward(model, scores_program(model, rows));
        const HTensor& scores = forward.run("scores", expected.at("tokens").data<int32_t>(), nullptr);
        return worst_score(scores, expected.at("scores"));
      };
      ModelOptions applied;
      applied.adapters = {{adapter, 1}};
      CHECK(worst(applied) < 1e-4);
      CHECK(worst({}) > 1);
      if (!described) check_written_again(imported, adapter);  // else a fused module is three weights, with a pair each
    }
  }
  std::filesystem::remove(gguf);
}

TEST_CASE("lora: modules are known by the folder's names, by older ones, and without the name of the model") {
  if (!lora_base("llama")) return;
  struct Row {
    const char *folder, *module, *key;
  };
  for (const Row& row :
       {Row{"exaone", "transformer.h.1.mlp.c_fc_0", "blk.1.ffn_gate.weight"},
        Row{"exaone", "model.layers.1.mlp.gate_proj", "blk.1.ffn_gate.weight"},
        Row{"starcoder2", "model.layers.0.mlp.c_fc", "blk.0.ffn_up.weight"},
        Row{"starcoder2", "layers.0.mlp.c_fc", "blk.0.ffn_up.weight"}, Row{"starcoder2", "lm_head", "output.weight"}}) {
    INFO(row.folder << " " << row.module);
    const ImportedModel imported = import_language_model(lora_path("folders/") + row.folder, Registry::global());
    const std::vector<ModuleWeight> weights = weights_of_module(row.module, *resolve_spec(imported));
    REQUIRE(weights.size() == 1);
    CHECK(weights[0].key == row.key);
  }
}

TEST_CASE("lora: an adapter of a folder that a .ndsl text describes fits the GGUF file that a spec describes") {
  if (!lora_base("llama")) return;
  const std::filesystem::path scratch = own_path("described_again");
  const std::string folder = (scratch / "folder/").string(), adapter = (scratch / "adapter").string();
  const std::vector<int32_t> tokens = {5, 9, 3, 30, 21, 7};
  const Shape rows{1, static_cast<int64_t>(tokens.size())};
  for (const std::string name : {"gpt2", "gptneox", "gptneox_serial", "phi2"}) {
    INFO(name);
    std::filesystem::remove_all(scratch);
    std::filesystem::create_directories(scratch);
    const std::string gguf = lora_path("architectures/" + name + ".gguf");
    write_again(gguf, folder);
    const auto scores = [&](const Model& model) {
      TokenRuns forward(model, scores_program(model, rows));
      return forward.run("scores", tokens.data(), nullptr);
    };
    ModelOptions trained, applied;
    trained.lora = parse_lora("rank=2,targets=all-linear");
    applied.adapters = {{adapter, 1}};
    const Model model = model_of(import_language_model(folder, Registry::global()), trained);
    float next = 0.3f;
    for (const TrainedPair& pair : model.adapter->pairs) {
      HTensor b(DType::F32, Shape{pair.rows, pair.rank});
      for (int64_t i = 0; i < b.size(); ++i) b.mutable_data<float>()[i] = next = -0.9f * next + 0.1f;
      model.parameters->assign(pair.b, b);
    }
    const HTensor adapted = scores(model);
    write_adapter(
        *model.adapter, [&](const std::string& parameter) { return model.parameters->tensor(parameter); }, adapter);
    const ImportedModel other = import_language_model(gguf, Registry::global());
    CHECK(worst_score(scores(model_of(other, applied)), adapted) < 1e-4);
    CHECK(worst_score(scores(model_of(other)), adapted) > 0.1);
    check_written_again(other, adapter);
  }
  std::filesystem::remove_all(scratch);
}

TEST_CASE("lora: rows of a fused weight are adapted alone, and written as one pair") {
  const auto imported = lora_base("phi3");
  if (!imported) return;
  const auto expected = below(golden("lora.safetensors"), "phi3_lora");
  const Shape rows = expected.at("tokens").shape().from(1);
  const int32_t* tokens = expected.at("tokens").data<int32_t>();
  ModelOptions options;
  options.lora = parse_lora("rank=3,targets=q_proj+v_proj+gate_proj+up_proj");
  const Model model = model_of(*imported, options);
  CHECK(model.adapter->pairs.size() == 8);
  float next = 0.1f;
  for (const TrainedPair& pair : model.adapter->pairs) {
    HTensor b(DType::F32, Shape{pair.rows, pair.rank});
    for (int64_t i = 0; i < b.size(); ++i) b.mutable_data<float>()[i] = next = -0.9f * next + 0.02f;
    model.parameters->assign(pair.b, b);
  }
  TokenRuns forward(model, scores_program(model, rows));
  const HTensor scores = forward.run("scores", tokens, nullptr);
  // The key's rows are between those of the query and the value.
  const Model plain = model_of(*imported);
  TokenRuns without(plain, scores_program(plain, rows));
  CHECK(worst_score(scores, without.run("scores", tokens, nullptr)) > 1e-2);
  const auto value = [&](const std::string& parameter) { return model.parameters->tensor(parameter); };
  for (const std::string ending : {"", ".gguf"}) {
    const std::string path = (std::filesystem::temp_directory_path() / ("harmonics_fused" + ending)).string();
    write_adapter(*model.adapter, value, path);
    const auto resolved = resolve_spec(*imported);
    const Adapter adapter = read_adapter({path, 1}, *resolved, Registry::global());
    CHECK(adapter.pairs.at("blk.0.attn_qkv.weight").rank() == 6);
    ImportedModel merged = *imported;
    merged.tensors = merged_tensors(*imported, *resolved, {adapter});
    const Model whole = model_of(merged);
    TokenRuns read(whole, scores_program(whole, rows));
    CHECK(worst_score(read.run("scores", tokens, nullptr), scores) < 2e-4);
    std::filesystem::remove_all(path);
  }
}

TEST_CASE("folders: weights in the 4-bit types of bitsandbytes have its scores, and adapters are trained on them") {
  const std::string path = lora_path("folders/llama_four_bits");
  if (!is_model(path, Registry::global())) return;
  const auto expected = below(golden("four_bits.safetensors"), "folder");
  const ImportedModel imported = import_model(path, Registry::global());
  ModelOptions options;
  options.lora = parse_lora("rank=2");
  const Model model = model_of(imported, options);
  CHECK(model.parameters->all().at("blk.0.attn_q.weight").type.dtype == DType::NF4_64);
  CHECK(model.parameters->all().at("blk.1.attn_q.weight").type.dtype == DType::FP4_64);
  TokenRuns forward(model, scores_program(model, expected.at("tokens").shape()));
  const HTensor& scores = forward.run("scores", expected.at("tokens").data<int32_t>(), nullptr);
  CHECK(worst_score(scores, expected.at("scores")) < 1e-4);
}

TEST_CASE("element types: blocks of 64 have the codes, scales and numbers of bitsandbytes") {
  const TensorFile file = golden("four_bits.safetensors");
  const HTensor& x = file.tensors.at("x");
  for (const auto& [name, type] : {std::pair<std::string, DType>{"nf4", DType::NF4_64}, {"fp4", DType::FP4_64}}) {
    INFO(name);
    const auto expected = below(file, name);
    const int64_t blocks = x.size() / 64;
    std::vector<uint8_t> bytes(static_cast<size_t>(blocks) * 36);
    encode_elements(type, x.data<float>(), bytes.data(), x.size());
    std::vector<float> decoded(static_cast<size_t>(x.size()));
    decode_elements(type, bytes.data(), decoded.data(), x.size());
    int wrong = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* block = bytes.data() + b * 36;
      wrong += std::memcmp(block, expected.at("scales").data<float>() + b, 4) != 0;
      wrong += std::memcmp(block + 4, expected.at("codes").data<uint8_t>() + b * 32, 32) != 0;
    }
    CHECK(wrong == 0);
    for (int64_t i = 0; i < x.size(); ++i)
      wrong += decoded[static_cast<size_t>(i)] != expected.at("decoded").data<float>()[i];
    CHECK(wrong == 0);
  }
}

}  // namespace harmonics::engine::parity
