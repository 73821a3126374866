// Compares gradients of every built-in spec in double, from the program of a training step, with differences of its
// loss.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>

#include "engine/base/file.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"
#include "engine/program/step_input.hpp"
#include "engine/training/differentiate.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/parity/golden.hpp"

namespace harmonics::engine::parity {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 2, kTokens = 7;  // more than the files' sliding windows

HTensor as_double(const HTensor& x) { return is_float(x.dtype()) ? cast(cast(x, DType::F32), DType::F64) : x; }

// Runs a program by the reference with f64 in place of f32.
class InDouble {
 public:
  explicit InDouble(const Program& program) : program_(program) {}

  HTensor output(const std::string& name, const std::map<std::string, HTensor>& leaves) {
    std::vector<HTensor> values(program_.values.size());
    for (const Node& node : program_.nodes) {
      std::vector<HTensor> results;
      if (node.op == Op::input || node.op == Op::parameter) {
        results = {leaves.at(node.callee)};
      } else if (node.op == Op::literal) {
        results = {as_double(node.literal)};
      } else {
        std::vector<HTensor> inputs;
        for (const ValueId v : node.inputs) inputs.push_back(values[v]);
        if (node.op == Op::call && node.callee.starts_with("rope"))  // frequencies are f32
          for (size_t i = 1; i < inputs.size(); ++i)
            if (inputs[i].rank() == 1 && is_float(inputs[i].dtype())) inputs[i] = cast(inputs[i], DType::F32);
        results = apply(node.op == Op::call ? std::string_view(node.callee) : op_name(node.op), widened(node), inputs);
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = results.at(i);
    }
    for (const NamedValue& out : program_.outputs)
      if (out.name == name) return values[out.value];
    FAIL("no output " + name);
    return {};
  }

 private:
  static AttributeMap widened(const Node& node) {
    AttributeMap attributes = node.attributes;
    const bool typed = node.op == Op::cast || node.op == Op::full || node.op == Op::iota;
    if (typed && is_float(attributes.dtype())) attributes.set("dtype", static_cast<int64_t>(DType::F64));
    return attributes;
  }

  const Program& program_;
};

HTensor numbers_below(int64_t limit, uint32_t seed) {
  return HTensor::from(Shape{kRows, kTokens}, testing::some_tokens(kRows * kTokens, limit, seed));
}

// Returns a direction with components of unit size, equal in every call.
HTensor direction_for(const Shape& shape, uint32_t seed) { return as_double(testing::small_random(shape, seed, 1)); }

double scalar_of(const HTensor& x) { return cast(x, DType::F64).data<double>()[0]; }
double inner_product_of(const HTensor& a, const HTensor& b) {
  const HTensor flat = reshape(a * b, Shape{a.size()});
  return scalar_of(reduce_sum(flat, {0}));
}

std::map<std::string, HTensor> leaves_of(const Model& model, const std::vector<std::string>& learned) {
  std::map<std::string, HTensor> leaves{
      {"tokens", numbers_below(model.vocabulary, 3)},
      {"targets", numbers_below(model.vocabulary, 4)},
      {std::string(step_input_row(StepInput::counter).name), HTensor::from(Shape{2}, std::vector<int64_t>{7, 3})},
      {"documents",
       HTensor::from(Shape{kRows, kTokens}, std::vector<int32_t>{0, 0, 0, 1, 1, 1, 1, 4, 4, 6, 6, 6, 6, 6})}};
  for (const std::string& name : learned) leaves[name] = as_double(model.parameters->tensor(name));
  return leaves;
}

void check_model_gradients(const Model& model, bool documents) {
  EntrySizes sizes;
  sizes.batch = kRows;
  sizes.tokens = sizes.capacity = kTokens;
  sizes.training = true;
  sizes.documents = documents;
  const Program loss = model.trace(model.entry("loss"), sizes);
  const std::vector<std::string> learned = differentiable_parameters(loss);
  REQUIRE(learned.size() > 8);
  std::map<std::string, HTensor> leaves = leaves_of(model, learned);
  const Program whole = differentiate(Program(loss), "loss", learned);
  InDouble forward(loss), backward(whole);
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < learned.size(); ++i) {
    const std::string& name = learned[i];
    if (name.starts_with("rope_")) continue;  // divisors of frequencies, which are not trained
    INFO(name);
    const HTensor at = leaves.at(name), along = direction_for(at.shape(), static_cast<uint32_t>(i + 1));
    const double by_program = inner_product_of(backward.output(gradient_output(name), leaves), along);
    leaves[name] = at + along * kStep;
    const double above = scalar_of(forward.output("loss", leaves));
    leaves[name] = at - along * kStep;
    const double below = scalar_of(forward.output("loss", leaves));
    leaves[name] = at;
    CHECK(by_program == Approx((above - below) / (2 * kStep)).epsilon(1e-5).margin(1e-8));
  }
}

}  // namespace

