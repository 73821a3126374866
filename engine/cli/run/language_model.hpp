// A language model opened for the flags of a command.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/cli/options/options.hpp"
#include "engine/language/chat_template.hpp"
#include "engine/language/continuation.hpp"
#include "engine/language/session_file.hpp"
#include "engine/model/imported.hpp"

namespace harmonics::engine::cli {

struct LanguageModel {
  // Opens the first positional file. Throws what opening model and tokenizer throw.
  explicit LanguageModel(const Options& options);
  // --chat-template FILE, or the model's own.
  ChatTemplate chat_template(const Options& options) const;
  // The ids that end a text, beside the tokenizer's own: those of the model's generation_config.json.
  std::vector<int32_t> ends() const;

  const std::string path;
  const ImportedModel imported;
  const std::shared_ptr<const Tokenizer> tokenizer;
  const Model model;
  const std::unique_ptr<Executor> executor;
  Decoder decoder;
};

// --draft MODEL or --lookup N. Throws ErrorKind::Usage for both, and for a model of another vocabulary.
struct Speculation {
  Speculation(const Options& options, const LanguageModel& model);

  std::unique_ptr<LanguageModel> model;  // null: none
  std::shared_ptr<Drafter> drafter;      // null: none
  int64_t tokens = 8;
};

// What the file of --session holds; nothing if there is no --session or no such file.
std::optional<SavedSession> saved_session_of(const Options& options);

// The choice of tokens that the flags ask for.
ContinuationSettings continuation_settings(const Options& options, const Tokenizer& tokenizer);

double per_second(int64_t tokens, double seconds);

}  // namespace harmonics::engine::cli
