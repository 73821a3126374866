#include "tokens/patterns.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <harmonics/error.hpp>

namespace harmonics::tokens {

namespace {

// Limit of PCRE2's match steps. The known families need few.
constexpr uint32_t kMostSteps = 10'000'000;

}  // namespace

struct Pattern::Code {
  explicit Code(const std::string& text) {
    int error = 0;
    size_t offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset,
                         nullptr);
    if (!code)
      throw Error(ErrorKind::Weights,
                  "the regular expression " + text + " cannot be read at its character " + std::to_string(offset));
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
  size_t at = 0, from = 0;  // start of the text not yet in a piece; start of the next match
  while (from < text.size()) {
    const int found =
        pcre2_match(code_->code, bytes, text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), code_->limits);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw Error(ErrorKind::Usage, "the text cannot be split into words: PCRE2 error " + std::to_string(found));
    const size_t* bounds = pcre2_get_ovector_pointer(match.get());
    if (bounds[1] <= bounds[0]) {  // skip empty matches
      from = bounds[0] + 1;
      while (from < text.size() && (text[from] & 0xC0) == 0x80) ++from;
      continue;
    }
    if (bounds[0] > at) pieces.push_back({text.substr(at, bounds[0] - at), false});
    pieces.push_back({text.substr(bounds[0], bounds[1] - bounds[0]), true});
    at = from = bounds[1];
  }
  if (at < text.size()) pieces.push_back({text.substr(at), false});
  return pieces;
}

}  // namespace harmonics::tokens
