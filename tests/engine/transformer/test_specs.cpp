// Specs applied to models: precedence of values, missing values, layouts, and a new architecture without C++.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <functional>

#include <harmonics/ops.hpp>

#include "dsl/spec/reader.hpp"
#include "engine/program/print.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "engine/transformer/trained_weights.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// y = silu(table[token] W' + b) for each token, with a canonical matrix and an optional bias.
const char* const kTinySpec = R"({
  "name": "tiny",
  "architecture": {
    "metadata_keys": {
      "keys": {"width": ["tiny.width", "tiny.size"], "vocab_size": "@len:table", "max_seq_len": "tiny.context",
               "classes": "@len:tiny.labels"},
      "defaults": {"max_seq_len": 9}
    },
    "prepare": {
      "globals": {"out": "width * 2"},
      "derived_globals": {"rows": "batch * {seq_len}"},
      "dynamics": ["batch", "seq_len"],
      "tensors": [{"name": "flat", "role": "intermediate", "dims": ["rows", "out"]}]
    },
    "tensor_names": {"table": "table", "w": ["weights", "w"], "b": "b", "never": "never"},
    "weight_bindings": [
      {"tensor": "table", "dims": ["vocab_size", "width"]},
      {"tensor": "w", "layout": "canonical", "expected_k": "width", "expected_n": "out"},
      {"tensor": "b", "dims": ["out"], "fallback_zero_len": "out"}
    ],
    "forward": [
      {"op": "Embedding", "ids": "tokens", "weight": "table", "out": "x"},
      {"op": "Linear", "in": "x", "weight": "w", "bias": "b", "out": "x"},
      {"op": "Reshape", "in": "x", "dims": ["rows", "out"], "out": "flat"},
      {"op": "Silu", "in": "flat", "out": "y", "when": "width % 2"},
      {"op": "Scale", "in": "flat", "by": "width / 4", "out": "y", "unless": "width % 2"}
    ],
    "outputs": {"y": "y"}
  }
})";

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kTinySpec;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Returns the program of a small Llama with changed metadata.
std::string printed_llama(const std::function<void(AttributeMap&)>& change) {
  Model model = bare_llama({});
  AttributeMap keys = model.metadata.values();
  change(keys);
  model.metadata = ModelMetadata("small", keys);
  add_architecture_entries(model);
  return print(model.trace(model.entry("forward"), {1, 3, 8}));
}

ImportedModel tiny_model(int64_t width = 4, bool bias = false) {
  ImportedModel model;
  model.path = "tiny.bin";
  model.metadata = ModelMetadata("tiny.bin", AttributeMap()
                                                 .set("general.architecture", "tiny")
                                                 .set("tiny.size", width)
                                                 .set("tiny.labels", std::vector<int64_t>{5, 6, 7}));
  model.tensors.emplace("table", small_random({5, width}, 1, 0.5f));
  model.tensors.emplace("w", small_random({width, 2 * width}, 2, 0.5f));
  if (bias) model.tensors.emplace("b", small_random({2 * width}, 3, 0.5f));
  return model;
}

ModelOptions with_spec(const std::string& text, SpecOverrides set = {}) {
  ModelOptions options;
  options.spec = specs::parse_spec("tiny.json", text);
  options.set = std::move(set);
  return options;
}

std::string refused(const std::string& text, SpecOverrides set = {}) {
  return message_of([&] { model_of(tiny_model(), with_spec(text, std::move(set))); });
}

std::vector<float> run_tiny(const Model& model, const std::vector<int32_t>& tokens) {
  const auto executor = make_sequential_executor();
  CompileOptions options;
  options.device = "reference";
  const auto count = static_cast<int64_t>(tokens.size());
  const auto plan =
      compile(model.trace(model.entry("forward"), {1, count, 1}), model.parameters.get(), *executor, options);
  const void* inputs[] = {tokens.data()};
  plan->run(inputs);
  const HTensor& y = plan->output("y");
  return {y.data<float>(), y.data<float>() + y.size()};
}

}  // namespace

