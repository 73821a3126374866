#include "tokenizer_files.hpp"

#include <algorithm>
#include <charconv>

#include "formats/utf8.hpp"
#include "tokens/families.hpp"
#include "tokens/tokenizer.hpp"

namespace huggingface {

using namespace harmonics;
using namespace harmonics::tokens;

namespace {

constexpr const char *kTokenizer = "tokenizer.json", *kVocabulary = "vocab.json", *kMerges = "merges.txt";
constexpr const char *kTokenizerConfig = "tokenizer_config.json", *kGeneration = "generation_config.json";
constexpr size_t kLongestSettings = 16 << 20, kLongestMerges = 64 << 20;
constexpr int64_t kMostAdded = 1 << 20;

Node settings_of(const Beside& files, const char* name) {
  const auto text = files(name);
  return text ? Node::parse(*text, name, kLongestSettings) : Node();
}

// Returns a token's text, which may be an object with matching options.
std::string_view content(const Node& token) { return token.is_object() ? token["content"].text() : token.text(""); }

int32_t find_token(const Vocabulary& vocabulary, std::string_view text) {
  if (text.empty()) return -1;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i)
    if (vocabulary.tokens[i].text == text) return static_cast<int32_t>(i);
  return -1;
}

// Sets the special tokens of tokenizer_config.json that the rules have not set.
void read_special(const Node& config, Vocabulary& to) {
  const auto take = [&](const char* name, int32_t& id, bool replaces) {
    const int32_t found = find_token(to, content(config[name]));
    if (found >= 0 && (replaces || id < 0)) id = found;
  };
  take("bos_token", to.bos, !to.adds_bos);
  take("eos_token", to.eos, !to.adds_eos);
  take("unk_token", to.unknown, false);
  take("pad_token", to.padding, true);
  take("mask_token", to.mask, true);
}

std::vector<int64_t> ends_of(const Node& generation) {
  std::vector<int64_t> ends;
  const Node ids = generation["eos_token_id"];
  if (ids.is_list())
    for (size_t i = 0; i < ids.size(); ++i) ends.push_back(ids[i].integer());
  else if (ids.has())
    ends.push_back(ids.integer());
  return ends;
}

// Returns the family of word divisions for a tokenizer class.
const char* family_of(const Node& config) {
  const std::string_view name = config["tokenizer_class"].text("GPT2Tokenizer");
  if (name.starts_with("Qwen2Tokenizer")) return "qwen2";
  if (name.starts_with("GPT2Tokenizer")) return "gpt-2";
  config["tokenizer_class"].fail("is " + config["tokenizer_class"].shown() +
                                 ", whose vocab.json cannot be read: it needs a tokenizer.json");
}

void read_merges_text(std::string_view text, Vocabulary& to) {
  if (text.size() > kLongestMerges) refuse(kMerges, "holds " + std::to_string(text.size()) + " bytes");
  size_t number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == line.size())
      refuse(kMerges, "has the line " + std::to_string(number) + ", " + shown_name(line) + ", which is not a pair");
    to.merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
}

// Returns the added tokens of tokenizer_config.json in the form of tokenizer.json.
json::array added_of(const Node& config) {
  json::array added;
  const Node all = config["added_tokens_decoder"];
  if (!all.has()) return added;
  for (const auto& [text, token] : all.entries()) {
    int64_t id = -1;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (failed != std::errc() || end != text.data() + text.size() || id < 0 || id > (int64_t{1} << 24))
      token.fail("is not an id");
    json::object entry = token.is_object() ? token.value().get_object() : json::object();
    entry["id"] = id;
    added.push_back(std::move(entry));
    if (static_cast<int64_t>(added.size()) > kMostAdded) all.fail("has too many tokens");
  }
  std::sort(added.begin(), added.end(),
            [](const json::value& a, const json::value& b) { return a.at("id").get_int64() < b.at("id").get_int64(); });
  return added;
}

// Reads vocab.json and merges.txt by converting them to an equivalent tokenizer.json.
FolderTokenizer read_pair(std::string_view vocab, std::string_view merges, const Node& config) {
  const char* family = family_of(config);
  const Node root = Node::parse(vocab, kVocabulary, kLongestMerges);
  json::object model{{"type", "BPE"}, {"vocab", root.value()}, {"merges", json::array()}};
  const json::object all{{"model", std::move(model)}, {"added_tokens", added_of(config)}};
  FolderTokenizer result{read_tokenizer(json::serialize(all), kVocabulary), family};
  read_merges_text(merges, result.vocabulary);
  set_family(result.vocabulary, family);
  if (std::string_view(family) == "qwen2") result.vocabulary.normalizers.push_back({NormalizerKind::nfc});
  for (Division& division : result.vocabulary.divisions)
    if (division.kind == DivisionKind::byte_level) division.prefix = config["add_prefix_space"].truth(false);
  result.vocabulary.tokens_place = kVocabulary;
  result.vocabulary.merges_place = kMerges;
  return result;
}

std::vector<std::string> expressions_of(const Vocabulary& vocabulary) {
  std::vector<std::string> all;
  for (const Division& d : vocabulary.divisions) {
    if (d.kind == DivisionKind::split && !d.literal) all.push_back(d.pattern);
    if (d.kind == DivisionKind::byte_level && d.words) all.emplace_back(kGpt2Words);
    if (d.kind == DivisionKind::digits && d.individual) all.emplace_back("\\p{N}");
    if (d.kind == DivisionKind::byte_level && d.prefix) all.emplace_back("a space in front");
  }
  return all;
}

