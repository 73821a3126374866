// Models from other files as functions of a flow: trained and frozen weights, saved files, and errors.
#include <catch2/catch.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/flow/model_call.hpp"
#include "engine/model/exported.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

namespace fs = std::filesystem;
using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

const fs::path kFolders = fs::path(HARMONICS_SOURCE_DIR) / "tests/parity/golden/folders";
constexpr int64_t kTokensOfSample = 8, kVocabulary = 40;

bool reads_folder_models() { return is_model((kFolders / "llama3").string(), Registry::global()); }

std::string flow_on(const std::string& call, const std::string& rest) {
  return "harmonic g { producer tokens; producer next; producer documents; layer scores; cycle { tokens -(" + call +
         ")-> scores; " + rest + " } }";
}
const std::string kTap = "scores <-(cross_entropy(ignore_index=-100))- next;";
std::string llama(const std::string& arguments = "") {
  return "model(\"" + (kFolders / "llama3").string() + "\"" + arguments + ")";
}

std::unique_ptr<BoundGraph> bound_flow(const std::string& text, std::vector<int32_t> next = {}, int64_t rows = 4) {
  auto g = graph_of(text);
  g->allow_weights_in(kFolders.string());
  bind_rows(*g, "tokens", Shape{kTokensOfSample}, some_tokens(rows * kTokensOfSample, kVocabulary, 1));
  if (next.empty()) next = some_tokens(rows * kTokensOfSample, kVocabulary, 2);
  bind_rows(*g, "next", Shape{kTokensOfSample}, std::move(next));
  return g;
}

void train_steps(BoundGraph& g, int64_t batch, int64_t accumulate, int64_t epochs,
                 const char* optimizer = "sgd(lr=0.1)") {
  RunSettings s = settings(batch);
  s.optimizer = optimizer;
  s.epochs = epochs;
  s.shuffle = false;
  s.accumulate = accumulate;
  CycleRuntime(g, 0, s).run();
}

std::vector<float> scores_of(BoundGraph& g) {
  auto kept = keep(g, "out");
  CycleRuntime(g, 0, settings(4)).run();
  return kept->values;
}

// Returns the scores of a flow without taps, with these weights if given.
std::vector<float> scores_with(const TensorFile* weights, const std::string& arguments = "") {
  auto g = graph_of("harmonic g { producer tokens; layer scores; consumer out; cycle { tokens -(" + llama(arguments) +
                    ")-> scores -> out; } }");
  g->allow_weights_in(kFolders.string());
  if (weights) g->load_weights(*weights, "w");
  bind_rows(*g, "tokens", Shape{kTokensOfSample}, some_tokens(4 * kTokensOfSample, kVocabulary, 1));
  return scores_of(*g);
}

std::string refused_flow(const std::string& text) {
  return message_of([&] {
    auto g = bound_flow(text);
    declare(*g);
  });
}

}  // namespace

TEST_CASE("model layer: every parameter of the file learns, under the arrow's name or its own") {
  if (!reads_folder_models()) return;
  for (const bool named : {false, true}) {
    auto g = bound_flow(flow_on(llama(named ? ", name=m" : ""), kTap));
    declare(*g);
    std::map<std::string, std::vector<float>> before;
    for (const auto& [name, t] : g->store().all())
      if (t.role == Role::weight) before[name] = weights(*g, name);
    CHECK(before.size() == 20);
    CHECK(before.count(std::string(named ? "m" : "tokens.scores.model") + ".blk.1.attn_q.weight") == 1);
    train_steps(*g, 4, 1, 1);
    for (const auto& [name, values] : before) {
      INFO(name);
      const bool factors = name.find("rope_freqs") != std::string::npos;  // they divide the frequencies of positions
      CHECK((weights(*g, name) != values) == !factors);
    }
  }
}

TEST_CASE("model layer: freeze keeps the weights, and later layers learn") {
  if (!reads_folder_models()) return;
  auto g =
      bound_flow("harmonic g { producer tokens; producer next {*, 40}; layer hidden; layer scores; cycle { tokens -(" +
                 llama(", freeze=true") + ")-> hidden -(affine)-> scores; " + kTap + " } }");
  declare(*g);
  const std::string matrix = "tokens.hidden.model.blk.0.ffn_up.weight", head = "hidden.scores.affine.weight";
  const auto frozen = weights(*g, matrix), learned = weights(*g, head);
  train_steps(*g, 4, 1, 1);
  CHECK(weights(*g, matrix) == frozen);
  CHECK(weights(*g, head) != learned);
  CHECK(g->store().find(matrix)->fixed);
  const TensorFile saved = g->weights();  // weights in the model's file are not saved again
  CHECK(saved.tensors.count(matrix) == 0);
  CHECK(saved.tensors.count(head) == 1);
  TensorFile snapshot;
  g->snapshot(snapshot);
  CHECK(snapshot.tensors.count(matrix) == 0);
}

