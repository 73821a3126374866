#include "engine/cli/run/embedding_model.hpp"

#include <thread>

namespace harmonics::engine::cli {

EmbeddingModel::EmbeddingModel(const Options& options)
    : path(options.files.front()),
      imported(imported_for_texts(options)),
      tokenizer(tokenizer_of(imported, options)),
      model(weights_of(imported, *tokenizer, options)),
      executor(make_team_executor(options.run.threads > 0 ? options.run.threads
                                                          : static_cast<int>(std::thread::hardware_concurrency()))),
      embedder(model, *executor, text_compile_options(options), given_pooling(options)) {}

std::optional<Pooling> given_pooling(const Options& options) {
  if (options.pooling.empty()) return std::nullopt;
  return pooling_named(options.pooling);
}

}  // namespace harmonics::engine::cli