// Returns GGUF's name of the family with the same divisions; "": none.
std::string known_family(const Vocabulary& vocabulary) {
  if (vocabulary.model != ModelKind::byte_pairs || !vocabulary.byte_alphabet) return "";
  const std::vector<std::string> wanted = expressions_of(vocabulary);
  std::string names = family_names() + ", ";
  for (size_t comma = 0; (comma = names.find(", ")) != std::string::npos; names.erase(0, comma + 2)) {
    Vocabulary family;
    const std::string name = names.substr(0, comma);
    if (set_family(family, name) && expressions_of(family) == wanted && family.whole_words == vocabulary.whole_words)
      return name;
  }
  return "";
}

void fill_up(Vocabulary& vocabulary, int64_t least) {
  for (auto i = static_cast<int64_t>(vocabulary.tokens.size()); i < least; ++i)
    vocabulary.tokens.push_back({"[PAD" + std::to_string(i) + "]", TokenKind::unused, 0});
}

}  // namespace

std::optional<FolderTokenizer> read_folder_tokenizer(const Beside& files, const std::string& path, int64_t least) {
  constexpr int64_t kMost = 1 << 24;
  const Node config = settings_of(files, kTokenizerConfig);
  std::optional<FolderTokenizer> result;
  if (const auto whole = files(kTokenizer)) {
    result = FolderTokenizer{read_tokenizer(*whole, kTokenizer), ""};
    result->family = known_family(result->vocabulary);
  } else if (const auto vocab = files(kVocabulary)) {
    const auto merges = files(kMerges);
    if (!merges) refuse(path, std::string("has ") + kVocabulary + " beside it, and no " + kMerges);
    result = read_pair(*vocab, *merges, config);
  }
  if (!result) return {};
  Vocabulary& vocabulary = result->vocabulary;
  read_special(config, vocabulary);
  if (vocabulary.eos < 0)
    for (const int64_t end : ends_of(settings_of(files, kGeneration)))
      if (end >= 0 && static_cast<size_t>(end) < vocabulary.tokens.size() && vocabulary.eos < 0)
        vocabulary.eos = static_cast<int32_t>(end);
  if (least > kMost) refuse(path, "has scores of " + std::to_string(least) + " tokens");
  fill_up(vocabulary, least);
  return result;
}

FolderSettings read_folder_settings(const Beside& files) {
  FolderSettings settings;
  settings.ends = ends_of(settings_of(files, kGeneration));
  if (const auto text = files("chat_template.jinja")) {
    if (text->size() > kLongestSettings || find_invalid_utf8(*text)) refuse("chat_template.jinja", "is not a template");
    settings.chat_template = *text;
    return settings;
  }
  const Node given = settings_of(files, kTokenizerConfig)["chat_template"];
  if (!given.is_list()) {
    settings.chat_template = given.text("");
    return settings;
  }
  for (size_t i = 0; i < given.size(); ++i) {  // of several templates, the default one
    const std::string_view name = given[i]["name"].text();
    if (name == "tool_use")
      settings.tools_template = given[i]["template"].text();
    else if (settings.chat_template.empty() || name == "default")
      settings.chat_template = given[i]["template"].text();
  }
  if (settings.chat_template.empty()) settings.chat_template = settings.tools_template;
  return settings;
}

uint32_t TokenizerFormat::probe(const FileStart& file) const {
  if (file.first.find('{') == std::string_view::npos) return HX_PROBE_NO;
  const auto holds = [&](const char* key) { return file.first.find(key) != std::string_view::npos; };
  if (file.name == kTokenizer) return HX_PROBE_CERTAIN;
  if (file.name == "config.json")
    return holds("\"architectures\"") || holds("\"model_type\"") ? HX_PROBE_LIKELY : HX_PROBE_NO;
  return holds("\"added_tokens\"") && holds("\"normalizer\"") ? HX_PROBE_LIKELY : HX_PROBE_NO;
}

std::unique_ptr<TextTokenizer> TokenizerFormat::open(const TokenizerSource& source, const Arguments&) const {
  const std::string path = source.path();
  if (path.substr(path.find_last_of('/') + 1) != "config.json") {
    const std::string name = path.substr(path.find_last_of('/') + 1);
    const Beside neighbours = beside(source);
    const Beside files = [&](const std::string& wanted) -> std::optional<std::string_view> {
      if (wanted == kTokenizer) return source.bytes();
      return name == kTokenizer ? neighbours(wanted) : std::nullopt;
    };
    return make_tokenizer(read_folder_tokenizer(files, path, 0)->vocabulary, path);
  }
  const Node config = Node::parse(source.bytes(), path, kLongestSettings);
  auto read = read_folder_tokenizer(beside(source), path, config["vocab_size"].integer(0));
  if (!read)
    throw Error(ErrorKind::Weights,
                "beside '" + path + "' there is no tokenizer: neither " + kTokenizer + " nor " + kVocabulary)
        .note("give the model's tokenizer as a separate file: --tokenizer FILE");
  return make_tokenizer(std::move(read->vocabulary), path);
}

}  // namespace huggingface
