// A model that gives vectors of texts, opened for the flags of a command.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/cli/run/model_options.hpp"
#include "engine/language/embedder.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/model/imported.hpp"

namespace harmonics::engine::cli {

// What all models of texts have: language_model.cpp. The first positional file; of a .ndsl file with --weights.
ImportedModel imported_for_texts(const Options& options);
std::shared_ptr<const Tokenizer> tokenizer_of(const ImportedModel& imported, const Options& options);
Model weights_of(const ImportedModel& imported, const Tokenizer& tokenizer, const Options& options);

// --pooling, or none.
std::optional<Pooling> given_pooling(const Options& options);

struct EmbeddingModel {
  // Opens the first positional file. Throws what opening model and tokenizer throw.
  explicit EmbeddingModel(const Options& options);

  const std::string path;
  const ImportedModel imported;
  const std::shared_ptr<const Tokenizer> tokenizer;
  const Model model;
  const std::unique_ptr<Executor> executor;
  Embedder embedder;
};

}  // namespace harmonics::engine::cli