TEST_CASE("specs: a new architecture is a JSON file") {
  for (const bool bias : {false, true}) {
    const ImportedModel imported = tiny_model(4, bias);
    const Model model = model_of(imported, with_spec(kTinySpec));
    CHECK(model.context == 9);
    CHECK(model.vocabulary == 5);
    CHECK(model.states.empty());
    REQUIRE(model.entries.size() == 1);
    const std::vector<int32_t> tokens{4, 1, 2};
    const std::vector<float> found = run_tiny(model, tokens);
    REQUIRE(found.size() == 24);
    const float *table = imported.tensor("table").data<float>(), *w = imported.tensor("w").data<float>();
    for (size_t t = 0; t < 3; ++t)
      for (size_t n = 0; n < 8; ++n) {
        double sum = bias ? static_cast<double>(imported.tensor("b").data<float>()[n]) : 0;
        for (size_t k = 0; k < 4; ++k)
          sum += static_cast<double>(table[static_cast<size_t>(tokens[t]) * 4 + k]) * static_cast<double>(w[k * 8 + n]);
        CHECK(found[t * 8 + n] == Approx(sum).margin(1e-6));
      }
  }
}

TEST_CASE("specs: a matrix of one row is stored as a matrix or as a vector") {
  std::string spec = replaced(R"({"op": "Linear", "in": "x", "weight": "w", "bias": "b", "out": "x"},)",
                              R"({"op": "Linear", "in": "x", "weight": "row", "out": "share"},
                                 {"op": "Linear", "in": "x", "weight": "w", "bias": "b", "out": "x"},)");
  const auto put = [&spec](const std::string& from, const std::string& to) {
    REQUIRE(spec.find(from) != std::string::npos);
    spec.replace(spec.find(from), from.size(), to);
  };
  put(R"("b": "b",)", R"("b": "b", "row": "row",)");
  put(R"({"tensor": "table",)", R"({"tensor": "row", "dims": [1, "width"]}, {"tensor": "table",)");
  put(R"("outputs": {"y": "y"})", R"("outputs": {"y": "share"})");
  std::vector<float> results[2];
  for (const bool vector : {false, true}) {
    ImportedModel imported = tiny_model();
    imported.tensors.emplace("row", reshape(small_random({4}, 7, 1), vector ? Shape{4} : Shape{1, 4}));
    results[vector] = run_tiny(model_of(imported, with_spec(spec)), {4, 1, 2});
  }
  CHECK(results[0].size() == 3);
  CHECK(results[0] == results[1]);
  ImportedModel wrong = tiny_model();
  wrong.tensors.emplace("row", small_random({5}, 7, 1));
  CHECK(message_of([&] { model_of(wrong, with_spec(spec)); }) ==
        "'tiny.bin': the tensor 'row' is f32[5], and the model's sizes need f32[1, 4]");
}

