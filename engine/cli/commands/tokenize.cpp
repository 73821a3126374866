// harmonics tokenize: converts text to tokens and back, and trains tokenizers.
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/corpus/corpus_tokenizer.hpp"
#include "engine/corpus/example_files.hpp"
#include "engine/model/imported.hpp"
#ifdef HARMONICS_HAS_TOKENS
#include "tokens/byte_pair_training.hpp"
#include "formats/utf8.hpp"
#endif

namespace harmonics::engine::cli {

namespace {

constexpr const char* kEndText = "<|endoftext|>";

std::string given_text(const Options& options) {
  std::string text;
  for (size_t i = 1; i < options.files.size(); ++i) text += (i > 1 ? " " : "") + options.files[i];
  if (!options.text_file.empty()) {
    if (!text.empty())
      throw Error(ErrorKind::Usage, "the text is given twice: as words and with --file", {}, {"leave one of them out"});
    return read_plain_file(options.text_file);
  }
  if (options.files.size() > 1) return text;
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

std::vector<int32_t> given_ids(const std::string& text, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (size_t at = 0; (at = text.find_first_not_of(" ,[]\t\n", at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" ,[]\t\n", at), text.size());
    int32_t id = -1;
    const auto [last, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || last != text.data() + end || id < 0 || id >= tokenizer.size())
      throw Error(ErrorKind::Usage,
                  fmt::format("'{}' is not an id of this tokenizer; ids are whole numbers from 0 to {}",
                              text.substr(at, end - at), tokenizer.size() - 1));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

void decode_ids(const Options& options, const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = given_ids(options.ids, tokenizer);
  const std::string text = tokenizer.decode(ids);
  if (options.json)
    print_json(boost::json::object{{"version", 1}, {"tokens", boost::json::value_from(ids)}, {"text", text}});
  else
    print("{}\n", text);
}

void encode_text(const Options& options, const Tokenizer& tokenizer) {
  const std::string text = given_text(options);
  const std::vector<int32_t> ids =
      tokenizer.encode(text, {.begin = false, .end = false, .special = options.special_tokens, .whole = true});
  if (options.json) {
    boost::json::object o{{"version", 1}, {"count", ids.size()}, {"bytes", text.size()}};
    if (!options.count_only) {
      boost::json::array pieces;
      for (const int32_t id : ids) pieces.emplace_back(tokenizer.written(id));
      o["tokens"] = boost::json::value_from(ids);
      o["pieces"] = std::move(pieces);
    }
    return print_json(o);
  }
  if (options.count_only) {
    print("{}, {}\n", number_of(ids.size(), "token"), number_of(text.size(), "byte"));
    return;
  }
  std::string line;
  for (const int32_t id : ids) line += fmt::format("{}{}", line.empty() ? "" : " ", id);
  print("{}\n", line);
}

#ifdef HARMONICS_HAS_TOKENS
std::string trained_json(const tokens::TrainedPairs& trained) {
  boost::json::object vocabulary;
  for (size_t i = 0; i < trained.tokens.size(); ++i) vocabulary[trained.tokens[i]] = i;
  boost::json::array merges;
  for (const auto& [left, right] : trained.merges)
    merges.push_back(boost::json::array{boost::json::value(trained.tokens[static_cast<size_t>(left)]),
                                        boost::json::value(trained.tokens[static_cast<size_t>(right)])});
  const boost::json::object level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const boost::json::object end{{"id", 0},         {"content", kEndText}, {"single_word", false}, {"lstrip", false},
                                {"rstrip", false}, {"normalized", false}, {"special", true}};
  const boost::json::object model{{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", nullptr},
                                  {"continuing_subword_prefix", nullptr},
                                  {"end_of_word_suffix", nullptr},
                                  {"fuse_unk", false},
                                  {"byte_fallback", false},
                                  {"ignore_merges", false},
                                  {"vocab", std::move(vocabulary)},
                                  {"merges", std::move(merges)}};
  return boost::json::serialize(boost::json::object{{"version", "1.0"},
                                                    {"truncation", nullptr},
                                                    {"padding", nullptr},
                                                    {"added_tokens", boost::json::array{end}},
                                                    {"normalizer", nullptr},
                                                    {"pre_tokenizer", level},
                                                    {"post_processor", nullptr},
                                                    {"decoder", level},
                                                    {"model", model}});
}

// Adds a text to the training, line by line.
void add_lines(std::string_view text, const std::string& path, tokens::PairTraining& training) {
  if (const auto bad = find_invalid_utf8(text))
    throw Error(ErrorKind::Stream, fmt::format("'{}' is not UTF-8 at byte {}", path, *bad)).note("convert it to UTF-8");
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    training.add(text.substr(0, end));
    text.remove_prefix(end);
  }
}

void train_tokenizer(const Options& options) {
  if (options.text_file.empty())
    throw Error(ErrorKind::Usage, "--train lacks --file", {}, {"give the text to train on: --file 'texts/*.txt'"});
  tokens::PairTraining training;
  for (const std::string& path : example_files(options.text_file)) {
    const auto file = MappedFile::open(path);
    read_whole(*file, [&] {
      add_lines({static_cast<const char*>(file->data()), file->bytes()}, path, training);
      return 0;
    });
  }
  if (training.words() == 0)
    throw Error(ErrorKind::Stream, fmt::format("'{}' has no words to train on", options.text_file), {},
                {"give a longer text"});
  const tokens::TrainedPairs trained = training.train(static_cast<size_t>(*options.train_size), {kEndText}, 2);
  const std::filesystem::path to = options.files.front();
  write_file_atomically(to.string(), trained_json(trained));
  // tokenizer.json does not specify the end token.
  if (to.filename() == "tokenizer.json")
    write_file_atomically((to.parent_path() / "tokenizer_config.json").string(),
                          boost::json::serialize(boost::json::object{{"eos_token", kEndText}}));
  if (options.json)
    print_json(boost::json::object{{"version", 1},
                                   {"to", to.string()},
                                   {"tokens", trained.tokens.size()},
                                   {"merges", trained.merges.size()},
                                   {"words", training.words()}});
  else if (!options.quiet)
    say(fmt::format("{}: {} from {}{}", to.string(), number_of(trained.tokens.size(), "token"),
                    number_of(training.words(), "different word"),
                    trained.tokens.size() < static_cast<size_t>(*options.train_size)
                        ? "; no further pair of tokens occurs twice"
                        : ""));
}
#else
void train_tokenizer(const Options&) {
  throw Error(ErrorKind::Unavailable, "this program was built without PCRE2, and cannot train tokenizers");
}
#endif

}  // namespace

int tokenize_command(const Options& options) {
  if (options.train_size) {
    train_tokenizer(options);
    return kDone;
  }
  if (!options.ids.empty() && (options.files.size() > 1 || !options.text_file.empty()))
    throw Error(ErrorKind::Usage, "--decode takes ids in place of a text", {}, {"leave the text out"});
  const CorpusTokenizer opened = open_corpus_tokenizer(options.files.front(), "", {});
  if (options.ids.empty())
    encode_text(options, *opened.tokenizer);
  else
    decode_ids(options, *opened.tokenizer);
  return kDone;
}

}  // namespace harmonics::engine::cli
