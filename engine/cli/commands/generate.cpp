// harmonics generate: continues a text with a language model.
#include <thread>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/language/continuation.hpp"

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

std::string_view text_of(const MappedFile& file) { return {static_cast<const char*>(file.data()), file.bytes()}; }

double per_second(int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

}  // namespace

int generate_command(const Options& options) {
  Registry& registry = Registry::global();
  const std::string& path = options.files.front();
  const ImportedModel imported = import_model(path, registry);
  const std::string& vocabulary = options.tokenizer.empty() ? path : options.tokenizer;
  if (options.tokenizer.empty() && !is_tokenizer(path, text_of(*imported.file), registry))
    throw Error(ErrorKind::Usage, fmt::format("'generate' lacks --tokenizer FILE: '{}' has no tokenizer in it", path));
  const auto tokenizer = Tokenizer::open(vocabulary, registry, {}, imported.metadata);
  const Model model = model_of(imported, model_options(options));
  model.parameters->keep_packed(packed_files_of(options));
  if (tokenizer->size() != model.vocabulary)
    throw Error(ErrorKind::Usage,
                fmt::format("the tokenizer '{}' has {} tokens, and '{}' has scores of {}", vocabulary,
                            tokenizer->size(), path, model.vocabulary),
                {}, {"give the tokenizer that the model was trained with"});
  const auto executor = make_team_executor(
      options.run.threads > 0 ? options.run.threads : static_cast<int>(std::thread::hardware_concurrency()));
  CompileOptions compile;
  static_cast<DeviceSettings&>(compile) = options.run;
  compile.limits = options.limits;
  Decoder decoder(model, *executor, compile);
  Session session(decoder, options.context, options.context > 0);
  ContinuationSettings settings;
  settings.tokens = options.max_tokens;
  settings.temperature = options.temperature;
  settings.filters = options.filters;
  settings.stop = options.stop;
  settings.seed = static_cast<uint64_t>(options.run.seed.value_or(0));
  std::string text;
  const Continuation done = continue_text(session, *tokenizer, options.prompt, settings, [&](const std::string& more) {
    if (text.empty() && !options.json) print_data(options.prompt);  // only now is it known to fit
    text += more;
    if (options.json) return;
    print_data(more);
    flush_output();
  });
  if (options.json) {
    print_json(boost::json::object{{"version", 1},
                                   {"model", path},
                                   {"prompt", options.prompt},
                                   {"text", text},
                                   {"prompt_tokens", done.prompt_tokens},
                                   {"tokens", done.tokens},
                                   {"stopped_by", name_of(done.end)},
                                   {"prompt_seconds", done.prompt_seconds},
                                   {"seconds", done.seconds},
                                   {"tokens_per_second", per_second(done.tokens, done.seconds)}});
    return kDone;
  }
  if (text.empty()) print_data(options.prompt);
  print("\n");
  if (options.quiet) return kDone;
  say(fmt::format("{} tokens in {}, {:.0f} tokens/s; prompt of {} in {}", thousands(done.tokens),
                  duration(done.seconds), per_second(done.tokens, done.seconds), thousands(done.prompt_tokens),
                  duration(done.prompt_seconds)));
  if (done.end == EndOfText::context)
    print_note(fmt::format("the context of {} tokens is full: give a larger --context", thousands(session.context())));
  return kDone;
}

}  // namespace harmonics::engine::cli
