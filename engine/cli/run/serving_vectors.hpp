// Serves embeddings of texts over HTTP, of language models and of models that generate no texts.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/cli/options/options.hpp"
#include "engine/serving/embedding_api.hpp"
#include "engine/serving/service.hpp"

namespace harmonics::engine {
struct ListenAddress;
}

namespace harmonics::engine::cli {

// Embeddings served in addition to a language model's texts.
struct ServedVectors {
  // Model, executor and tokenizer must outlive the object.
  ServedVectors(const Model& model, Executor& executor, const Tokenizer& tokenizer, const Options& options);

  std::optional<Embedder> embedder;  // both none: the model computes no embeddings
  std::optional<EmbeddingWorker> worker;
};

// Returns whether the model of the first positional file computes embeddings and generates no texts.
bool gives_only_vectors(const Options& options);
// Serves such a model until `wait` returns. Returns the number of the signal that ended it.
int serve_vectors(const Options& options, const std::vector<ListenAddress>& addresses, const ServiceSettings& settings,
                  const std::function<int()>& wait);

}  // namespace harmonics::engine::cli
