// Transformers with weights: computed as a whole, by layer, or token by token with cached keys and values.
//
//   harmonics::TransformerModel model(harmonics::RuntimeModelRegistry::create_model_config("SmolLM"), "SmolLM-135M/");
//   harmonics::HTensor scores = model.forward(tokens);                    // [tokens, vocabulary]
//   harmonics::AttentionCache cache(model);
//   harmonics::HTensor next = model.forward_with_cache(token, cache);     // token by token, the same scores
//   harmonics::HTensor after = harmonics::BlockExecutor::forward(model.block(3), "bf16", model.layer(3), before);
//
// Link Harmonics::harmonics. Every failure is a harmonics::Error. Any thread may call a model; a cache must be used by
// one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <harmonics/graph.hpp>
#include <harmonics/models.hpp>

namespace harmonics {

class AttentionCache;
class BlockExecutor;
class TransformerModel;

namespace detail {

HARMONICS_FACE inline const hx_graph_api& transformers() {
  const hx_graph_api& api = detail::calls::graphs();
  detail::calls::expect(api.struct_size >= offsetof(hx_graph_api, sequence_length) + sizeof(void*),
                        "models with weights");
  return api;
}
struct CloseModel {
  HARMONICS_FACE void operator()(hx_model* model) const { detail::calls::graphs().close_model(model); }
};
struct CloseSequence {
  HARMONICS_FACE void operator()(hx_sequence* sequence) const { detail::calls::graphs().close_sequence(sequence); }
};

}  // namespace detail

// The weights of one layer of a model.
class TransformerLayer {
 private:
  friend class BlockExecutor;
  friend class TransformerModel;
  TransformerLayer(std::shared_ptr<hx_model> model, int64_t number) : model_(std::move(model)), number_(number) {}
  std::shared_ptr<hx_model> model_;
  int64_t number_;
};

struct TransformerOptions {
  int threads = 0;                // 0: all
  std::string device, precision;  // precision: of products, as FitOptions::precision; "": f32
  uint64_t seed = 0;              // for initial values
};

class TransformerModel {
 public:
  // `weights`: a Hugging Face folder or a safetensors file; "": initial values. Settings of `config` override those of
  // the registered model.
  HARMONICS_FACE explicit TransformerModel(const ModelConfig& config, const std::string& weights = "",
                                           const TransformerOptions& options = {})
      : model_(open(config.model, weights, changed_settings(config), options)) {}
  // `path`: a model file or folder with weights: GGUF, a Hugging Face folder.
  HARMONICS_FACE explicit TransformerModel(const std::string& path, const TransformerOptions& options = {})
      : model_(open(path, "", "", options)) {}

  // Returns the scores of the next token at each position of `tokens`, i32 [tokens] or [batch, tokens], with a last
  // axis [vocabulary]. Throws ErrorKind::Stream for a token outside the vocabulary.
  HARMONICS_FACE HTensor forward(const HTensor& tokens) const { return values(tokens, false).at("scores"); }
  // Likewise for tokens [tokens] that continue the sequence of `cache`; reads and extends its keys and values.
  HARMONICS_FACE HTensor forward_with_cache(const HTensor& tokens, AttentionCache& cache) const;
  // Returns all intermediate results, by the names of `explain`: "embedding", "blk.0.QKV.q", "blk.0", "scores".
  HARMONICS_FACE std::map<std::string, HTensor> forward_trace(const HTensor& tokens) const {
    return values(tokens, true);
  }

  // Return the operations and the weights of a layer. Throw ErrorKind::Usage if there is no such layer, or if no .ndsl
  // file describes the model.
  HARMONICS_FACE BlockSpec block(int64_t layer) const {
    hx_block_spec spec{};
    spec.struct_size = sizeof spec;
    detail::check(detail::transformers().model_block(model_.get(), layer, &spec));
    return detail::block_of(spec);
  }
  HARMONICS_FACE TransformerLayer layer(int64_t number) const {
    block(number);
    return {model_, number};
  }

