#include "exported_tokenizer.hpp"

#include <algorithm>
#include <unordered_map>

#include "exported_config.hpp"
#include "tokens/families.hpp"

namespace huggingface {

using namespace harmonics;
using namespace harmonics::tokens;

namespace {

constexpr const char* kMark = "\xE2\x96\x81";  // U+2581

template <typename T>
const T* value_of(const MetadataMap& metadata, const std::string& key) {
  const auto at = metadata.find("tokenizer." + key);
  return at == metadata.end() ? nullptr : std::get_if<T>(&at->second);
}

bool truth_of(const MetadataMap& metadata, const char* key, bool otherwise) {
  const auto* truth = value_of<bool>(metadata, key);
  return truth ? *truth : otherwise;
}

[[noreturn]] void refuse_key(const std::string& key, const std::string& what) {
  throw Error(ErrorKind::Weights, "the metadata 'tokenizer." + key + "' " + what);
}

// The metadata common to all kinds of vocabularies.
struct Pieces {
  explicit Pieces(const MetadataMap& all) : metadata(all) {
    const auto* texts = value_of<std::vector<std::string_view>>(all, "ggml.tokens");
    if (!texts) refuse_key("ggml.tokens", "is not a list of strings");
    tokens.assign(texts->begin(), texts->end());
    kinds.assign(tokens.size(), 1);
    if (const auto* types = value_of<std::vector<int64_t>>(all, "ggml.token_type")) kinds = *types;
    if (kinds.size() != tokens.size()) refuse_key("ggml.token_type", "has another length than the tokens");
    scores.assign(tokens.size(), 0);
    if (const auto* values = value_of<std::vector<double>>(all, "ggml.scores")) scores = *values;
    if (scores.size() != tokens.size()) refuse_key("ggml.scores", "has another length than the tokens");
  }
  bool is(size_t i, TokenKind kind) const { return kinds[i] == static_cast<int64_t>(kind); }
  int64_t id(const char* key) const {
    const auto* number = value_of<int64_t>(metadata, std::string("ggml.") + key + "_token_id");
    return number && *number >= 0 && static_cast<size_t>(*number) < tokens.size() ? *number : -1;
  }
  const std::string* token(int64_t number) const { return number < 0 ? nullptr : &tokens[static_cast<size_t>(number)]; }

