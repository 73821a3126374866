// Transformers with weights through the C++ API: whole, by layer, and with caches.
#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <harmonics/transformer.hpp>

#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using harmonics::AttentionCache;
using harmonics::BlockExecutor;
using harmonics::DType;
using harmonics::HTensor;
using harmonics::message_of;
using harmonics::RuntimeModelRegistry;
using harmonics::Shape;
using harmonics::TransformerModel;
using harmonics::TransformerOptions;

namespace {

constexpr int64_t kLength = 9, kVocabulary = 24;

// Registers a small model with each kind of block under the name of its original.
struct SmallModels {
  harmonics::engine::testing::EmptyFolder folder;
  std::vector<std::string> names;

  SmallModels() {
    const std::string sizes =
        "num_layers: 3, hidden_size: 32, num_query_heads: 4, vocab_size: 24, max_position_embeddings: 32, ";
    add("SmallLlama", "Llama3", sizes + "num_kv_heads: 2, intermediate_size: 48");
    add("SmallQwen", "Qwen3", sizes + "num_kv_heads: 2, intermediate_size: 48, head_dim: 8");
    add("SmallNeoX", "GPT_NeoX", sizes + "num_kv_heads: 4, intermediate_size: 48");
    add("SmallGPT2", "GPT2", sizes + "num_kv_heads: 4, intermediate_size: 48");
    add("SmallMoE", "Qwen3MoE",
        sizes +
            "num_kv_heads: 2, head_dim: 8, intermediate_size: 48, moe_intermediate_size: 16, num_experts: 4, "
            "num_experts_per_tok: 2");
  }
  void add(const std::string& name, const std::string& base, const std::string& config) {
    const std::string file = folder.path() + "/" + name + ".ndsl";
    std::ofstream(file) << "name: " << name << "\nextends: " << base << "\nconfig: {" << config << "}\n";
    RuntimeModelRegistry::register_model(name, file);
    names.push_back(name);
  }
};

TransformerModel opened(const std::string& name) {
  TransformerOptions options;
  options.threads = 1;
  options.seed = 5;
  return TransformerModel(RuntimeModelRegistry::create_model_config(name), "", options);
}

HTensor some_tokens(int64_t from, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = from; i < from + count; ++i) tokens.push_back(static_cast<int32_t>((7 * i + i * i) % kVocabulary));
  return HTensor(DType::I32, Shape{count}, tokens.data());
}

// Returns the largest difference, relative to the largest element.
double difference_of(const float* a, const float* b, int64_t count) {
  double most = 0, apart = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, static_cast<double>(std::abs(b[i])));
    apart = std::max(apart, static_cast<double>(std::abs(a[i] - b[i])));
  }
  return most > 0 ? apart / most : INFINITY;
}
double difference_of(const HTensor& a, const HTensor& b) {
  REQUIRE(a.shape() == b.shape());
  return difference_of(a.data<float>(), b.data<float>(), a.size());
}

}  // namespace

TEST_CASE("transformer: each block alone computes what the model computes at its layer") {
  const SmallModels small;
  for (const std::string& name : small.names) {
    INFO(name);
    const TransformerModel model = opened(name);
    const auto trace = model.forward_trace(some_tokens(0, kLength));
    CHECK(trace.at("scores").shape() == Shape{kLength, kVocabulary});
    HTensor hidden = trace.at("embedding");
    CHECK(hidden.shape() == Shape{kLength, 32});
    for (int64_t layer = 0; layer < 3; ++layer) {
      const harmonics::BlockSpec spec = model.block(layer);
      CHECK(spec.forward_ops == RuntimeModelRegistry::create_block_spec(name, layer).forward_ops);
      const HTensor after = BlockExecutor::forward(spec, "", model.layer(layer), hidden);
      CHECK(difference_of(after, trace.at("blk." + std::to_string(layer))) < 1e-5);
      CHECK(difference_of(after, hidden) > 1e-4);  // the layer changes its input
      hidden = after;
    }
  }
}

TEST_CASE("transformer: a block takes a batch, and another recipe changes its bits only") {
  const SmallModels small;
  const TransformerModel model = opened("SmallLlama");
  const HTensor one = model.forward_trace(some_tokens(0, kLength)).at("embedding"),
                two = model.forward_trace(some_tokens(3, kLength)).at("embedding");
  std::vector<float> both(one.data<float>(), one.data<float>() + one.size());
  both.insert(both.end(), two.data<float>(), two.data<float>() + two.size());
  const HTensor batch(DType::F32, Shape{2, kLength, 32}, both.data());
  const harmonics::BlockSpec spec = model.block(1);
  const HTensor after = BlockExecutor::forward(spec, "", model.layer(1), batch);
  REQUIRE(after.shape() == batch.shape());
  const HTensor alone = BlockExecutor::forward(spec, "", model.layer(1), two);
  CHECK(difference_of(after.data<float>() + one.size(), alone.data<float>(), two.size()) < 1e-5);
  const HTensor rounded = BlockExecutor::forward(spec, "bf16", model.layer(1), two);
  CHECK(difference_of(rounded, alone) < 0.02);
}

