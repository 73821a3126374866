// Opens a model that computes embeddings of texts, by the flags of a command.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/cli/run/model_options.hpp"
#include "engine/language/embedder.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/model/imported.hpp"

namespace harmonics::engine::cli {

// Open the parts of any model of texts (language_model.cpp). imported_for_texts() imports the first positional file; a
// .ndsl file needs --weights.
ImportedModel imported_for_texts(const Options& options);
std::shared_ptr<const Tokenizer> tokenizer_of(const ImportedModel& imported, const Options& options);
Model weights_of(const ImportedModel& imported, const Tokenizer& tokenizer, const Options& options);

// Returns the pooling of --pooling; none without the flag.
std::optional<Pooling> given_pooling(const Options& options);

struct EmbeddingModel {
  // Opens the first positional file. Throws the errors of opening the model and the tokenizer.
  explicit EmbeddingModel(const Options& options);

  const std::string path;
  const ImportedModel imported;
  const std::shared_ptr<const Tokenizer> tokenizer;
  const Model model;
  const std::unique_ptr<Executor> executor;
  Embedder embedder;
};

}  // namespace harmonics::engine::cli