TEST_CASE("model gradients: each built-in spec has those of finite differences") {
  size_t models = 0;
  for (const auto& entry :
       fs::directory_iterator(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/architectures")) {
    const std::string file = entry.path().string();
    if (!is_model(file, Registry::global())) continue;
    const Model model = model_of(import_model(file, Registry::global()));
    if (!model.find("loss")) continue;  // an encoder has no scores
    INFO(file);
    check_model_gradients(model, false);
    ++models;
  }
  if (models == 0) WARN("the plugin that reads GGUF is not built; the test is skipped");
}

TEST_CASE("model gradients: packed documents have those of finite differences") {
  check_model_gradients(testing::small_llama({16, 1, 4, 2, 12, 20}), true);
}

namespace {

Model described_with(const char* name, const std::string& attention_dropout, const std::string& others) {
  NdslOptions options;
  options.weights = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/" + name;
  options.trainable = true;
  options.set = {{"attention_dropout", attention_dropout}, {"residual_dropout", others}, {"embedding_dropout", others}};
  return open_ndsl(name, options).model;
}

Program traced_loss(const Model& model, bool training, bool documents) {
  EntrySizes sizes;
  sizes.batch = kRows;
  sizes.tokens = sizes.capacity = kTokens;
  sizes.training = training;
  sizes.documents = documents;
  return model.trace(model.entry("loss"), sizes);
}

double loss_of(const Model& model, bool training, bool documents) {
  const Program loss = traced_loss(model, training, documents);
  return scalar_of(InDouble(loss).output("loss", leaves_of(model, differentiable_parameters(loss))));
}

}  // namespace

TEST_CASE("model gradients: attention that drops nothing is attention, and dropout is for training alone") {
  for (const char* name : {"Llama2", "Gemma2", "GPT2"})  // shared key heads; windows and caps; biases
    for (const bool documents : {false, true}) {
      INFO(name << ", documents " << documents);
      const Model plain = described_with(name, "0", "0");
      const double expected = loss_of(plain, true, documents);
      CHECK(loss_of(described_with(name, "1e-12", "0"), true, documents) == Approx(expected).epsilon(1e-6));
      const Model dropping = described_with(name, "0.5", "0.3");
      CHECK(std::abs(loss_of(dropping, true, documents) - expected) > 1e-3);
      CHECK(loss_of(dropping, false, documents) == loss_of(plain, false, documents));
    }
}

TEST_CASE("model gradients: sinks, biases of routers and shared experts have those of finite differences") {
  for (const char* name : {"GLM4MoE", "Qwen2MoE"})
    for (const bool documents : {false, true}) {
      INFO(name << ", documents " << documents);
      check_model_gradients(described_with(name, "0", "0"), documents);
    }
  // Omits the mapping onto Llama's tensors, which has none for the sinks.
  std::string text = read_plain_file(std::string(HARMONICS_SOURCE_DIR) + "/tests/dsl/ndsl/Llama2.ndsl");
  text.resize(text.find("hf_architecture:"));
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("sinks.ndsl", text);
  for (const char* dropout : {"0", "0.4"}) {
    INFO("sinks, dropout " << dropout);
    NdslOptions options;
    options.trainable = true;
    options.set = {{"attention_sinks", "true"},   {"vocab_size", "19"},         {"hidden_size", "16"},
                   {"num_layers", "2"},           {"num_query_heads", "4"},     {"num_kv_heads", "2"},
                   {"intermediate_size", "12"},   {"initializer_range", "0.3"}, {"max_position_embeddings", "32"},
                   {"attention_dropout", dropout}};
    const Model model = open_ndsl(path, options).model;
    REQUIRE(model.parameters->find("blk.1.attn_sinks.weight"));
    for (const bool documents : {false, true}) check_model_gradients(model, documents);
  }
}

TEST_CASE("model gradients: models with dropout have those of finite differences") {
  for (const char* name : {"Llama2", "Gemma2"}) {
    INFO(name);
    check_model_gradients(described_with(name, "0.4", "0.3"), true);
  }
}

TEST_CASE("model gradients: routing of experts and Select have those of finite differences") {
  const testing::TemporaryFolder folder;
  const std::string sizes =
      "config: {vocab_size: 19, hidden_size: 16, num_layers: 2, num_query_heads: 4, num_experts: 4,\n"
      "  num_experts_per_tok: 2, moe_intermediate_size: 12, initializer_range: 0.3, max_position_embeddings: 32}\n";
  const std::string experts = folder.write(
      "experts.ndsl",
      "name: Experts\narchitecture:\n  variant: moe\n  block: [RMSNorm, CausalSelfAttention, MoE_FFN]\n" + sizes);
  const std::map<std::string, std::string> settings[] = {
      {{"routing", "expert_choice"}, {"norm_topk_prob", "false"}, {"router_z_loss_coef", "0.1"}},
      {{"routing", "expert_choice"},
       {"norm_topk_prob", "false"},
       {"scoring_func", "sigmoid"},
       {"routed_scaling_factor", "2"},
       {"capacity_factor", "0.6"}},
      {{"capacity_factor", "0.75"}, {"router_z_loss_coef", "0.1"}, {"router_aux_loss_coef", "0.1"}},
      {{"num_experts_per_tok", "1"}, {"norm_topk_prob", "false"}, {"capacity_factor", "1.25"}}};
  NdslOptions options;
  options.trainable = true;
  for (const auto& set : settings) {
    std::string shown;
    for (const auto& [key, value] : set) shown += key + "=" + value + " ";
    INFO(shown);
    options.set = set;
    check_model_gradients(open_ndsl(experts, options).model, false);
  }
  options.set = {};
  const std::string select =
      folder.write("select.ndsl",
                   "name: Selected\narchitecture:\n  variant: dense\n  block:\n    - {op: RMSNorm, name: ln1}\n"
                   "    - CausalSelfAttention\n"
                   "    - {op: linear, name: score, weights: {w: [1, hidden_size]}}\n"
                   "    - {op: linear, name: a, reads_from: ln1, weights: {w: [hidden_size, hidden_size]}}\n"
                   "    - {op: linear, name: b, reads_from: ln1, weights: {w: [hidden_size, hidden_size]}}\n"
                   "    - {op: Select, reads_from: score, inputs: [a, b]}\n" +
                       sizes);
  check_model_gradients(open_ndsl(select, options).model, false);
}

}  // namespace harmonics::engine::parity