TEST_CASE("transformer: token by token with a cache the scores are those of the whole sequence") {
  const SmallModels small;
  for (const std::string& name : small.names) {
    INFO(name);
    const TransformerModel model = opened(name);
    const HTensor whole = model.forward(some_tokens(0, kLength));
    AttentionCache cache(model);
    for (int64_t i = 0; i < kLength; ++i) {
      const HTensor next = model.forward_with_cache(some_tokens(i, 1), cache);
      REQUIRE(next.shape() == Shape{1, kVocabulary});
      CHECK(difference_of(next.data<float>(), whole.data<float>() + i * kVocabulary, kVocabulary) < 1e-4);
    }
    CHECK(cache.length() == kLength);
    cache.keep(4);
    const HTensor rest = model.forward_with_cache(some_tokens(4, kLength - 4), cache);
    REQUIRE(rest.shape() == Shape{kLength - 4, kVocabulary});
    CHECK(difference_of(rest.data<float>(), whole.data<float>() + 4 * kVocabulary, rest.size()) < 1e-4);
  }
}

TEST_CASE("transformer: sequences of one model are independent and outlive its handle") {
  const SmallModels small;
  std::unique_ptr<AttentionCache> cache, other;
  HTensor expected;
  {
    const TransformerModel model = opened("SmallQwen");
    expected = model.forward(some_tokens(0, 6));
    cache = std::make_unique<AttentionCache>(model);
    other = std::make_unique<AttentionCache>(model);
    model.forward_with_cache(some_tokens(11, 5), *other);
    model.forward_with_cache(some_tokens(0, 3), *cache);
    model.forward_with_cache(some_tokens(2, 2), *other);
    const HTensor rest = model.forward_with_cache(some_tokens(3, 3), *cache);
    CHECK(difference_of(rest.data<float>(), expected.data<float>() + 3 * kVocabulary, rest.size()) < 1e-4);
  }
  CHECK(cache->length() == 6);
  CHECK(other->length() == 7);
}

TEST_CASE("transformer: settings of a configuration apply to its model") {
  const SmallModels small;
  harmonics::ModelConfig config = RuntimeModelRegistry::create_model_config("SmallLlama");
  config["num_layers"] = 1;
  const TransformerModel model(config);
  const auto trace = model.forward_trace(some_tokens(0, 3));
  CHECK(trace.count("blk.0") == 1);
  CHECK(trace.count("blk.1") == 0);
  CHECK(message_of([&] { model.layer(1); }) == "'SmallLlama' has no layer 1; it has 1, from 0");
}

TEST_CASE("transformer: wrong use is refused with the reason") {
  const SmallModels small;
  const TransformerModel model = opened("SmallLlama"), other = opened("SmallGPT2");
  const harmonics::BlockSpec spec = model.block(0);
  const HTensor hidden = model.forward_trace(some_tokens(0, 2)).at("embedding");
  CHECK(message_of([&] {
          BlockExecutor::forward(other.block(0), "", model.layer(0), hidden);
        }).find("layer 0 computes another block: dense LN1, QKV, RoPE, Attention, ") == 0);
  CHECK(message_of([&] { BlockExecutor::forward(spec, "fp31", model.layer(0), hidden); }).find("fp31") !=
        std::string::npos);
  const std::vector<float> narrow(10);
  CHECK(message_of([&] {
          BlockExecutor::forward(spec, "", model.layer(0), HTensor(DType::F32, Shape{2, 5}, narrow.data()));
        }) == "layer 0 of 'SmallLlama' takes f32[1, 2, 32]; here is f32[2, 5]");
  CHECK(message_of([&] { model.forward(hidden); }).find("tokens are i32") == 0);
  const int32_t beyond[] = {1, 24};
  CHECK(message_of([&] { model.forward(HTensor(DType::I32, Shape{2}, beyond)); }).find("24") != std::string::npos);
  AttentionCache cache(model);
  CHECK(message_of([&] { other.forward_with_cache(some_tokens(0, 1), cache); }) ==
        "the cache belongs to another model");
  CHECK(message_of([&] { model.forward_with_cache(HTensor(DType::I32, Shape{2}, beyond), cache); }) != "no error");
  CHECK(cache.length() == 0);
  CHECK(message_of([&] { cache.keep(1); }) == "a sequence of 0 tokens has no first 1");
  CHECK(message_of([&] { model.forward_with_cache(some_tokens(0, 33), cache); }) != "no error");  // 32 fit
  CHECK(message_of([] { TransformerModel("nowhere.gguf"); }).find("nowhere.gguf") != std::string::npos);
}