TEST_CASE("specs: experts with a wrong activation, limit or bias are refused") {
  const auto refusal = [](const std::string& fields, const Shape& bias) {
    std::string spec = replaced(R"({"op": "Reshape", "in": "x", "dims": ["rows", "out"], "out": "flat"},)",
                                R"({"op": "Experts", "in": "x", "router": "router", "gate": "gate", "up": "gate",
                                    "down": "down", "used": 1, )" +
                                    fields + R"("out": "x"},
                                   {"op": "Reshape", "in": "x", "dims": ["rows", "out"], "out": "flat"},)");
    const auto put = [&spec](const std::string& from, const std::string& to) {
      REQUIRE(spec.find(from) != std::string::npos);
      spec.replace(spec.find(from), from.size(), to);
    };
    put(R"("b": "b",)", R"("b": "b", "router": "router", "gate": "gate", "down": "down", "more": "more",)");
    put(R"({"tensor": "table",)", R"({"tensor": "router", "dims": [2, "out"]},
        {"tensor": "gate", "dims": [2, 3, "out"], "layout": "experts"},
        {"tensor": "down", "dims": [2, "out", 3], "layout": "experts"},
        {"tensor": "more", "dims": [)" +
                                      std::to_string(bias[0]) + ", " + std::to_string(bias[1]) + R"(]},
        {"tensor": "table",)");
    ImportedModel imported = tiny_model();
    imported.tensors.emplace("router", small_random({2, 8}, 4, 1));
    imported.tensors.emplace("gate", small_random({2, 3, 8}, 5, 1));
    imported.tensors.emplace("down", small_random({2, 8, 3}, 6, 1));
    imported.tensors.emplace("more", small_random(bias, 7, 1));
    return message_of([&] { model_of(imported, with_spec(spec)); });
  };
  CHECK(refusal(R"("gate_bias": "more", )", {2, 3}) == "no error");
  CHECK(refusal(R"("gate_bias": "more", )", {2, 8}).find("has 'gate_bias' of [2, 8] for experts that need [2, 3]") !=
        std::string::npos);
  CHECK(refusal(R"("activation": "relu", )", {2, 3}) == "no error");
  CHECK(refusal(R"("activation": "rleu", )", {2, 3}).find("has the activation 'rleu'; there is none of this name") !=
        std::string::npos);
  CHECK(refusal(R"("activation": "clamped_swiglu", "limit": 0, )", {2, 3}).find("has the limit 0; it is above 0") !=
        std::string::npos);
}

TEST_CASE("specs: Select takes one value where another is above a number, and another value elsewhere") {
  const auto with = [](const std::string& above) {
    return replaced(R"({"op": "Scale", "in": "flat", "by": "width / 4", "out": "y", "unless": "width % 2"})",
                    R"({"op": "Scale", "in": "flat", "by": "0 - 1", "out": "negative"},
                       {"op": "Select", "in": "flat", "a": "flat", "b": "negative", )" +
                        above + R"("out": "y"})");
  };
  const std::vector<int32_t> tokens{4, 1, 2};
  const std::vector<float> plain = run_tiny(model_of(tiny_model(), with_spec(kTinySpec)), tokens),
                           absolute = run_tiny(model_of(tiny_model(), with_spec(with(""))), tokens),
                           above =
                               run_tiny(model_of(tiny_model(), with_spec(with("\"above\": \"1 / width\", "))), tokens);
  REQUIRE(above.size() == plain.size());
  int between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(absolute[i] == std::abs(plain[i]));
    CHECK(above[i] == (plain[i] > 0.25f ? plain[i] : -plain[i]));
    between += plain[i] > 0 && plain[i] < 0.25f;
  }
  CHECK(between > 0);
  CHECK(refused(replaced(R"({"op": "Silu", "in": "flat", "out": "y", "when": "width % 2"})",
                         R"({"op": "Select", "in": "x", "a": "flat", "b": "x", "out": "z"})")) ==
        "'tiny.json': architecture.forward[3]: the step Select takes two values of one shape; [1, 8] and [1, 1, 8] "
        "differ");
}

TEST_CASE("specs: metadata below the spec, the spec below the run, each with its origin") {
  const auto value = [](const std::string& text, SpecOverrides set, const char* name) {
    const auto resolved = resolve_spec(tiny_model(), with_spec(text, std::move(set)));
    const ResolvedValue& found = resolved->variables().value(name, "the test");
    return specs::text_of(found.value) + " from " + found.origin;
  };
  CHECK(value(kTinySpec, {}, "width") == "4 from metadata tiny.size");
  CHECK(value(kTinySpec, {}, "max_seq_len") == "9 from spec, default");
  CHECK(value(kTinySpec, {}, "out") == "8 from spec, prepare.globals = width * 2");
  CHECK(value(kTinySpec, {}, "vocab_size") == "5 from rows of the tensor table");
  CHECK(value(kTinySpec, {}, "classes") == "3 from metadata @len:tiny.labels");
  CHECK(value(kTinySpec, {{"max_seq_len", "7"}}, "max_seq_len") == "7 from --set max_seq_len=7");
  const std::string both = replaced("\"out\": \"width * 2\"", "\"out\": \"width * 2\", \"width\": 4");
  CHECK(value(both, {}, "width") == "4 from spec, prepare.globals");
  CHECK(value(both, {{"width", "4"}}, "width") == "4 from --set width=4");
  // Only required values are resolved.
  const auto resolved = resolve_spec(tiny_model(), with_spec(kTinySpec));
  CHECK(resolved->variables().resolved().count("classes") == 0);
  CHECK(resolved->variables().resolved().count("width") == 1);
}

TEST_CASE("specs: a variable without value is named with its place and the three remedies") {
  ImportedModel nameless = tiny_model();
  nameless.metadata = ModelMetadata("tiny.bin", AttributeMap().set("general.architecture", "tiny"));
  try {
    model_of(nameless, with_spec(kTinySpec));
    FAIL("no error");
  } catch (const MissingVariable& e) {
    CHECK(e.variable() == "width");
    CHECK(e.place() == "'tiny.json': architecture.weight_bindings[0].dims[1]");
    CHECK(e.kind() == ErrorKind::Weights);
    REQUIRE(e.notes().size() == 3);
    CHECK(e.notes()[0] == "the metadata: tiny.width, tiny.size in the file of the weights");
    CHECK(e.notes()[1] == "the spec: prepare.globals.width in 'tiny.json'");
    CHECK(e.notes()[2] == "the run: --set width=VALUE");
  }
  CHECK(model_of(nameless, with_spec(kTinySpec, {{"width", "4"}})).vocabulary == 5);
}

