#include "tokens/patterns.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>

#include <harmonics/error.hpp>

namespace harmonics::tokens {

namespace {

// Limit of PCRE2's match steps. The known families need few.
constexpr uint32_t kMostSteps = 10'000'000;

// White space and all else, as parts of a class: PCRE2's \s also has U+180E, which is white space no more.
constexpr const char* kSpace =
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr const char* kNoSpace =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}"
    "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}";
// Characters of words, likewise: PCRE2's \w lacks marks and connectors.
constexpr const char* kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{"
    "1F150}-\\x{1F169}\\x{1F170}-\\x{"
    "1F189}";

// Converts an expression from Oniguruma's syntax, in which files of tokenizers have them, to PCRE2's: white space,
// words, scripts, and sets inside sets, which are united with them or, as [A&&[^B]], excluded.
class Conversion {
 public:
  explicit Conversion(const std::string& text) : text_(text) {}
  std::string operator()() {
    std::string out;
    while (at_ < text_.size())
      if (text_[at_] == '[')
        out += set();
      else if (text_[at_] == '\\')
        out += escape();
      else
        out += text_[at_++];
    return out;
  }

 private:
  std::string escape() {  // outside of sets
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    const std::string word = std::string("[") + kWord + "]";
    std::string out;
    if (c == 's' || c == 'S')
      out = std::string(c == 's' ? "[" : "[^") + kSpace + "]";
    else if (c == 'w' || c == 'W')
      out = std::string(c == 'w' ? "[" : "[^") + kWord + "]";
    else if (c == 'b')
      out = "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
    else
      return escape_in_set();
    at_ += 2;
    return out;
  }
  std::string escape_in_set() {
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    const std::string whole = text_.substr(at_, 2);
    at_ += 2;
    if (c == 's') return kSpace;
    if (c == 'S') return kNoSpace;
    if (c == 'w') return kWord;
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
    // Since this version a script's name alone also stands for characters that the script shares with others.
    for (const std::string_view script :
         {"Han", "Hiragana", "Katakana", "Hangul", "Latin", "Greek", "Cyrillic", "Arabic", "Hebrew", "Thai",
          "Devanagari", "Bengali", "Bopomofo", "Armenian", "Georgian"})
      if ((c == 'p' || c == 'P') && std::string_view(text_).substr(at_).starts_with("{" + std::string(script) + "}")) {
        at_ += script.size() + 2;
        return whole + "{sc:" + std::string(script) + "}";
      }
#endif
    return whole;
  }
  [[noreturn]] void fail() const {
    throw Error(ErrorKind::Weights, "the regular expression " + text_ + " has sets inside sets at its character " +
                                        std::to_string(at_) +
                                        "; a set may hold plain sets, three deep, or end with one excluded set");
  }
  std::string set() {
    std::string excluded;
    const std::string members = members_of(0, &excluded);
    return excluded.empty() ? members : "(?:(?!" + excluded + ")" + members + ")";
  }
  // Reads a set, with its brackets. `depth`: of sets around it; `excluded`: takes a set that is excluded.
  std::string members_of(int depth, std::string* excluded = nullptr) {
    if (depth > 2) fail();
    std::string out(1, text_[at_++]);
    if (at_ < text_.size() && text_[at_] == '^') out += text_[at_++];
    if (at_ < text_.size() && text_[at_] == ']') out += text_[at_++];
    while (at_ < text_.size() && text_[at_] != ']') {
      if (text_.compare(at_, 2, "[:") == 0) {
        const size_t end = std::min(text_.find(":]", at_), text_.size() - 2) + 2;
        const std::string named = text_.substr(at_, end - at_);
        out += named == "[:punct:]" ? "\\p{P}\\p{S}" : named;
        at_ = end;
      } else if (text_.compare(at_, 4, "&&[^") == 0 && excluded && excluded->empty() && out[1] != '^') {
        at_ += 2;
        *excluded = members_of(depth + 1).erase(1, 1);
        if (at_ >= text_.size() || text_[at_] != ']') fail();
      } else if (text_.compare(at_, 2, "&&") == 0) {
        fail();
      } else if (text_[at_] == '[') {
        const std::string inner = members_of(depth + 1);
        if (inner.size() < 3 || inner[1] == '^') fail();
        out += inner.substr(1, inner.size() - 2);
      } else if (text_[at_] == '\\') {
        out += escape_in_set();
      } else {
        out += text_[at_++];
      }
    }
    if (at_ < text_.size()) out += text_[at_++];
    return out;
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

struct Pattern::Code {
  explicit Code(const std::string& text) {
    int error = 0;
    size_t offset = 0;
    const std::string converted = Conversion(text)();
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(converted.data()), converted.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr);
    if (!code)
      throw Error(ErrorKind::Weights,
                  "the regular expression " + converted + " cannot be read at its character " + std::to_string(offset));
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if unsupported, the pattern is interpreted
    limits = pcre2_match_context_create(nullptr);
    if (limits) pcre2_set_match_limit(limits, kMostSteps);
  }
  ~Code() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
};

Pattern::Pattern(const std::string& text) : code_(std::make_unique<Code>(text)) {}
Pattern::~Pattern() = default;

std::vector<Piece> Pattern::divide(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create_from_pattern(code_->code, nullptr), pcre2_match_data_free);
  if (!match) throw Error(ErrorKind::Memory, "not enough memory to split the text into words");
  std::vector<Piece> pieces;
  const auto* bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t at = 0, from = 0;     // start of the text not yet in a piece; start of the next match
  std::optional<size_t> last;  // end of the last match
  while (!text.empty() && from <= text.size()) {
    const int found =
        pcre2_match(code_->code, bytes, text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), code_->limits);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw Error(ErrorKind::Usage, "the text cannot be split into words: PCRE2 error " + std::to_string(found));
    const size_t* bounds = pcre2_get_ovector_pointer(match.get());
    if (bounds[1] < bounds[0]) break;                   // by \K
    if (bounds[1] == bounds[0] && last == bounds[1]) {  // an empty match directly behind another match does not count
      ++from;
      while (from < text.size() && (text[from] & 0xC0) == 0x80) ++from;
      continue;
    }
    last = bounds[1];
    if (bounds[0] > at) pieces.push_back({text.substr(at, bounds[0] - at), false});
    pieces.push_back({text.substr(bounds[0], bounds[1] - bounds[0]), true});
    at = from = bounds[1];
  }
  if (at < text.size()) pieces.push_back({text.substr(at), false});
  return pieces;
}

}  // namespace harmonics::tokens
