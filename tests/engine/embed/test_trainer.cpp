// Training a transformer through the C++ API.
#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>

#include <harmonics/trainer.hpp>

#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using harmonics::HTensor;
using harmonics::RuntimeModelRegistry;
using harmonics::Shape;

namespace {

constexpr int kTokens = 8, kWords = 12;

// Sequences of consecutive words, which wrap around at the end of the vocabulary.
class Circle : public harmonics::Producer {
 public:
  explicit Circle(int ahead) : ahead_(ahead) {}
  HTensor next() override {
    if (at_ == 32) return {};
    int32_t tokens[kTokens];
    for (int t = 0; t < kTokens; ++t) tokens[t] = (5 * at_ + t + ahead_) % kWords;
    ++at_;
    return HTensor(harmonics::DType::I32, Shape{kTokens}, tokens);
  }
  std::size_t size() const override { return 32; }
  bool rewind() override { return at_ = 0, true; }

 private:
  int ahead_, at_ = 0;
};

harmonics::TrainingArguments circle_arguments(int64_t steps) {
  harmonics::TrainingArguments arguments;
  arguments.tokens = std::make_shared<Circle>(0);
  arguments.next = std::make_shared<Circle>(1);
  arguments.fit.steps = steps;
  arguments.fit.epochs = 1000;
  arguments.fit.batch = 16;
  arguments.fit.lr = 0.01;
  arguments.fit.seed = 3;
  arguments.fit.threads = 1;
  return arguments;
}

// Registers a tiny model whose file exists as long as this object.
struct TinyModel {
  harmonics::engine::testing::EmptyFolder folder;
  TinyModel() {
    const std::string file = folder.path() + "/tiny.ndsl";
    std::ofstream(file) << "name: Tiny\nextends: Llama3\nconfig: {num_layers: 2, hidden_size: 32, num_query_heads: 4, "
                           "num_kv_heads: 2, intermediate_size: 48, vocab_size: 12, max_position_embeddings: 16}\n";
    RuntimeModelRegistry::register_model("TinyTrained", file);
  }
};

}  // namespace

TEST_CASE("trainer: a registered model learns which token follows") {
  const TinyModel tiny;
  harmonics::ModelConfig config = RuntimeModelRegistry::create_model_config("TinyTrained");
  CHECK(config.model == "TinyTrained");
  CHECK(config.at("num_layers") == 2);
  config["num_layers"] = 1;
  const harmonics::BlockSpec block = harmonics::RuntimeBlockBuilder::build_from_dsl(config, 1);
  CHECK(block.forward_ops.front() == "LN1");
  const harmonics::RegisteredModel model = RuntimeModelRegistry::get("TinyTrained");
  CHECK(model.to_model_config().at("num_layers") == 2);
  CHECK(model.to_block_spec(1).forward_ops == block.forward_ops);

  harmonics::Trainer trainer(config, circle_arguments(80));
  const harmonics::FitReport report = trainer.train();
  CHECK(report.steps == 80);
  CHECK(report.loss < 0.5);  // untrained: ln 12
  const auto weights = trainer.graph().weights();
  const auto of_layer = [&](const char* layer) {
    return std::count_if(weights.begin(), weights.end(),
                         [&](const std::string& name) { return name.find(layer) != std::string::npos; });
  };
  CHECK(of_layer("blk.0.") > 0);
  CHECK(of_layer("blk.1.") == 0);  // changed in the configuration
  const int32_t tokens[kTokens] = {4, 5, 6, 7, 8, 9, 10, 11};
  const HTensor scores = trainer.scores(HTensor(harmonics::DType::I32, Shape{kTokens}, tokens));
  REQUIRE(scores.shape().back() == kWords);
  const float* last = scores.data<float>() + (scores.size() - kWords);
  CHECK(std::max_element(last, last + kWords) - last == 0);  // 0 follows 11
}

TEST_CASE("trainer: wrong arguments are refused with the reason") {
  const harmonics::ModelConfig config = RuntimeModelRegistry::create_model_config("SmolLM");
  CHECK(harmonics::message_of([&] { harmonics::Trainer(config, {}); }) == "the training arguments have no 'tokens'");
  CHECK(harmonics::message_of([&] { harmonics::Trainer(config, circle_arguments(1), false); }) ==
        "models of .ndsl files are computed by their blocks: use_modular_blocks is true");
  harmonics::ModelConfig unknown;
  unknown.model = "SmolML";
  CHECK(harmonics::message_of([&] { harmonics::Trainer(unknown, circle_arguments(1)); }).find("did you mean") !=
        std::string::npos);
}
