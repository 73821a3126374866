// Vectors of texts over HTTP: of language models, and of models that write no texts.
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

// Beside a language model's texts.
struct ServedVectors {
  // Model, executor and tokenizer must outlive it.
  ServedVectors(const Model& model, Executor& executor, const Tokenizer& tokenizer, const Options& options);

  std::optional<Embedder> embedder;  // both none: the model gives no vectors
  std::optional<EmbeddingWorker> worker;
};

// Whether the model of the first positional file continues no texts.
bool gives_only_vectors(const Options& options);
// Serves such a model until `wait` returns, and returns the number of the signal that ended it.
int serve_vectors(const Options& options, const std::vector<ListenAddress>& addresses, const ServiceSettings& settings,
                  const std::function<int()>& wait);

}  // namespace harmonics::engine::cli