 private:
  friend class AttentionCache;
  HARMONICS_FACE static std::shared_ptr<hx_model> open(const std::string& name, const std::string& weights,
                                                       const std::string& set, const TransformerOptions& options) {
    hx_model_options given{};
    given.struct_size = sizeof given;
    given.threads = options.threads;
    given.weights = detail::calls::or_null(weights);
    given.set = detail::calls::or_null(set);
    given.device = detail::calls::or_null(options.device);
    given.precision = detail::calls::or_null(options.precision);
    given.seed = options.seed;
    hx_model* model = nullptr;
    detail::check(detail::transformers().open_model(name.c_str(), &given, &model));
    return {model, detail::CloseModel{}};
  }
  HARMONICS_FACE std::map<std::string, HTensor> values(const HTensor& tokens, bool all) const {
    const char* const* names = nullptr;
    hx_value* const* values = nullptr;
    uint32_t count = 0;
    detail::check(detail::transformers().model_values(model_.get(), tokens.raw(), all, &names, &values, &count));
    std::map<std::string, HTensor> result;
    for (uint32_t i = 0; i < count; ++i) result.emplace(names[i], HTensor::borrow(values[i]));
    return result;
  }

  std::shared_ptr<hx_model> model_;
};

// The keys and values of one sequence in every layer of a model.
class AttentionCache {
 public:
  // Throws ErrorKind::Usage for a model without caches, such as an encoder.
  HARMONICS_FACE explicit AttentionCache(const TransformerModel& model) : model_(model.model_) {
    hx_sequence* sequence = nullptr;
    detail::check(detail::transformers().open_sequence(model_.get(), &sequence));
    sequence_.reset(sequence);
  }
  // Number of tokens of the sequence.
  HARMONICS_FACE int64_t length() const {
    int64_t length = 0;
    detail::check(detail::transformers().sequence_length(sequence_.get(), &length));
    return length;
  }
  // Truncates the sequence to its first `length` tokens, which remain cached; 0: a new sequence.
  HARMONICS_FACE void keep(int64_t length) { detail::check(detail::transformers().keep(sequence_.get(), length)); }

 private:
  friend class TransformerModel;
  std::shared_ptr<hx_model> model_;
  std::unique_ptr<hx_sequence, detail::CloseSequence> sequence_;
};

HARMONICS_FACE inline HTensor TransformerModel::forward_with_cache(const HTensor& tokens, AttentionCache& cache) const {
  if (cache.model_ != model_) throw Error(ErrorKind::Usage, "the cache belongs to another model");
  hx_value* scores = nullptr;
  detail::check(detail::transformers().append(cache.sequence_.get(), tokens.raw(), &scores));
  return HTensor::adopt(scores);
}

// Computes a single block.
class BlockExecutor {
 public:
  // Returns the output of a layer for its input, f32 [tokens, hidden] or [batch, tokens, hidden], equal to the result
  // in the model. `spec` must be that of the layer. `recipe`: precision of products, as FitOptions::precision; "": that
  // of the model.
  HARMONICS_FACE static HTensor forward(const BlockSpec& spec, const std::string& recipe, const TransformerLayer& layer,
                                        const HTensor& hidden) {
    const hx_graph_api& api = detail::transformers();
    hx_block_spec known{};
    known.struct_size = sizeof known;
    detail::check(api.model_block(layer.model_.get(), layer.number_, &known));
    const std::vector<std::string> ops(known.ops, known.ops + known.n_ops);
    if (spec.variant != known.variant || spec.forward_ops != ops)
      throw Error(ErrorKind::Usage, "layer " + std::to_string(layer.number_) +
                                        " computes another block: " + known.variant + " " + listed(ops) + ", not " +
                                        spec.variant + " " + listed(spec.forward_ops));
    hx_value* out = nullptr;
    detail::check(
        api.model_layer(layer.model_.get(), layer.number_, detail::calls::or_null(recipe), hidden.raw(), &out));
    return HTensor::adopt(out);
  }

 private:
  HARMONICS_FACE static std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }
};

}  // namespace harmonics