TEST_CASE("model layer: trained weights are used by the flow without its tap") {
  if (!reads_folder_models()) return;
  auto g = bound_flow(flow_on(llama(), kTap));
  train_steps(*g, 4, 1, 3);
  const TensorFile trained = g->weights();
  const std::vector<float> before = scores_with(nullptr), after = scores_with(&trained);
  CHECK(before.size() == static_cast<size_t>(4 * kTokensOfSample * kVocabulary));
  CHECK(before != after);
}

TEST_CASE("model layer: a step of four batches is that of one, with unequal numbers of ignored tokens") {
  if (!reads_folder_models()) return;
  std::vector<int32_t> next = some_tokens(4 * kTokensOfSample, kVocabulary, 2);
  for (const size_t at : {0, 1, 2, 3, 4, 5, 6, 9, 10, 24, 25, 26}) next[at] = -100;
  std::vector<std::map<std::string, std::vector<float>>> learned;
  for (const int64_t accumulate : {1, 4}) {
    auto g = bound_flow(flow_on(llama(), kTap), next);
    train_steps(*g, 4 / accumulate, accumulate, 2);
    learned.emplace_back();
    for (const auto& [name, t] : g->store().all())
      if (t.role == Role::weight) learned.back()[name] = weights(*g, name);
  }
  REQUIRE(learned[0].size() == learned[1].size());
  for (const auto& [name, whole] : learned[0]) {
    INFO(name);
    for (size_t i = 0; i < whole.size(); ++i)
      CHECK(learned[1].at(name)[i] == Approx(whole[i]).epsilon(1e-4).margin(1e-6));
  }
}

TEST_CASE("model layer: packed documents have the scores of documents alone") {
  if (!reads_folder_models()) return;
  const std::vector<int32_t> ids = some_tokens(kTokensOfSample, kVocabulary, 5);
  const auto scores_for = [&](std::vector<int32_t> tokens, const std::vector<int32_t>& documents) {
    const auto length = static_cast<int64_t>(tokens.size());
    auto g =
        graph_of(std::string("harmonic g { producer tokens; producer documents; layer scores; consumer out; cycle { "
                             "tokens -(") +
                 llama(documents.empty() ? "" : ", documents=documents") + ")-> scores -> out; " + " } }");
    g->allow_weights_in(kFolders.string());
    bind_rows(*g, "tokens", Shape{length}, std::move(tokens));
    if (!documents.empty()) bind_rows(*g, "documents", Shape{length}, documents);
    return scores_of(*g);
  };
  const std::vector<float> packed = scores_for(ids, {0, 0, 0, 2, 2, 2, 2, 5});
  std::vector<float> alone;
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{0, 3}, {3, 7}, {7, 8}})
    for (const float score : scores_for({ids.begin() + from, ids.begin() + to}, {})) alone.push_back(score);
  REQUIRE(packed.size() == alone.size());
  for (size_t i = 0; i < alone.size(); ++i) CHECK(packed[i] == Approx(alone[i]).epsilon(1e-4).margin(1e-5));
  CHECK(packed != scores_for(ids, {}));
}

TEST_CASE("model layer: hidden values lead to other layers") {
  if (!reads_folder_models()) return;
  auto g =
      bound_flow("harmonic g { producer tokens; producer next {*, 40}; layer hidden; layer scores; cycle { tokens -(" +
                 llama(", output=hidden") + ")-> hidden -(affine)-> scores; " + kTap + " } }");
  const Widths& widths = g->widths();
  CHECK(widths.of.at(g->graph().find("hidden")).shape == Shape{kTokensOfSample, 24});
  CHECK(widths.of.at(g->graph().find("scores")).shape == Shape{kTokensOfSample, kVocabulary});
  train_steps(*g, 4, 1, 1);
}

TEST_CASE("model layer: NorMuon keeps the output map and the table apart from hidden matrices") {
  if (!reads_folder_models()) return;
  const std::string qwen = "model(\"" + (kFolders / "qwen2").string() + "\", name=m)";
  auto g = bound_flow(flow_on(qwen, kTap));
  LoweringOptions o;
  o.optimizer = parse_optimizer("normuon");
  o.batch = 2;
  std::map<std::string, bool> hidden;
  for (const TrainedParameter& p : g->lower(o).trained) hidden[p.name] = p.hidden;
  CHECK_FALSE(hidden.at("m.output.weight"));
  CHECK_FALSE(hidden.at("m.token_embd.weight"));
  CHECK(hidden.at("m.blk.1.attn_q.weight"));
}

