#include "engine/cli/run/language_model.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "dsl/spec/reader.hpp"
#include "engine/base/alternate_stack.hpp"
#include "engine/base/file.hpp"
#include "engine/cli/run/embedding_model.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/language/json_grammar.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine::cli {

namespace {

std::string_view bytes_of(const MappedFile& file) { return {static_cast<const char*>(file.data()), file.bytes()}; }

// Throws for a model that only computes embeddings, before its tokenizer is searched.
ImportedModel expect_texts(ImportedModel imported, const Options& options) {
  if (options.spec.empty() && !has_builtin_spec(imported.metadata)) return imported;
  const specs::Spec spec =
      options.spec.empty() ? builtin_spec(imported.metadata, imported.path) : specs::read_spec(options.spec);
  const auto is_cache = [](const specs::Tensor& tensor) { return tensor.role == "cache"; };
  if (std::any_of(spec.tensors.begin(), spec.tensors.end(), is_cache)) return imported;
  throw Error(ErrorKind::Usage,
              fmt::format("'{}' does not generate text: it computes embeddings of texts", imported.path), {},
              {fmt::format("harmonics embed {} TEXT", imported.path)});
}

// Imports the model that the flags name. The metadata and the tokenizer of a .ndsl file are in the folder of --weights.
ImportedModel imported_of(const Options& options) {
  const std::string& path = options.files.front();
  if (!is_ndsl(path)) {
    if (!options.weights.empty() && options.verb != "serve")
      throw Error(ErrorKind::Usage, "--weights is for .ndsl files: '" + path + "' contains its own weights", {},
                  {"leave it out"});
    expect_no_misspelt_model(path);
    return import_for(path, options);
  }
  if (options.weights.empty())
    throw Error(ErrorKind::Usage, fmt::format("'{}' lacks --weights FOLDER: a .ndsl file has no weights", path), {},
                {"give a folder of Hugging Face with its weights and tokenizer", "'harmonics train' makes weights"});
  return import_described(path, options.weights, Registry::global(), described_options(options));
}

std::shared_ptr<const Tokenizer> opened_tokenizer(const ImportedModel& imported, const Options& options) {
  Registry& registry = Registry::global();
  const std::string& path = imported.path;
  if (options.tokenizer.empty() && !is_tokenizer(path, bytes_of(*imported.file), registry))
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' lacks --tokenizer FILE: '{}' has no tokenizer in it", options.verb, path), {},
                {"give the tokenizer that the model was trained with"});
  return Tokenizer::open(options.tokenizer.empty() ? path : options.tokenizer, registry, {}, imported.metadata);
}

Model opened_model(const ImportedModel& imported, const Options& options) {
  Model model = model_of(imported, model_options(options));
  model.parameters->keep_packed(packed_files_of(options));
  return model;
}

// Throws unless the model has a score for each token.
void expect_same_tokens(const Model& model, const ImportedModel& imported, const Tokenizer& tokenizer,
                        const Options& options) {
  if (tokenizer.size() == model.vocabulary) return;
  throw Error(ErrorKind::Usage,
              fmt::format("the tokenizer '{}' has {} tokens, but '{}' has scores of {}",
                          options.tokenizer.empty() ? imported.path : options.tokenizer, tokenizer.size(),
                          options.files.front(), model.vocabulary),
              {}, {"give the tokenizer that the model was trained with"});
}

// Opens the tokenizer on a thread of its own: a large vocabulary takes longer than the model. Its errors come first.
Model opened_both(const ImportedModel& imported, std::shared_ptr<const Tokenizer>& tokenizer, const Options& options) {
  std::future<std::shared_ptr<const Tokenizer>> opening = std::async(std::launch::async, [&] {
    const AlternateStack stack;
    return opened_tokenizer(imported, options);
  });
  std::optional<Model> model;
  std::exception_ptr failed;
  try {
    model = opened_model(imported, options);
  } catch (...) {
    failed = std::current_exception();
  }
  tokenizer = opening.get();
  if (failed) std::rethrow_exception(failed);
  expect_same_tokens(*model, imported, *tokenizer, options);
  return std::move(*model);
}

std::string whole_file(const std::string& path) {
  constexpr uint64_t kMost = uint64_t{16} << 20;
  const auto file = MappedFile::open(path);
  if (file->bytes() > kMost)
    throw Error(ErrorKind::Usage, fmt::format("'{}' has {} bytes; the limit is {}", path, file->bytes(), kMost));
  return read_whole(*file, [&] { return std::string(bytes_of(*file)); });
}

}  // namespace

namespace {

std::string grammar_of_schema_text(const std::string& text) {
  boost::json::error_code failed;
  const boost::json::value schema = parse_json(text, failed, 128);
  if (failed)
    throw Error(ErrorKind::Usage, "the JSON schema is not JSON: " + failed.message(), {},
                {"--json-schema takes a file such as {\"type\": \"object\"}; --grammar takes GBNF"});
  return grammar_of_schema(schema);
}

// Reads a grammar from a file, converted by `text_of`. Errors name the file.
template <typename TextOf>
std::shared_ptr<const Grammar> grammar_in(const std::string& path, TextOf text_of) {
  const std::string text = whole_file(path);
  try {
    return std::make_shared<const Grammar>(text_of(text));
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("'{}': {}", path, e.what()), {}, e.notes());
  }
}

}  // namespace