TEST_CASE("specs: what does not fit is refused by name, before data moves") {
  CHECK(refused(kTinySpec, {{"widht", "4"}}) == "the spec 'tiny.json' has no variable 'widht'\ndid you mean 'width'?");
  CHECK(refused(kTinySpec, {{"width", "6"}}) ==
        "'tiny.bin': the tensor 'table' is f32[5, 4], and the model's sizes need f32[5, 6]");
  CHECK(refused(replaced("\"expected_n\": \"out\"", "\"expected_n\": \"out + 1\"")) ==
        "'tiny.bin': the tensor 'w' is f32[4, 8], and the model's sizes need f32[4, 9]");
  CHECK(refused(replaced("\"op\": \"Silu\"", "\"op\": \"Sulu\"")) ==  // also in a step that does not run
        "'tiny.json': architecture.forward[3]: there is no operation 'Sulu'\ndid you mean 'Silu'?");
  CHECK(refused(replaced("\"op\": \"Scale\"", "\"op\": \"Scele\"")) ==
        "'tiny.json': architecture.forward[4]: there is no operation 'Scele'\ndid you mean 'Scale'?");
  CHECK(refused(replaced("\"by\": \"width / 4\"", "\"bye\": 1"))
            .find("'tiny.json': architecture.forward[4]: the step Scale has no 'by'") == 0);
  CHECK(refused(replaced("\"by\": \"width / 4\"", "\"by\": 1, \"more\": 1"))
            .find("'tiny.json': architecture.forward[4]: the step Scale has the unknown entry 'more'") == 0);
  CHECK(refused(replaced("\"in\": \"flat\", \"by\"", "\"in\": \"flet\", \"by\"")) ==
        "'tiny.json': architecture.forward[4]: the step Scale reads 'flet', which no earlier step gives\n"
        "did you mean 'flat'?");
  CHECK(refused(replaced("[\"rows\", \"out\"]}", "[\"rows\", \"width\"]}")) ==
        "'tiny.json': architecture.forward[2]: the step Reshape gives 'flat' the shape [1, 8], and "
        "architecture.prepare.tensors[0] says [1, 4]");
  CHECK(refused(replaced("\"bias\": \"b\"", "\"bias\": \"never\""))
            .find("'tiny.json': architecture.forward[1]: no weight binding has the tensor 'never'") == 0);
  CHECK(refused(replaced("\"out\": \"width * 2\"", "\"out\": \"out * 2\""))
            .find("the variable 'out' depends on itself") == 0);
  CHECK(refused(replaced("[\"batch\", \"seq_len\"]", "[\"batch\", \"time\"]")) ==
        "'tiny.json': prepare.dynamics has 'time'\nvalues of a run: batch, seq_len, kv_capacity");
  ImportedModel more = tiny_model();
  more.tensors.emplace("gate", small_random({4}, 1, 1));
  CHECK(message_of([&] { model_of(more, with_spec(kTinySpec)); }) ==
        "'tiny.bin' has the tensor 'gate', which a model of this family does not compute with");
  ImportedModel unknown = tiny_model();
  AttributeMap keys = unknown.metadata.values();
  unknown.metadata = ModelMetadata("tiny.bin", keys.set("tiny.warp", int64_t{3}));
  CHECK(message_of([&] {
          model_of(unknown, with_spec(kTinySpec));
        }).find("'tiny.bin': the metadata 'tiny.warp' may change what the model computes") == 0);
}