TEST_CASE("model layer: blocks stay as they are unless their type is named") {
  if (!reads_folder_models()) return;
  const fs::path folder = fs::temp_directory_path() / ("harmonics-model-layers-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  SmallLlama sizes;
  sizes.width = 32, sizes.heads = 4, sizes.hidden = 64, sizes.vocabulary = kVocabulary;
  std::map<std::string, HTensor> tensors;
  const Model bare = bare_llama(sizes);
  for (const auto& [name, t] : bare.parameters->all()) {
    const HTensor numbers = bare.parameters->tensor(name);
    tensors.emplace(name, numbers.rank() == 2 && name.starts_with("blk.") ? cast(numbers, DType::Q8_0) : numbers);
  }
  const std::string file = (folder / "blocks.gguf").string();
  export_model(tensors, bare.metadata.values(), file, Registry::global());
  for (const bool converts : {false, true}) {
    INFO(converts);
    auto g = bound_flow(flow_on("model(\"" + file + "\", name=m" + (converts ? ", type=f32)" : ")"), kTap));
    g->allow_weights_in(folder.string());
    declare(*g);
    const StoredTensor& matrix = *g->store().find("m.blk.0.ffn_up.weight");
    CHECK((matrix.type.dtype == DType::F32) == converts);
    CHECK((matrix.role == Role::weight) == converts);
    const std::vector<std::string>& notes = g->widths().notes;
    CHECK((notes.size() == 1) == !converts);
    if (!converts)
      CHECK_THAT(notes.at(0),
                 Catch::Contains("are blocks, such as q8_0, and stay as they are") && Catch::Contains("type=f32"));
    const std::vector<float> table = weights(*g, "m.token_embd.weight");
    train_steps(*g, 4, 1, 1);
    CHECK(weights(*g, "m.token_embd.weight") != table);
    const TensorFile saved = g->weights();
    CHECK(saved.tensors.count("m.blk.0.ffn_up.weight") == (converts ? 1u : 0u));
    CHECK(saved.tensors.count("m.token_embd.weight") == 1);
  }
  fs::remove_all(folder);
}

TEST_CASE("model layer: uses that cannot be are refused with the remedy") {
  if (!reads_folder_models()) return;
  using Catch::Contains;
  const std::string there = kFolders.string();
  CHECK_THAT(refused_flow(flow_on("model(\"" + there + "/nowhere\")", kTap)), Contains("nowhere"));
  CHECK_THAT(refused_flow(flow_on("model(\"/secret.gguf\")", kTap)),
             Contains("is outside the folder of the flow") && Contains("--weights-from"));
  CHECK_THAT(refused_flow(flow_on("model(\"../secret.gguf\")", kTap)), Contains("is outside the folder of the flow"));
  CHECK_THAT(refused_flow(flow_on("model(\"" + there + "/tokenizers.json\")", kTap)), Contains("importer"));
  CHECK_THAT(refused_flow(flow_on(llama(", tied=scores"), kTap)), Contains("model has no argument 'tied'"));
  CHECK_THAT(refused_flow(flow_on(llama(", type=q8_0"), kTap)), Contains("weights of this type are not trained"));
  CHECK_THAT(refused_flow(flow_on(llama(", output=logits"), kTap)), Contains("scores"));
  CHECK_THAT(refused_flow(flow_on(llama(", weights=\"" + there + "/llama3\""), kTap)), Contains("has its own weights"));
  CHECK_THAT(refused_flow(flow_on(llama(", documents=nobody"), kTap)), Contains("'nobody' is not a layer or producer"));
}

TEST_CASE("model layer: streams that are not tokens are refused") {
  if (!reads_folder_models()) return;
  using Catch::Contains;
  const auto refused_with = [&](const Shape& sample, auto values) {
    return message_of([&] {
      auto g = graph_of(flow_on(llama(), kTap));
      g->allow_weights_in(kFolders.string());
      bind_rows(*g, "tokens", sample, values);
      bind_rows(*g, "next", Shape{kTokensOfSample}, some_tokens(kTokensOfSample, kVocabulary, 2));
      declare(*g);
    });
  };
  CHECK_THAT(refused_with(Shape{8}, numbers(8)), Contains("model reads tokens by number"));
  CHECK_THAT(refused_with(Shape{}, some_tokens(1, 40)), Contains("model reads tokens as samples [tokens]"));
  CHECK_THAT(refused_with(Shape{100}, some_tokens(100, 40)), Contains("the context of") && Contains("is 64"));
}
