#include "patterns.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include <harmonics/error.hpp>

namespace gguf {

using harmonics::Error;
using harmonics::ErrorKind;

namespace {

// Contractions, letters, numbers and other characters with a space in front, white space (Radford et al. 2019).
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char* kOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char* kDigit = R"(\p{N})";
constexpr const char* kPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr const char* kDigitTriples = R"([0-9][0-9][0-9])";

// The deepest recursion and the most steps of one match; words of the patterns above take few.
constexpr uint32_t kMostSteps = 10'000'000;

}  // namespace

const std::vector<WordRule>& word_rules() {
  static const std::vector<WordRule> rules = {
      {{"gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "mpt", "olmo", "jais",
        "roberta-bpe", "exaone4", "modern-bert"},
       {kGpt2}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "midm-2.0", "lfm2"}, {kThreeDigits}, true, true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kThreeDigits}},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan", "megrez"}, {kOneDigit}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"}, {kDigit, kGpt2}},
      {{"falcon"}, {kPunctuation, kGpt2, kDigitTriples}},
      {{"default"}, {kPunctuation, kGpt2, R"(\p{N}+)", kDigitTriples}},
      {{"deepseek-coder"},
       {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
        R"(\p{N})"}},
      {{"deepseek-v3"},
       {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
  };
  return rules;
}

const WordRule* find_word_rule(std::string_view name) {
  for (const WordRule& rule : word_rules())
    if (std::find(rule.names.begin(), rule.names.end(), name) != rule.names.end()) return &rule;
  return nullptr;
}

struct WordDivision::Pattern {
  explicit Pattern(const char* text) {
    int error = 0;
    size_t offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                         &offset, nullptr);
    if (!code)
      throw Error(ErrorKind::Plugin, "the pattern " + std::string(text) + " is malformed at " + std::to_string(offset));
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it cannot, the pattern is interpreted
    limits = pcre2_match_context_create(nullptr);
    if (limits) pcre2_set_match_limit(limits, kMostSteps);
  }
  ~Pattern() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
};

WordDivision::WordDivision(const std::vector<const char*>& patterns) {
  for (const char* pattern : patterns) patterns_.push_back(std::make_unique<Pattern>(pattern));
}
WordDivision::~WordDivision() = default;

std::vector<std::string_view> WordDivision::divide(std::string_view text) const {
  std::vector<std::string_view> words = {text};
  for (const auto& pattern : patterns_) {
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
        pcre2_match_data_create_from_pattern(pattern->code, nullptr), pcre2_match_data_free);
    if (!match) throw Error(ErrorKind::Memory, "no memory to divide a text into words");
    std::vector<std::string_view> finer;
    for (const std::string_view word : words) {
      size_t at = 0;
      const auto* bytes = reinterpret_cast<PCRE2_SPTR>(word.data());
      while (at < word.size()) {
        const int found =
            pcre2_match(pattern->code, bytes, word.size(), at, PCRE2_NO_UTF_CHECK, match.get(), pattern->limits);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0)
          throw Error(ErrorKind::Usage,
                      "the text cannot be divided into words: PCRE2 gives error " + std::to_string(found));
        const size_t* bounds = pcre2_get_ovector_pointer(match.get());
        if (bounds[1] == bounds[0]) break;  // the patterns match no empty text
        if (bounds[0] > at) finer.push_back(word.substr(at, bounds[0] - at));
        finer.push_back(word.substr(bounds[0], bounds[1] - bounds[0]));
        at = bounds[1];
      }
      if (at < word.size()) finer.push_back(word.substr(at));
    }
    words = std::move(finer);
  }
  return words;
}

}  // namespace gguf
