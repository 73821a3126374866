// Opens a language model by the flags of a command.
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
  // Opens the first positional file. Throws the errors of opening the model and the tokenizer.
  explicit LanguageModel(const Options& options);
  // Returns the chat template of --chat-template, or that of the model.
  ChatTemplate chat_template(const Options& options) const;
  // Returns the ids of generation_config.json that end a text, in addition to those of the tokenizer.
  std::vector<int32_t> ends() const;

  const std::string path;
  const ImportedModel imported;
  std::shared_ptr<const Tokenizer> tokenizer;  // opened with the model
  const Model model;
  const std::unique_ptr<Executor> executor;
  Decoder decoder;
};

// Speculative decoding by --draft MODEL or --lookup N. Throws ErrorKind::Usage for both flags, and for a draft model
// with another vocabulary.
struct Speculation {
  Speculation(const Options& options, const LanguageModel& model);

  std::unique_ptr<LanguageModel> model;  // null: none
  std::shared_ptr<Drafter> drafter;      // null: none
  int64_t tokens = 8;
};

// Prints a note if --context exceeds the number of tokens that the model was trained for.
void note_long_context(const Options& options, const LanguageModel& model);

// Reads the file of --session; none without the flag or the file.
std::optional<SavedSession> saved_session_of(const Options& options);

// Returns the settings of generation by the flags.
ContinuationSettings continuation_settings(const Options& options, const Tokenizer& tokenizer);

double per_second(int64_t tokens, double seconds);

}  // namespace harmonics::engine::cli
