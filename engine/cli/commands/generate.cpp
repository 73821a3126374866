// harmonics generate: continues a text with a language model.
#include <algorithm>
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/language_model.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/run/outputs.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/language/perplexity.hpp"

namespace harmonics::engine::cli {

namespace {

const char* name_of(EndOfText end) {
  switch (end) {
    case EndOfText::stop:
      return "stop";
    case EndOfText::model:
      return "end";
    case EndOfText::context:
      return "context";
    default:
      return "tokens";
  }
}

// Throws for settings of texts to generate.
void expect_perplexity_alone(const Options& options) {
  constexpr const char* kFlag = "--perplexity FILE";
  if (options.files.size() > 1)
    throw Error(ErrorKind::Usage, fmt::format("the text '{}' has no effect beside {}", options.files[1], kFlag), {},
                {"leave one of them out"});
  refuse_beside(options,
                {"prompt",
                 "max-tokens",
                 "temperature",
                 "top-k",
                 "top-p",
                 "min-p",
                 "typical",
                 "repeat-penalty",
                 "presence-penalty",
                 "frequency-penalty",
                 "recent",
                 "dry",
                 "dry-base",
                 "dry-length",
                 "mirostat",
                 "mirostat-surprise",
                 "mirostat-rate",
                 "stop",
                 "grammar",
                 "json-schema",
                 "seed",
                 "log-probabilities",
                 "overflow",
                 "keep",
                 "session",
                 "draft",
                 "lookup",
                 "draft-tokens"},
                kFlag);
}

int print_perplexity(const Options& options, LanguageModel& model, Session& session) {
  const std::vector<int32_t> ids = model.tokenizer->encode(read_plain_file(options.perplexity));
  const Perplexity found = perplexity_of(session, ids);
  if (found.tokens == 0)
    throw Error(ErrorKind::Usage, fmt::format("'{}' has fewer than two tokens", options.perplexity), {},
                {"give a longer text"});
  if (options.json)
    print_json(boost::json::object{
        {"version", 1}, {"model", model.path}, {"tokens", found.tokens}, {"perplexity", found.value}});
  else
    print("perplexity {:.4f} on {} tokens\n", found.value, thousands(found.tokens));
  return kDone;
}

// Continues the text of --session and saves the session again.
Continuation continue_session(const Options& options, LanguageModel& model, Session& session,
                              ContinuationSettings settings, const std::function<void(const std::string&)>& emit) {
  std::vector<int32_t> ids;
  if (const std::optional<SavedSession> saved = saved_session_of(options)) {
    restore_session(session, model.model, *saved, options.session);
    ids = saved->tokens;
    settings.from = saved->sampler;
  }
  EncodeOptions how;
  how.begin = ids.empty();
  const std::vector<int32_t> prompt = model.tokenizer->encode(options.prompt, how);
  ids.insert(ids.end(), prompt.begin(), prompt.end());
  return continue_tokens(session, *model.tokenizer, std::move(ids), settings, emit, [&](const Generation& text) {
    const std::span<const int32_t> all = text.tokens();
    write_session(saved_session(session, model.model, {all.begin(), all.end()}, text.sampler_state()), options.session);
  });
}

boost::json::array json_of(const std::vector<ScoredToken>& tokens, const Tokenizer& tokenizer) {
  boost::json::array all;
  for (const ScoredToken& token : tokens) {
    boost::json::array best;
    for (const TokenProbability& other : token.best)
      best.push_back(boost::json::object{
          {"id", other.id}, {"text", tokenizer.written(other.id)}, {"log_probability", other.log_probability}});
    all.push_back(boost::json::object{{"id", token.id},
                                      {"text", tokenizer.written(token.id)},
                                      {"log_probability", token.log_probability},
                                      {"best", std::move(best)}});
  }
  return all;
}

// Throws if the first argument is a text instead of a model.
void expect_model_first(const Options& options) {
  const std::string& path = options.files.front();
  std::error_code failed;
  if (options.files.size() > 1 || path.find(' ') == std::string::npos || std::filesystem::exists(path, failed)) return;
  throw Error(ErrorKind::NoInput, fmt::format("the model comes first, but there is no file '{}'", path), {},
              {"write harmonics generate MODEL " + quoted(path)});
}

}  // namespace

int generate_command(const Options& given) {
  Options options = given;
  if (options.files.size() > 1) {
    if (options.prompt_given)
      throw Error(ErrorKind::Usage, "the text is given twice: as a word and with --prompt", {},
                  {"leave one of them out"});
    options.prompt = options.files[1];
  }
  if (options.log_probabilities && !options.json)
    throw Error(ErrorKind::Usage, "--log-probabilities has no effect without --json", {}, {"add --json"});
  if (std::ranges::any_of(options.stop, [](const std::string& text) { return text.empty(); }))
    throw Error(ErrorKind::Usage, "--stop: a text to stop before cannot be empty", {}, {"leave it out"});
  expect_model_first(options);
  if (!options.perplexity.empty()) expect_perplexity_alone(options);
  expect_writable_outputs(options);
  LanguageModel model(options);
  const std::string& path = model.path;
  const std::shared_ptr<const Tokenizer>& tokenizer = model.tokenizer;
  note_long_context(options, model);
  Session session(model.decoder, options.context, options.context > 0);
  if (!options.perplexity.empty()) return print_perplexity(options, model, session);
  const Speculation speculation(options, model);
  ContinuationSettings settings = continuation_settings(options, *tokenizer);
  settings.ends = answer_ends(*tokenizer);
  for (const int32_t id : model.ends()) settings.ends.push_back(id);
  settings.drafter = speculation.drafter;
  settings.draft_tokens = speculation.tokens;
  std::string text;
  const auto emit = [&](const std::string& more) {
    if (text.empty() && !options.json) print_data(options.prompt);  // only printed once the model has accepted it
    text += more;
    if (options.json) return;
    print_data(more);
    flush_output();
  };
  const Continuation done = options.session.empty()
                                ? continue_text(session, *tokenizer, options.prompt, settings, emit)
                                : continue_session(options, model, session, std::move(settings), emit);
  if (options.json) {
    boost::json::object result{{"version", 1},
                               {"model", path},
                               {"prompt", options.prompt},
                               {"text", text},
                               {"prompt_tokens", done.prompt_tokens},
                               {"tokens", done.tokens},
                               {"stopped_by", name_of(done.end)},
                               {"prompt_seconds", done.prompt_seconds},
                               {"seconds", done.seconds},
                               {"tokens_per_second", per_second(done.tokens, done.seconds)}};
    if (speculation.drafter) {
      result["drafted"] = done.drafted;
      result["accepted"] = done.accepted;
    }
    if (options.log_probabilities) result["chosen"] = json_of(done.chosen, *tokenizer);
    print_json(result);
    return kDone;
  }
  if (text.empty()) print_data(options.prompt);
  print("\n");
  if (options.quiet) return kDone;
  const std::string drafts = speculation.drafter ? fmt::format("; {} of {} drafted tokens accepted",
                                                               thousands(done.accepted), thousands(done.drafted))
                                                 : "";
  say(fmt::format("{} in {}, {:.0f} tokens/s; prompt of {} in {}{}",
                  number_of(static_cast<uint64_t>(done.tokens), "token"), duration(done.seconds),
                  per_second(done.tokens, done.seconds), thousands(done.prompt_tokens), duration(done.prompt_seconds),
                  drafts));
  if (done.end == EndOfText::context)
    print_note(fmt::format("the context of {} tokens is full: give a larger --context", thousands(session.context())));
  return kDone;
}

}  // namespace harmonics::engine::cli
