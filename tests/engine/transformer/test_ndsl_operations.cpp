// Block operations of `.ndsl` files by their results: Select, residual sums of chosen values, routing of experts.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "dsl/ndsl/print.hpp"
#include "engine/execution/executable.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/layer_models.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "engine/transformer/trained_weights.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/message_of.hpp"

// Own names: the sources of a folder may be compiled together.
namespace harmonics::engine::ndsl_operations {

namespace {

constexpr int64_t kBatch = 2, kTokens = 7, kWidth = 16, kVocabulary = 19;

// Returns a model of two layers with these operations.
std::string around(const std::string& block, const std::string& variant = "dense") {
  return "name: Small\narchitecture:\n  variant: " + variant + "\n  block:\n" + block +
         "config: {vocab_size: 19, hidden_size: 16, num_layers: 2, num_query_heads: 4, intermediate_size: 12,\n"
         "  num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, max_position_embeddings: 32,\n"
         "  initializer_range: 0.3}\n";
}

const std::string kExperts = around("    - RMSNorm\n    - CausalSelfAttention\n    - MoE_FFN\n", "moe");

CompiledNdsl compiled(const std::string& text) {
  return compile_ndsl(ndsl::parse_model_file("a.ndsl", text, "", builtin_ndsl), {});
}

std::string refusal(const std::string& text) {
  return message_of([&] { check_ndsl(compiled(text)); });
}

Model opened(const std::string& text, const std::map<std::string, std::string>& set = {}) {
  const testing::TemporaryFolder folder;
  NdslOptions options;
  options.trainable = true;
  options.set = set;
  return open_ndsl(folder.write("a.ndsl", text), options).model;
}

// Returns all outputs of an entry by name, those of observers with their prefix.
std::map<std::string, HTensor> results_of(const Model& model, const std::string& entry, const EntrySizes& sizes,
                                          const std::string& device) {
  const Program program = model.trace(model.entry(entry), sizes);
  const auto executor = make_sequential_executor();
  CompileOptions options;
  options.device = device;
  options.training = sizes.training;
  const auto plan = compile(program, model.parameters.get(), *executor, options);
  const std::vector<int32_t> tokens = testing::some_tokens(kBatch * kTokens, kVocabulary, 3),
                             next = testing::some_tokens(kBatch * kTokens, kVocabulary, 4);
  std::vector<const void*> inputs;
  for (const std::string& name : plan->input_names()) inputs.push_back(name == "tokens" ? tokens.data() : next.data());
  plan->run(inputs.data());
  std::map<std::string, HTensor> results;
  for (const NamedValue& output : program.outputs) {
    const HTensor& x = plan->output(output.name);
    results[output.name] = HTensor::from(x.shape(), std::vector<float>(x.data<float>(), x.data<float>() + x.size()));
  }
  return results;
}

EntrySizes sizes_of(bool training) {
  EntrySizes sizes;
  sizes.batch = kBatch;
  sizes.tokens = sizes.capacity = kTokens;
  sizes.training = training;
  return sizes;
}

double loss_of(const std::map<std::string, std::string>& set, bool training = true, const char* device = "cpu") {
  const auto results = results_of(opened(kExperts, set), "loss", sizes_of(training), device);
  return static_cast<double>(results.at("loss").data<float>()[0]);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Checks that `y` is a where the condition, one number for each token or each number, is above `above`, and b
// elsewhere. Returns how often it is a.
int64_t check_selected(const HTensor& y, const HTensor& condition, const HTensor& a, const HTensor& b, float above) {
  REQUIRE(y.shape() == Shape{kBatch, kTokens, kWidth});
  const int64_t per = y.size() / condition.size();
  int64_t taken = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    const bool first = condition.data<float>()[i / per] > above;
    taken += first;
    CHECK(y.data<float>()[i] == (first ? a : b).data<float>()[i]);
  }
  return taken;
}

const std::string kNumbers =
    "    - {op: RMSNorm, name: ln1}\n"
    "    - {op: Select, reads_from: residual, inputs: [ln1, residual], config: {above: 0.1}, output: residual}\n";
const std::string kTokenwise =
    "    - {op: RMSNorm, name: ln1}\n"
    "    - {op: linear, name: gate, weights: {w: [1, hidden_size]}}\n"
    "    - {op: Select, name: route, inputs: [ln1, residual], output: residual}\n";

}  // namespace

TEST_CASE("ndsl: Select takes one value where another is above a number, and another value elsewhere") {
  for (const char* device : {"reference", "cpu"}) {
    INFO(device);
    EntrySizes sizes = sizes_of(false);
    sizes.operations = true;
    const std::string blk = std::string(kValueOutput) + "blk.0.";
    auto r = results_of(opened(around(kNumbers)), "forward", sizes, device);
    const HTensor embedding = r.at(std::string(kValueOutput) + "embedding");
    const int64_t taken = check_selected(r.at(blk + "Select"), embedding, r.at(blk + "LN1"), embedding, 0.1f);
    CHECK((taken > 0 && taken < kBatch * kTokens * kWidth));
    r = results_of(opened(around(kTokenwise)), "forward", sizes, device);
    const HTensor& gate = r.at(blk + "gate");
    REQUIRE(gate.shape() == Shape{kBatch, kTokens, 1});
    const int64_t tokens = check_selected(r.at(blk + "route"), gate, r.at(blk + "LN1"),
                                          r.at(std::string(kValueOutput) + "embedding"), 0.0f);
    CHECK((tokens > 0 && tokens < kBatch * kTokens * kWidth));
  }
}

TEST_CASE("ndsl: Select is shown and printed as it was written") {
  const CompiledNdsl model = compiled(around(kTokenwise));
  CHECK(model.layers.at(1).forward_ops == std::vector<std::string>{"LN1", "linear", "Select"});
  check_ndsl(model);
  const CompiledNdsl again = compiled(ndsl::printed_model(whole_description(compiled(around(kNumbers)))));
  const auto fields = [](const CompiledNdsl& of) {
    for (const specs::Step& step : of.spec.forward.at(1).steps)
      if (step.op == "Select") return step.fields;
    return decltype(specs::Step::fields){};
  };
  CHECK_FALSE(fields(again).empty());
  CHECK(fields(again) == fields(compiled(around(kNumbers))));
}

TEST_CASE("ndsl: a Select that does not fit is refused where it stands") {
  const auto with = [](const std::string& fields) { return refusal(around("    - RMSNorm\n    - " + fields + "\n")); };
  CHECK(has(with("{op: Select, inputs: [residual]}"), "a.ndsl:6:12: error: Select takes two values, not 1\n"));
  CHECK_FALSE(has(with("{op: Select, inputs: [residual]}"), "gives no result"));
  CHECK(has(with("{op: Select, inputs: [ln1, residul]}"), "did you mean 'residual'?"));
  CHECK(has(with("{op: Select, inputs: [ln1, residual], expands_to: [QKV]}"), "expands to nothing"));
  CHECK(has(with("{op: Select, inputs: [ln1, residual], config: {abov: 1}}"), "did you mean 'above'?"));
  CHECK(has(with("{op: select, inputs: [ln1, residual]}"), "did you mean 'Select'?"));
  CHECK(has(with("{op: gelu, inputs: [ln1, residual]}"), "'inputs' is for ResidualAdd and Select"));
  CHECK(has(with("{op: linear, name: two, weights: {w: [2, 16]}}\n    - {op: Select, inputs: [two, residual]}"),
            "a.ndsl:7:12: the step Select takes two values of one shape; [1, 1, 2] and [1, 1, 16] differ"));
  CHECK(has(with("{op: linear, name: two, weights: {w: [2, 16]}}\n    - {op: Select, inputs: [ln1, residual]}"),
            "the step Select takes a condition of the shape [1, 1, 16], or with axes of one number, not [1, 1, 2]"));
}

TEST_CASE("ndsl: a residual sum adds the value that it reads, and gives its own name") {
  const std::string rest = "    - {op: linear, name: second, reads_from: first, weights: {w: [16, 16]}, branch: b}\n";
  const auto hidden = [&](const std::string& sum) {
    const Model model = opened(around("    - {op: linear, name: first, weights: {w: [16, 16]}}\n" + rest + sum));
    return results_of(model, "forward", sizes_of(false), "reference").at("scores");
  };
  const auto same = [](const HTensor& a, const HTensor& b) {
    return std::equal(a.data<float>(), a.data<float>() + a.size(), b.data<float>());
  };
  const HTensor first = hidden("    - {op: ResidualAdd, reads_from: first}\n");
  CHECK(same(first, hidden("    - {op: ResidualAdd, inputs: [residual, first]}\n")));
  CHECK_FALSE(same(first, hidden("    - ResidualAdd\n")));
  const std::string named = "    - {op: ResidualAdd, name: sum, branch: other, output: kept}\n";
  CHECK(same(hidden(named + "    - {op: ResidualAdd, inputs: [residual, sum]}\n"),
             hidden(named + "    - {op: ResidualAdd, inputs: [residual, kept]}\n")));
  CHECK(same(hidden(named + "    - {op: ResidualAdd, inputs: [residual, other]}\n"),
             hidden(named + "    - {op: ResidualAdd, inputs: [residual, kept]}\n")));
  CHECK(has(refusal(around("    - RMSNorm\n    - {op: ResidualAdd, inputs: [residual, ln1], reads_from: ln1}\n")),
            "error: 'reads_from' has no effect beside 'inputs'"));
}

TEST_CASE("ndsl: activations are those of Hugging Face and every functional of one value") {
  const auto values = [](const std::string& activation) {
    EntrySizes sizes = sizes_of(false);
    sizes.operations = true;
    const auto r =
        results_of(opened(around("    - RMSNorm\n    - {op: GELU_FFN, config: {hidden_act: " + activation + "}}\n")),
                   "forward", sizes, "reference");
    const std::string blk = std::string(kValueOutput) + "blk.0.";
    return std::pair(r.at(blk + "MLPUp.up"), r.at(blk + "GELU"));
  };
  const auto check = [&](const char* name, double (*expected)(double)) {
    INFO(name);
    const auto [x, y] = values(name);
    for (int64_t i = 0; i < x.size(); ++i)
      CHECK(y.data<float>()[i] == Approx(expected(static_cast<double>(x.data<float>()[i]))).margin(1e-6));
  };
  check("relu", [](double x) { return std::max(x, 0.0); });
  check("relu2", [](double x) { return std::max(x, 0.0) * std::max(x, 0.0); });
  check("relu_squared", [](double x) { return std::max(x, 0.0) * std::max(x, 0.0); });
  check("quick_gelu", [](double x) { return x / (1 + std::exp(-1.702 * x)); });
  check("mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); });
  check("leaky_relu", [](double x) { return x > 0 ? x : 0.01 * x; });
  const std::string refused = refusal(around("    - {op: GELU_FFN, config: {hidden_act: rleu}}\n"));
  CHECK(has(refused, "a.ndsl:5:31: error: there is no activation 'rleu'"));
  CHECK(has(refused, "did you mean 'relu'?"));
  CHECK(has(refusal(around("    - {op: GELU_FFN, config: {hidden_act: embedding}}\n")), "no activation 'embedding'"));
}

TEST_CASE("ndsl: initial norms with unit_offset have the gain 1, as those without have") {
  for (const char* norm : {"RMSNorm", "LayerNorm"}) {
    INFO(norm);
    const auto scores = [&](const std::string& offset) {
      const Model model =
          opened(around("    - " + std::string(norm) + "\n    - ReLU_FFN\n"), {{"unit_offset", offset}});
      return results_of(model, "forward", sizes_of(false), "reference").at("scores");
    };
    const HTensor plain = scores("false"), offset = scores("true");
    CHECK(std::equal(plain.data<float>(), plain.data<float>() + plain.size(), offset.data<float>()));
    CHECK(std::any_of(plain.data<float>(), plain.data<float>() + plain.size(), [](float x) { return x != 0; }));
  }
}

TEST_CASE("ndsl: weights of experts are given in one tensor per layer, or in one per expert") {
  const CompiledNdsl model = compiled(kExperts);
  TensorFile file;
  uint32_t seed = 0;
  for (const NdslTensor& tensor : model.tensors)
    file.tensors["small." + tensor.name] = testing::small_random(tensor.shape, ++seed, 1);
  const auto together = trained_tensors(model, file, "run.safetensors");
  const std::string name = "blk.1.ffn_up_exps.weight";
  const HTensor &stack = file.tensors.at("small." + name), &third = together.at(name + "[2]");
  CHECK(third.shape() == Shape{12, 16});
  CHECK(std::equal(third.data<float>(), third.data<float>() + third.size(), stack.data<float>() + 2 * third.size()));
  TensorFile alone;
  for (const auto& [key, tensor] : together) alone.tensors["small." + key] = tensor;
  CHECK(trained_tensors(model, alone, "run.safetensors").size() == together.size());
  alone.tensors.erase("small." + name + "[2]");
  CHECK(has(message_of([&] { trained_tensors(model, alone, "run.safetensors"); }), "missing: " + name + "[2]"));
}

TEST_CASE("ndsl: experts that choose tokens take as many as an even distribution gives") {
  // If each expert takes every token, the mixture is the dense one.
  const std::map<std::string, std::string> dense{{"num_experts_per_tok", "4"}, {"norm_topk_prob", "false"}};
  std::map<std::string, std::string> chosen = dense;
  chosen["routing"] = "expert_choice";
  for (const char* device : {"reference", "cpu"})
    CHECK(loss_of(chosen, true, device) == Approx(loss_of(dense, true, device)).epsilon(1e-5));
  chosen["num_experts_per_tok"] = "1";
  const double few = loss_of(chosen);
  CHECK(loss_of(chosen, true, "reference") == Approx(few).epsilon(1e-5));
  std::map<std::string, std::string> one{{"num_experts_per_tok", "1"}, {"norm_topk_prob", "false"}};
  CHECK(std::abs(few - loss_of(one)) > 1e-4);
  CHECK(loss_of(chosen, false) == loss_of(one, false));  // outside of training each token has its best expert
  chosen["capacity_factor"] = "4";                       // four times 14 tokens for four experts: all tokens
  CHECK(loss_of(chosen) == Approx(loss_of(dense)).epsilon(1e-5));
}

TEST_CASE("ndsl: the networks of experts have the activation hidden_act") {
  const double usual = loss_of({});
  CHECK(loss_of({{"hidden_act", "silu"}}) == usual);
  CHECK(loss_of({{"hidden_act", "swish"}}) == usual);
  CHECK(loss_of({{"hidden_act", "gelu_new"}}) == loss_of({{"hidden_act", "gelu_pytorch_tanh"}}));
  CHECK(loss_of({{"hidden_act", "relu_squared"}}) == loss_of({{"hidden_act", "relu2"}}));
  std::set<double> losses{usual};
  const std::vector<std::string> others{"gelu", "gelu_new", "relu", "relu2", "quick_gelu", "mish"};
  for (const std::string& name : others) losses.insert(loss_of({{"hidden_act", name}}));
  CHECK(losses.size() == 1 + others.size());
  const std::string refused = refusal(
      around("    - RMSNorm\n    - CausalSelfAttention\n    - {op: MoE_FFN, config: {hidden_act: rleu}}\n", "moe"));
  CHECK(has(refused, "a.ndsl:7:30: error: there is no activation 'rleu'"));
  CHECK(has(refused, "did you mean 'relu'?"));
}

TEST_CASE("ndsl: a capacity limits the tokens of an expert in training alone") {
  const double free = loss_of({});
  CHECK(loss_of({{"capacity_factor", "4"}}) == Approx(free).epsilon(1e-6));
  const double limited = loss_of({{"capacity_factor", "0.5"}});
  CHECK(std::abs(limited - free) > 1e-4);
  CHECK(loss_of({{"capacity_factor", "0.5"}}, true, "reference") == Approx(limited).epsilon(1e-5));
  CHECK(loss_of({{"capacity_factor", "0.5"}}, false) == loss_of({}, false));
  // The load-balancing loss counts choices before the limit, as in Fedus et al. 2021.
  const auto of_one_layer = [](const std::string& capacity, const std::string& coefficient) {
    return loss_of({{"num_layers", "1"}, {"capacity_factor", capacity}, {"router_aux_loss_coef", coefficient}});
  };
  CHECK(of_one_layer("0.5", "2") - of_one_layer("0.5", "0") ==
        Approx(of_one_layer("4", "2") - of_one_layer("4", "0")).epsilon(1e-4));
}

TEST_CASE("ndsl: the z loss is the mean square of log-sum-exps of the routers' scores") {
  // Without weights all scores are 0, so each log-sum-exp is log(4), and the cross entropy log(19).
  const std::string plain = "0", coefficient = "0.125";
  const double scale = std::log(4.0) * std::log(4.0) * 0.125;
  CHECK(loss_of({{"initializer_range", plain}}) == Approx(std::log(19.0)).epsilon(1e-5));
  for (const char* routing : {"top_k", "expert_choice"}) {
    std::map<std::string, std::string> set{{"initializer_range", plain},
                                           {"router_z_loss_coef", coefficient},
                                           {"routing", routing},
                                           {"norm_topk_prob", "false"}};
    CHECK(loss_of(set) == Approx(std::log(19.0) + scale).epsilon(1e-5));
    CHECK(loss_of(set, false) == Approx(std::log(19.0)).epsilon(1e-5));
    set["output_router_logits"] = "false";
    CHECK(loss_of(set) == Approx(std::log(19.0)).epsilon(1e-5));
  }
}

TEST_CASE("ndsl: routing that does not fit is refused with a remedy") {
  const auto with = [](const std::string& settings) {
    return refusal(
        around("    - RMSNorm\n    - CausalSelfAttention\n    - {op: MoE_FFN, config: {" + settings + "}}\n", "moe"));
  };
  CHECK(has(with("routing: expert"), "a.ndsl:7:30: error: there is no routing 'expert'\n"));
  CHECK(has(with("routing: expert"), "routings: top_k, expert_choice"));
  CHECK(has(with("capacity_factor: 0"), "the capacity factor is 0\n"));
  CHECK(has(with("router_z_loss_coef: -1"), "-1 is not a coefficient of a loss"));
  CHECK(has(with("routing: expert_choice, router_aux_loss_coef: 0.01"), "write router_aux_loss_coef: 0, or routing"));
  CHECK(has(with("routing: expert_choice, norm_topk_prob: true"), "write norm_topk_prob: false, or routing: top_k"));
  CHECK(has(with("routing: expert_choice, use_router_bias: true"), "write use_router_bias: false"));
  CHECK(with("routing: expert_choice, router_aux_loss_coef: 0, norm_topk_prob: false") == "no error");
}

TEST_CASE("ndsl: matrices in flows that keep their type although another one was asked for are noted") {
  const auto notes_of = [](const std::string& weights, const std::string& type) {
    LayerModelRequest request{"Llama2", "Llama2", false, weights, "", type};
    if (weights.empty())
      request.set =
          "num_layers=1, hidden_size=64, vocab_size=32, intermediate_size=64, num_query_heads=4, num_kv_heads=4";
    std::string all;
    const auto model = open_layer_model(request, Registry::global());
    for (const std::string& note : model->notes) all += note + "\n";
    return all;
  };
  const std::string folder = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/Llama2";  // 16 wide
  const std::string kept = notes_of(folder, "q8_0");
  CHECK(has(kept, " matrices stay f32: their rows are not whole blocks of 32 numbers, as q8_0 needs\n"));
  CHECK(notes_of(folder, "f16").empty());
  CHECK(has(notes_of("", "q8_0"), "type=q8_0 has no effect on it: it starts with random numbers, which are f32\n"));
  CHECK(notes_of("", "f32").empty());
}

}  // namespace harmonics::engine::ndsl_operations
