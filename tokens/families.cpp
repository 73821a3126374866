#include "tokens/families.hpp"

#include <algorithm>
#include <vector>

namespace harmonics::tokens {

namespace {

// From Radford et al. 2019.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char* kOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char* kOneDigitWithoutContractions =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kAnyDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char* kDigit = R"(\p{N})";
constexpr const char* kDigits = R"(\p{N}{1,3})";
constexpr const char* kPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr const char* kDigitTriples = R"([0-9][0-9][0-9])";
// Words that end where capital letters follow small ones.
constexpr const char* kCased = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                               R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                               R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kCasedWithContractions =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Cased letters except those that DeepSeek LLM does not list.
constexpr const char* kListedLetters =
    R"(\s?(?:(?![\x{0560}-\x{0588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C88}\x{2D00}-\x{2D2D})"
    R"(\x{A790}-\x{A7FA}\x{AB30}-\x{AB68}\x{10570}-\x{105BC}\x{16E40}-\x{16E7F})"
    R"(\x{1D400}-\x{1D7CB}\x{1DF00}-\x{1DF1E}])[\p{Lu}\p{Ll}\p{Lt}])+)";
constexpr const char* kChineseAndKorean = R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr const char* kNoPunctuation = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)";

struct Family {
  std::vector<std::string_view> names;
  std::vector<const char*> patterns;  // applied in order; each divides all words of the previous one
  bool whole_words = false;
  bool adds_bos = false;
};

const std::vector<Family>& families() {
  static const std::vector<Family> rules = {
      {{"gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "mpt", "olmo", "jais",
        "roberta-bpe", "exaone4", "modern-bert", "mellum", "trillion", "granite-docling", "a.x-4.0"},
       {kGpt2}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       {kThreeDigits},
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {kThreeDigits}},
      {{"glm4", "glm5"}, {kThreeDigits}, true},
      {{"minicpm5"}, {kDigits, kAnyDigits}, true},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan", "megrez", "grok-2", "kormo", "f2llmv2", "solar-open"},
       {kOneDigit}},
      {{"ufakzeka"}, {kOneDigitWithoutContractions}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"}, {kDigit, kGpt2}},
      {{"falcon"}, {kPunctuation, kGpt2, kDigitTriples}},
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", kDigitTriples}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kChineseAndKorean, kDigit}},
      {{"deepseek-llm"},
       {R"([\r\n])", kListedLetters,
        R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)", R"(\s+$)",
        kChineseAndKorean, kDigit}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {kDigits, R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {{"tekken"}, {kCased}, true, true},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kCasedWithContractions}},
      {{"tiny_aya", "cohere2moe"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", kCasedWithContractions}},
      {{"seed-coder"},
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S))"
        R"(|\s+)"}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kNoPunctuation}},
      {{"viking"}, {kNoPunctuation, kDigit}},
  };
  return rules;
}

}  // namespace

const char* const kGpt2Words = kGpt2;

bool set_family(Vocabulary& vocabulary, std::string_view name) {
  for (const Family& family : families()) {
    if (std::find(family.names.begin(), family.names.end(), name) == family.names.end()) continue;
    vocabulary.divisions.clear();
    for (const char* pattern : family.patterns) {
      Division division;
      division.pattern = pattern;
      vocabulary.divisions.push_back(std::move(division));
    }
    vocabulary.byte_alphabet = true;
    vocabulary.whole_words = family.whole_words;
    vocabulary.adds_bos = family.adds_bos;
    return true;
  }
  return false;
}

std::string family_names() {
  std::string names;
  for (const Family& family : families()) names += (names.empty() ? "" : ", ") + std::string(family.names.front());
  return names;
}

}  // namespace harmonics::tokens
