#include "engine/corpus/corpus_tokenizer.hpp"

#include <algorithm>
#include <filesystem>

#include <boost/json.hpp>

#include "engine/base/file.hpp"
#include "engine/corpus/example_files.hpp"

namespace harmonics::engine {

namespace {

std::string utf8_of(char32_t c) {
  std::string s;
  if (c < 0x80) return s += static_cast<char>(c);
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  s += static_cast<char>((0xF0 << (3 - more) & 0xFF) | c >> (6 * more));
  for (int i = more; i-- > 0;) s += static_cast<char>(0x80 | (c >> (6 * i) & 0x3F));
  return s;
}

std::string tokenizer_json(boost::json::object vocabulary, boost::json::value division, boost::json::value decoder) {
  boost::json::object model{{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"vocab", std::move(vocabulary)},
                            {"merges", boost::json::array()}};
  return boost::json::serialize(boost::json::object{{"version", "1.0"},
                                                    {"truncation", nullptr},
                                                    {"padding", nullptr},
                                                    {"added_tokens", boost::json::array()},
                                                    {"normalizer", nullptr},
                                                    {"pre_tokenizer", std::move(division)},
                                                    {"post_processor", nullptr},
                                                    {"decoder", std::move(decoder)},
                                                    {"model", std::move(model)}});
}

// Returns the tokenizer.json in a folder without a model, or `name` itself.
std::string tokenizer_path(const std::string& name) {
  std::error_code failed;
  const std::filesystem::path folder = name;
  const bool alone = std::filesystem::exists(folder / "tokenizer.json", failed) &&
                     !std::filesystem::exists(folder / kFolderFile, failed);
  return alone ? (folder / "tokenizer.json").string() : name;
}

// Returns how many leading tokens the first `bytes` bytes of the text, tokenized alone, have in common with `whole`.
size_t tokens_before(const TextExample& example, size_t bytes, const std::vector<int32_t>& whole,
                     const Tokenizer& tokenizer, const EncodeOptions& options) {
  if (bytes == 0) return 0;
  if (bytes == example.text.size()) return whole.size();
  const std::vector<int32_t> part = tokenizer.encode(std::string_view(example.text).substr(0, bytes), options);
  const auto same = std::mismatch(part.begin(), part.end(), whole.begin(), whole.end());
  return static_cast<size_t>(same.first - part.begin());
}

}  // namespace

std::string characters_tokenizer_json(std::u32string_view characters) {
  boost::json::object vocabulary;
  for (size_t i = 0; i < characters.size(); ++i) vocabulary[utf8_of(characters[i])] = i;
  return tokenizer_json(std::move(vocabulary), nullptr, boost::json::object{{"type", "Fuse"}});
}

std::string bytes_tokenizer_json() {
  boost::json::object vocabulary;
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    vocabulary[utf8_of(printable ? byte : next++)] = static_cast<uint32_t>(byte);
  }
  const boost::json::object level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return tokenizer_json(std::move(vocabulary), level, level);
}

bool holds_characters(const std::string& json) {
  boost::json::error_code failed;
  const boost::json::value root = boost::json::parse(json, failed);
  const boost::json::object* const object = failed ? nullptr : root.if_object();
  const boost::json::value* const division = object ? object->if_contains("pre_tokenizer") : nullptr;
  const boost::json::value* const merges = failed ? nullptr : root.find_pointer("/model/merges", failed);
  return division && division->is_null() && merges && merges->is_array() && merges->get_array().empty();
}

CorpusTokenizer open_corpus_tokenizer(const std::string& name, const std::string& chat_template,
                                      const std::vector<std::string>& texts) {
  Registry& registry = Registry::global();
  CorpusTokenizer made;
  if (name == "characters" || name == "bytes") {
    std::u32string characters;
    if (name == "characters")
      for (const std::string& path : texts) characters += characters_of_files(path);
    std::sort(characters.begin(), characters.end());
    characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
    if (name == "characters" && characters.empty())
      throw Error(ErrorKind::Stream, "the texts have no characters, and so no vocabulary");
    made.json = name == "bytes" ? bytes_tokenizer_json() : characters_tokenizer_json(characters);
    made.tokenizer = Tokenizer::read(made.json, "tokenizer.json", registry);
  } else if (name.empty()) {
    throw Error(ErrorKind::Usage, "a corpus lacks tokenizer=")
        .note("give a model's file or folder, a tokenizer.json, 'characters' or 'bytes'");
  }
  ModelMetadata metadata;
  if (!made.tokenizer) {
    const std::string path = tokenizer_path(name);
    try {
      if (is_model(path, registry)) metadata = import_model(path, registry).metadata;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::NoInput && model_file(path) != path) {  // a folder without weights
        metadata = import_model(path, registry, {"huggingface", {{"weights", "false"}}}).metadata;
      } else {
        // If no importer knows the model, only its tokenizer is read, and its chat template is unknown.
        if (e.kind() != ErrorKind::Weights) throw;
        made.tokenizer = Tokenizer::open(path, registry);
        if (chat_template.empty()) return made;
      }
    }
    if (!made.tokenizer) made.tokenizer = Tokenizer::open(path, registry, {}, metadata);
  }
  if (chat_template.empty()) {
    made.format = std::make_shared<ChatTemplate>(ChatTemplate::of(metadata, *made.tokenizer));
    return made;
  }
  const auto text = [&](std::optional<int32_t> id) { return id ? made.tokenizer->written(*id) : std::string(); };
  made.format = std::make_shared<ChatTemplate>(read_plain_file(chat_template), text(made.tokenizer->bos()),
                                               text(made.tokenizer->eos()));
  return made;
}

std::vector<int32_t> tokens_of(const TextExample& example, const Tokenizer& tokenizer) {
  const EncodeOptions options{.begin = false, .end = false, .special = example.special, .whole = false};
  const std::vector<int32_t> ids = tokenizer.encode(example.text, options);
  std::vector<int32_t> tokens;
  tokens.reserve(ids.size() + 2);
  if (example.begin) {
    // The begin id is added only if the tokenizer adds one to whole texts.
    const std::vector<int32_t> empty = tokenizer.encode("", {.begin = false, .end = false, .whole = true});
    if (!empty.empty() && tokenizer.bos() && empty.front() == *tokenizer.bos()) tokens.push_back(~*tokenizer.bos());
  }
  const size_t before = tokens.size();
  for (const int32_t id : ids) tokens.push_back(~id);
  for (const TextExample::Range& range : example.learned) {
    const size_t first = tokens_before(example, range.begin, ids, tokenizer, options);
    const size_t last = tokens_before(example, range.end, ids, tokenizer, options);
    for (size_t i = first; i < last; ++i) tokens[before + i] = ids[i];
  }
  if (example.end && tokenizer.eos() && (ids.empty() || ids.back() != *tokenizer.eos()))
    tokens.push_back(*tokenizer.eos());
  return tokens;
}

}  // namespace harmonics::engine