  const MetadataMap& metadata;
  std::vector<std::string> tokens;
  std::vector<int64_t> kinds;
  std::vector<double> scores;
};

json::object vocab_of(const Pieces& pieces) {
  json::object vocab;
  vocab.reserve(pieces.tokens.size());
  for (size_t i = 0; i < pieces.tokens.size(); ++i)
    if (!pieces.is(i, TokenKind::unused)) vocab.emplace(pieces.tokens[i], i);
  return vocab;
}

json::array added_tokens(const Pieces& pieces) {
  json::array all;
  for (size_t i = 0; i < pieces.tokens.size(); ++i) {
    const bool control = pieces.is(i, TokenKind::control);
    if (control || pieces.is(i, TokenKind::user_defined))
      all.push_back(json::object{{"id", i},
                                 {"content", pieces.tokens[i]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", control}});
  }
  return all;
}

// Returns the post-processor that adds ids around a text, or null.
json::value ends_around(const Pieces& pieces, int64_t bos, int64_t eos, bool begins, bool ends) {
  json::array single;
  json::object special;
  const auto put = [&](int64_t id) {
    const std::string& text = *pieces.token(id);
    single.push_back(json::object{{"SpecialToken", json::object{{"id", text}, {"type_id", 0}}}});
    special[text] = json::object{{"id", text}, {"ids", json::array{id}}, {"tokens", json::array{text}}};
  };
  if (begins && bos >= 0) put(bos);
  single.push_back(json::object{{"Sequence", json::object{{"id", "A"}, {"type_id", 0}}}});
  if (ends && eos >= 0) put(eos);
  if (special.empty()) return nullptr;
  return json::object{
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", special}};
}

json::value replace(const char* from, const char* to) {
  return json::object{{"type", "Replace"}, {"pattern", json::object{{"String", from}}}, {"content", to}};
}

void put_byte_pairs(const Pieces& pieces, json::object& file) {
  const auto* pre = value_of<std::string>(pieces.metadata, "ggml.pre");
  const std::string name = pre ? *pre : "default";
  Vocabulary family;
  if (!set_family(family, name)) refuse_key("ggml.pre", "is '" + name + "', which is not known");
  json::array rules;
  bool divided = false;
  for (const Division& d : family.divisions) {
    if (d.kind != DivisionKind::split) continue;
    divided = true;
    rules.push_back(json::object{{"type", "Split"},
                                 {"pattern", json::object{{"Regex", d.pattern}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}});
  }
  const bool words = !divided;
  rules.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", words}});
  file["normalizer"] = name == "qwen2" ? json::value(json::object{{"type", "NFC"}}) : json::value(nullptr);
  file["pre_tokenizer"] = json::object{{"type", "Sequence"}, {"pretokenizers", rules}};
  file["decoder"] =
      json::object{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  json::array merges;
  const auto* list = value_of<std::vector<std::string_view>>(pieces.metadata, "ggml.merges");
  if (!list) refuse_key("ggml.merges", "is not a list of strings");
  for (const std::string_view merge : *list) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) refuse_key("ggml.merges", "has an item that is not a pair");
    merges.push_back(json::array{merge.substr(0, space), merge.substr(space + 1)});
  }
  file["model"] = json::object{{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", ""},
                               {"end_of_word_suffix", ""},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", family.whole_words},
                               {"vocab", vocab_of(pieces)},
                               {"merges", std::move(merges)}};
  file["post_processor"] = ends_around(pieces, pieces.id("bos"), pieces.id("eos"),
                                       truth_of(pieces.metadata, "ggml.add_bos_token", family.adds_bos),
                                       truth_of(pieces.metadata, "ggml.add_eos_token", false));
}

// Returns all pairs whose concatenation is a token, the highest score first.
json::array merges_of(const Pieces& pieces) {
  struct Pair {
    std::string_view left, right;
    double score;
    size_t a, b;
  };
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < pieces.tokens.size(); ++i)
    if (pieces.is(i, TokenKind::normal)) ids.emplace(pieces.tokens[i], i);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < pieces.tokens.size(); ++i) {
    if (!pieces.is(i, TokenKind::normal)) continue;
    const std::string_view text = pieces.tokens[i];
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) continue;
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (left != ids.end() && right != ids.end())
        pairs.push_back({left->first, right->first, pieces.scores[i], left->second, right->second});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& x, const Pair& y) {
    return x.score != y.score ? x.score > y.score : std::pair(x.a, x.b) < std::pair(y.a, y.b);
  });
  json::array merges;
  for (const Pair& pair : pairs) merges.push_back(json::array{pair.left, pair.right});
  return merges;
}

void put_sentence_pieces(const Pieces& pieces, json::object& file) {
  const bool prefix = truth_of(pieces.metadata, "ggml.add_space_prefix", true);
  json::array normalizers;
  if (prefix) normalizers.push_back(json::object{{"type", "Prepend"}, {"prepend", kMark}});
  normalizers.push_back(replace(" ", kMark));
  file["normalizer"] = json::object{{"type", "Sequence"}, {"normalizers", normalizers}};
  file["pre_tokenizer"] = nullptr;
  json::array decoders;
  decoders.push_back(replace(kMark, " "));
  for (const char* type : {"ByteFallback", "Fuse"}) decoders.push_back(json::object{{"type", type}});
  if (prefix) decoders.push_back(json::object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  file["decoder"] = json::object{{"type", "Sequence"}, {"decoders", decoders}};
  const std::string* unknown = pieces.token(pieces.id("unknown"));
  file["model"] = json::object{{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", unknown ? json::value(*unknown) : json::value(nullptr)},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", true},
                               {"byte_fallback", true},
                               {"vocab", vocab_of(pieces)},
                               {"merges", merges_of(pieces)}};
  file["post_processor"] =
      ends_around(pieces, pieces.id("bos"), pieces.id("eos"), truth_of(pieces.metadata, "ggml.add_bos_token", true),
                  truth_of(pieces.metadata, "ggml.add_eos_token", false));
}

std::string encoded(const std::vector<int64_t>& bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | static_cast<uint32_t>(i + k < bytes.size() ? bytes[i + k] & 0xff : 0);
    for (size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return text;
}

void put_unigram(const Pieces& pieces, json::object& file) {
  json::array normalizers;
  if (const auto* table = value_of<std::vector<int64_t>>(pieces.metadata, "ggml.precompiled_charsmap"))
    normalizers.push_back(json::object{{"type", "Precompiled"}, {"precompiled_charsmap", encoded(*table)}});
  if (truth_of(pieces.metadata, "ggml.remove_extra_whitespaces", false))
    normalizers.push_back(
        json::object{{"type", "Replace"}, {"pattern", json::object{{"Regex", " {2,}"}}}, {"content", " "}});
  file["normalizer"] = normalizers.empty()
                           ? json::value(nullptr)
                           : json::value(json::object{{"type", "Sequence"}, {"normalizers", normalizers}});
  const bool prefix = truth_of(pieces.metadata, "ggml.add_space_prefix", true);
  const json::object metaspace{
      {"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", prefix ? "always" : "never"}, {"split", true}};
  file["pre_tokenizer"] = metaspace;
  file["decoder"] = metaspace;
  json::array vocab;
  bool bytes = false;
  for (size_t i = 0; i < pieces.tokens.size(); ++i) {
    vocab.push_back(json::array{pieces.tokens[i], pieces.scores[i]});
    bytes = bytes || pieces.is(i, TokenKind::byte);
  }
  const int64_t unknown = pieces.id("unknown");
  file["model"] = json::object{{"type", "Unigram"},
                               {"unk_id", unknown < 0 ? json::value(nullptr) : json::value(unknown)},
                               {"vocab", std::move(vocab)},
                               {"byte_fallback", bytes}};
  file["post_processor"] =
      ends_around(pieces, pieces.id("bos"), pieces.id("eos"), truth_of(pieces.metadata, "ggml.add_bos_token", false),
                  truth_of(pieces.metadata, "ggml.add_eos_token", true));
}

void put_word_pieces(Pieces pieces, json::object& file) {
  for (size_t i = 0; i < pieces.tokens.size(); ++i) {
    std::string& text = pieces.tokens[i];
    if (!pieces.is(i, TokenKind::normal)) continue;
    if (text.starts_with(kMark))
      text.erase(0, std::string_view(kMark).size());
    else if (!(text.starts_with('[') && text.ends_with(']')))
      text.insert(0, "##");
  }
  const bool lower = truth_of(pieces.metadata, "ggml.normalizer.lowercase", true);
  file["normalizer"] = json::object{{"type", "BertNormalizer"},
                                    {"clean_text", true},
                                    {"handle_chinese_chars", true},
                                    {"strip_accents", nullptr},
                                    {"lowercase", lower}};
  file["pre_tokenizer"] = json::object{{"type", "BertPreTokenizer"}};
  file["decoder"] = json::object{{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  const std::string* unknown = pieces.token(pieces.id("unknown"));
  file["model"] = json::object{{"type", "WordPiece"},
                               {"unk_token", unknown ? *unknown : "[UNK]"},
                               {"continuing_subword_prefix", "##"},
                               {"max_input_chars_per_word", 100},
                               {"vocab", vocab_of(pieces)}};
  const int64_t separator = pieces.id("seperator");
  file["post_processor"] = ends_around(pieces, pieces.id("bos"), separator >= 0 ? separator : pieces.id("eos"),
                                       truth_of(pieces.metadata, "ggml.add_bos_token", true),
                                       truth_of(pieces.metadata, "ggml.add_eos_token", true));
}

std::string settings_text(const Pieces& pieces) {
  json::object config{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [key, setting] :
       {std::pair("bos", "bos_token"), std::pair("eos", "eos_token"), std::pair("seperator", "sep_token"),
        std::pair("unknown", "unk_token"), std::pair("padding", "pad_token"), std::pair("mask", "mask_token")})
    if (const std::string* text = pieces.token(pieces.id(key))) config[setting] = *text;
  if (const auto* text = value_of<std::string>(pieces.metadata, "chat_template")) {
    config["chat_template"] = *text;
    if (const auto* tools = value_of<std::string>(pieces.metadata, "chat_template.tool_use"))
      config["chat_template"] = json::array{json::object{{"name", "default"}, {"template", *text}},
                                            json::object{{"name", "tool_use"}, {"template", *tools}}};
  }
  return indented(config);
}

std::string generation_text(const Pieces& pieces) {
  json::object config;
  if (pieces.id("bos") >= 0) config["bos_token_id"] = pieces.id("bos");
  const auto kept = pieces.metadata.find("huggingface.eos_token_ids");
  if (const auto* ids = kept == pieces.metadata.end() ? nullptr : std::get_if<std::vector<int64_t>>(&kept->second))
    config["eos_token_id"] = json::value_from(*ids);
  else if (pieces.id("eos") >= 0)
    config["eos_token_id"] = pieces.id("eos");
  return indented(config);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> tokenizer_files(const MetadataMap& metadata) {
  const auto* model = value_of<std::string>(metadata, "ggml.model");
  if (!model || *model == "no_vocab") return {};
  const Pieces pieces(metadata);
  json::object file{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  file["added_tokens"] = added_tokens(pieces);
  if (*model == "gpt2")
    put_byte_pairs(pieces, file);
  else if (*model == "llama")
    put_sentence_pieces(pieces, file);
  else if (*model == "t5" || *model == "unigram")
    put_unigram(pieces, file);
  else if (*model == "bert")
    put_word_pieces(pieces, file);
  else
    refuse_key("ggml.model", "is '" + *model + "', a kind that is not known");
  return {{"tokenizer.json", json::serialize(file) + "\n"},
          {"tokenizer_config.json", settings_text(pieces)},
          {"generation_config.json", generation_text(pieces)}};
}

}  // namespace huggingface