TEST_CASE("specs: what metadata leaves out is what llama.cpp takes") {
  const auto kLinear = [](AttributeMap& keys) {
    keys.set("llama.rope.scaling.type", "linear").set("llama.rope.scaling.factor", 4.0);
  };
  const auto kYarn = [](AttributeMap& keys) {
    keys.set("llama.rope.scaling.type", "yarn").set("llama.rope.scaling.factor", 4.0);
  };
  const std::string plain = printed_llama([](AttributeMap&) {}), linear = printed_llama(kLinear),
                    yarn = printed_llama([&](AttributeMap&keys) {
                      kYarn(keys);
                      keys.set("llama.rope.scaling.original_context_length", int64_t{300});  // llama.context_length
                    });
  CHECK(linear != plain);
  CHECK(printed_llama([](AttributeMap& keys) { keys.set("llama.rope.scaling.factor", 4.0); }) == linear);
  CHECK(printed_llama([](AttributeMap& keys) { keys.set("llama.rope.scale_linear", 4.0); }) == linear);
  CHECK(printed_llama([](AttributeMap& keys) { keys.set("llama.rope.scaling.factor", 0.0); }) == plain);
  CHECK(printed_llama([&](AttributeMap& keys) {
          kLinear(keys);
          keys.set("llama.rope.scaling.type", "none");
        }) == plain);
  CHECK(printed_llama(kYarn) == yarn);
  CHECK(yarn != plain);
  CHECK(printed_llama([](AttributeMap& keys) { keys.set("llama.rope.scaling.attn_factor", 2.0); }) != plain);
  CHECK(message_of([&] {
          printed_llama([&](AttributeMap& keys) {
            kYarn(keys);
            keys.set("llama.rope.scaling.factor", -4.0);
          });
        }) ==
        "'small': the scaling of rotary positions is 'yarn' with the factor -4, and only linear, yarn, llama3, dynamic "
        "and longrope by a positive factor are implemented");
}

TEST_CASE("specs: a list that repeats one value for each block is that value") {
  using List = std::vector<int64_t>;
  const auto with = [](const List& heads) {
    return [heads](AttributeMap& keys) { keys.set("llama.attention.head_count", heads); };
  };
  CHECK(printed_llama(with({6, 6})) == printed_llama([](AttributeMap&) {}));
  for (const List& heads : {List{6, 3}, List{}})
    CHECK(message_of([&] { printed_llama(with(heads)); }) ==
          "'small': the metadata 'llama.attention.head_count' is a list of values that differ; the variable 'n_heads' "
          "needs one value");
}

TEST_CASE("specs: a list of the blocks with windows is their period") {
  const std::string spec =
      replaced(R"("classes": "@len:tiny.labels")", R"("classes": "@len:tiny.labels", "out": "@period:tiny.windows")");
  const auto period = [&](const AttributeValue& windows) {
    ImportedModel imported = tiny_model();
    AttributeMap keys = imported.metadata.values();
    imported.metadata = ModelMetadata("tiny.bin", keys.set("tiny.windows", windows));
    const size_t globals = spec.find("\"globals\": {\"out\": \"width * 2\"}");
    std::string without = spec;
    without.replace(globals, std::strlen("\"globals\": {\"out\": \"width * 2\"}"), "\"globals\": {}");
    return message_of([&] { model_of(imported, with_spec(without)); });
  };
  using List = std::vector<int64_t>;
  CHECK(period(int64_t{8}) == "no error");
  CHECK(period(List{1, 1, 1, 1, 1, 1, 1, 0, 1}) == "no error");
  CHECK(period(List{1, 1, 1, 1, 1, 1, 1}) == "no error");
  CHECK(period(List{1, 1, 0, 1, 0}) ==
        "'tiny.bin': the metadata 'tiny.windows' is a list whose false items are not those of every N-th block; only "
        "such lists are implemented");
  CHECK(period(List{1, 0, 1, 0}) != "no error");  // the weights have 8 columns, not 2
}

TEST_CASE("specs: sizes and settings with which nothing can be computed are refused by their keys") {
  const auto refusal = [](const char* key, AttributeValue value) {
    Model model = bare_llama({});
    AttributeMap keys = model.metadata.values();
    keys.set("llama.attention.layer_norm_rms_epsilon", 1e-5).set("llama.rope.freq_base", 10000.0);
    model.metadata = ModelMetadata("small", keys.set(key, std::move(value)));
    return message_of([&] { add_architecture_entries(model); });
  };
  const std::string above = "; it must be a number above 0";
  CHECK(refusal("llama.block_count", int64_t{0}) == "'small': metadata llama.block_count is 0" + above);
  CHECK(refusal("llama.attention.head_count", int64_t{0}) ==
        "'small': metadata llama.attention.head_count is 0" + above);
  CHECK(refusal("llama.attention.head_count_kv", int64_t{-2}) ==
        "'small': metadata llama.attention.head_count_kv is -2" + above);
  CHECK(refusal("llama.rope.freq_base", -1.0) == "'small': metadata llama.rope.freq_base is -1" + above);
  CHECK(refusal("llama.rope.freq_base", std::nan("")) == "'small': metadata llama.rope.freq_base is nan" + above);
  CHECK(refusal("llama.rope.freq_base", INFINITY) == "'small': metadata llama.rope.freq_base is inf" + above);
  for (const double epsilon : {0.0, -1e-5})
    CHECK(refusal("llama.attention.layer_norm_rms_epsilon", epsilon)
              .find("'small': metadata llama.attention.layer_norm_rms_epsilon is ") == 0);
  CHECK(refusal("llama.embedding_length", int64_t{27}) ==
        "'small': metadata llama.embedding_length is 27, which is no multiple of metadata "
        "llama.attention.head_count, 6");
  CHECK(refusal("llama.rope.freq_base", 500000.0) == "no error");
}