LanguageModel::LanguageModel(const Options& options)
    : path(options.files.front()),
      imported(expect_texts(imported_of(options), options)),
      model(opened_both(imported, tokenizer, options)),
      executor(make_team_executor(options.run.threads > 0 ? options.run.threads
                                                          : static_cast<int>(std::thread::hardware_concurrency()))),
      decoder(model, *executor, text_compile_options(options)) {}

ChatTemplate LanguageModel::chat_template(const Options& options) const {
  if (options.chat_template.empty()) return ChatTemplate::of(imported.metadata, *tokenizer);
  const auto text = [&](std::optional<int32_t> id) { return id ? tokenizer->written(*id) : std::string(); };
  const std::string given = whole_file(options.chat_template);
  try {
    return ChatTemplate(given, text(tokenizer->bos()), text(tokenizer->eos()));
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("'{}': {}", options.chat_template, e.what()), {},
                {"templates are Jinja; docs/language-models.md lists what is supported"});
  }
}

std::vector<int32_t> LanguageModel::ends() const {
  std::vector<int32_t> ids;
  const AttributeValue* found = imported.metadata.values().find("huggingface.eos_token_ids");
  const auto* all = found ? std::get_if<std::vector<int64_t>>(found) : nullptr;
  for (size_t i = 0; all && i < all->size(); ++i)
    if ((*all)[i] >= 0 && (*all)[i] < tokenizer->size()) ids.push_back(static_cast<int32_t>((*all)[i]));
  return ids;
}

Speculation::Speculation(const Options& options, const LanguageModel& verifier) {
  if (!options.draft.empty() && options.lookup > 0)
    throw Error(ErrorKind::Usage, "--draft and --lookup exclude each other", {}, {"leave one of them out"});
  if (options.draft_tokens > 0) tokens = options.draft_tokens;
  if (options.lookup > 0) drafter = std::make_shared<LookupDrafter>(options.lookup);
  if (options.draft_tokens > 0 && options.draft.empty() && !drafter)
    throw Error(ErrorKind::Usage, "--draft-tokens needs --draft MODEL or --lookup N", {}, {"for instance --lookup 3"});
  if (options.draft.empty()) return;
  Options own = options;
  own.files = {options.draft};
  own.spec.clear();
  own.set.clear();
  own.lora.clear();
  own.weights.clear();
  model = std::make_unique<LanguageModel>(own);
  expect_same_vocabulary(*verifier.tokenizer, *model->tokenizer, verifier.path, model->path);
  drafter = std::make_shared<ModelDrafter>(model->decoder, options.context);
}

void note_long_context(const Options& options, const LanguageModel& model) {
  const int64_t trained = model.model.context;
  if (options.quiet || trained < 1 || options.context <= trained) return;
  if (model.model.covered && model.model.covered() >= options.context) return;
  print_note(fmt::format("--context {} exceeds the {} tokens that '{}' was trained for: text beyond them may be worse",
                         thousands(options.context), thousands(trained), model.path));
}

std::optional<SavedSession> saved_session_of(const Options& options) {
  std::error_code failed;
  if (options.session.empty() || !std::filesystem::exists(options.session, failed)) return {};
  return read_session(options.session);
}

ContinuationSettings continuation_settings(const Options& options, const Tokenizer& tokenizer) {
  ContinuationSettings settings;
  settings.tokens = options.max_tokens;
  settings.temperature = options.temperature;
  settings.filters = options.filters;
  settings.stop = options.stop;
  settings.overflow = options.overflow == "shift" ? Overflow::shift : Overflow::stop;
  settings.keep = options.keep_tokens;
  if (options.given.contains("keep") && settings.overflow == Overflow::stop)
    throw Error(ErrorKind::Usage, "--keep has no effect without --overflow shift", {}, {"add --overflow shift"});
  if (!options.given.contains("dry")) refuse_without(options, {"dry-base", "dry-length"}, "--dry NUMBER");
  if (!options.given.contains("mirostat"))
    refuse_without(options, {"mirostat-surprise", "mirostat-rate"}, "--mirostat 2");
  settings.seed = static_cast<uint64_t>(options.run.seed.value_or(0));
  if (options.log_probabilities) settings.log_probabilities = static_cast<size_t>(*options.log_probabilities);
  if (settings.filters.dry_multiplier > 0) settings.filters.dry_breakers = dry_breakers(*token_texts(tokenizer));
  if (!options.grammar.empty() && !options.json_schema.empty())
    throw Error(ErrorKind::Usage, "--grammar and --json-schema exclude each other", {}, {"leave one of them out"});
  if (!options.grammar.empty()) settings.grammar = grammar_in(options.grammar, [](std::string text) { return text; });
  if (!options.json_schema.empty()) settings.grammar = grammar_in(options.json_schema, grammar_of_schema_text);
  return settings;
}

ImportedModel imported_for_texts(const Options& options) { return imported_of(options); }
std::shared_ptr<const Tokenizer> tokenizer_of(const ImportedModel& imported, const Options& options) {
  return opened_tokenizer(imported, options);
}
Model weights_of(const ImportedModel& imported, const Tokenizer& tokenizer, const Options& options) {
  Model model = opened_model(imported, options);
  expect_same_tokens(model, imported, tokenizer, options);
  return model;
}

double per_second(int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

}  // namespace harmonics::engine::cli