TEST_CASE("specs: scaled rotary positions cover more than the context") {
  const auto covered = [](const char* scaling, double factor) {
    Model model = bare_llama({});
    AttributeMap keys = model.metadata.values();
    keys.set("llama.rope.scaling.type", scaling).set("llama.rope.scaling.factor", factor);
    keys.set("llama.rope.scaling.original_context_length", int64_t{200});
    model.metadata = ModelMetadata("small", keys);
    add_architecture_entries(model);
    CHECK(model.context == 300);
    return model.covered();
  };
  CHECK(covered("none", 1) == 300);
  CHECK(covered("yarn", 4) == 800);
  CHECK(covered("linear", 8) == 1600);
  CHECK(covered("linear", 1.25) == 300);
}

TEST_CASE("specs: trained weights have all experts of a stack, or none") {
  std::string text = kTinySpec;
  const std::string table = R"("tensor_names": {)", bindings = R"("weight_bindings": [)";
  text.replace(text.find(table), table.size(), table + R"("up": "up", )");
  text.replace(text.find(bindings), bindings.size(),
               bindings + R"({"tensor": "up", "dims": [3, "out", "width"], "layout": "experts"}, )");
  ImportedModel model = tiny_model();
  model.tensors.emplace("up", small_random({3, 8, 4}, 4, 0.5f));
  const auto resolved = resolve_spec(model, with_spec(text));
  TensorFile trained;
  const auto learn = [&](const std::string& name, const Shape& shape, uint32_t seed) {
    trained.tensors["o.model." + name] = small_random(shape, seed, 0.5f);
  };
  learn("table", {5, 4}, 5);
  const auto exported = [&] { return trained_tensors(model, *resolved, *resolved, trained, "run.safetensors"); };
  CHECK(exported().at("table").bytes() == trained.tensors.at("o.model.table").bytes());
  CHECK(exported().at("up").bytes() == model.tensor("up").bytes());
  learn("up[0]", {8, 4}, 6);
  learn("up[2]", {8, 4}, 7);
  CHECK(message_of([&] { exported(); }) == "'run.safetensors' lacks tensors of the model 'tiny.bin'\nmissing: up[1]");
  learn("up[1]", {8, 4}, 8);
  const HTensor up = exported().at("up");
  CHECK(up.shape() == Shape{3, 8, 4});
  CHECK(up.data<float>()[32] == trained.tensors.at("o.model.up[1]").data<float>()[0]);
}

TEST_CASE("specs: an unknown architecture is refused with the known ones") {
  CHECK(
      message_of([] { model_of(tiny_model()); })
          .find("'tiny.bin' is a model of the architecture 'tiny', which is not known\n"
                "known architectures: arcee, bert, cohere2, command-r, ernie4_5, exaone, exaone4, gemma, gemma2, "
                "gemma3, glm4, gpt-oss, gpt2, gptneox, granite, granitemoe, hunyuan-dense, llama, nemotron, "
                "nomic-bert, olmo2, olmoe, phi2, phi3, qwen2, qwen2moe, qwen3, qwen3moe, seed_oss, smollm3, stablelm, "
                "starcoder2\n") == 0);
}

TEST_CASE("specs: a run resolves nothing that was not resolved before") {
  const Model model = small_llama();
  for (const char* entry : {"prefill", "decode", "loss", "forward"})
    CHECK(model.trace(model.entry(entry), {2, 3, 64}).nodes.size() > 50);
  CHECK(model.states.size() == 6);
  CHECK(model.states[0].type({1, 1, 7}).str() == "f32[1, 7, 2, 4]");
}
