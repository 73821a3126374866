#include "tokens/normalizers.hpp"

#include "tokens/unicode.hpp"

namespace harmonics::tokens {

namespace {

std::string without(std::string_view text, bool (*belongs)(char32_t)) {
  std::string out;
  for (const char32_t c : characters(text))
    if (!belongs(c)) append(out, c);
  return out;
}

std::string stripped(std::string_view text, bool left, bool right) {
  std::u32string all = characters(text);
  size_t begin = 0, end = all.size();
  while (left && begin < end && is_white_space(all[begin])) ++begin;
  while (right && end > begin && is_white_space(all[end - 1])) --end;
  std::string out;
  for (size_t i = begin; i < end; ++i) append(out, all[i]);
  return out;
}

std::string single_spaces(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string as_bert(const Normalizer& rule, std::string text) {
  std::string out;
  for (const char32_t c : characters(text)) {
    if (rule.clean) {
      const bool tab_or_break = c == '\t' || c == '\n' || c == '\r';
      if (!tab_or_break && (c == 0 || c == 0xFFFD || is_other(c))) continue;
      if (tab_or_break || is_white_space(c)) {
        out += ' ';
        continue;
      }
    }
    const bool apart = rule.chinese && is_ideograph(c);
    if (apart) out += ' ';
    append(out, c);
    if (apart) out += ' ';
  }
  if (rule.accents) out = without(normal_form(out, NormalForm::nfd), is_nonspacing_mark);
  return rule.lowercase ? lowercase(out) : out;
}

}  // namespace

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  if (what.empty()) return std::string(text);
  std::string out;
  size_t at = 0;
  for (size_t found; (found = text.find(what, at)) != std::string_view::npos; at = found + what.size()) {
    out += text.substr(at, found - at);
    out += with;
  }
  out += text.substr(at);
  return out;
}

Normalization::Normalization(const std::vector<Normalizer>& steps) {
  for (const Normalizer& rule : steps) {
    Step step{rule, nullptr, nullptr};
    if (rule.kind == NormalizerKind::replace && rule.expression) step.pattern = std::make_unique<Pattern>(rule.text);
    if (rule.kind == NormalizerKind::charsmap && !rule.text.empty())
      step.charsmap = std::make_unique<Charsmap>(rule.text);
    steps_.push_back(std::move(step));
  }
}

std::string Normalization::apply(const Step& step, std::string text) {
  const Normalizer& rule = step.rule;
  switch (rule.kind) {
    case NormalizerKind::nfc:
      return normal_form(text, NormalForm::nfc);
    case NormalizerKind::nfd:
      return normal_form(text, NormalForm::nfd);
    case NormalizerKind::nfkc:
      return normal_form(text, NormalForm::nfkc);
    case NormalizerKind::nfkd:
      return normal_form(text, NormalForm::nfkd);
    case NormalizerKind::lowercase:
      return lowercase(text);
    case NormalizerKind::strip_accents:
      return without(text, is_mark);
    case NormalizerKind::strip:
      return stripped(text, rule.left, rule.right);
    case NormalizerKind::spaces:
      return single_spaces(text);
    case NormalizerKind::prepend:
      return text.empty() ? text : rule.text + text;
    case NormalizerKind::replace: {
      if (!step.pattern) return replaced(text, rule.text, rule.with);
      std::string out;
      for (const Piece& piece : step.pattern->divide(text)) out += piece.match ? rule.with : std::string(piece.text);
      return out;
    }
    case NormalizerKind::bert:
      return as_bert(rule, std::move(text));
    case NormalizerKind::charsmap:
      return step.charsmap ? (*step.charsmap)(text) : text;
  }
  return text;
}

std::string Normalization::operator()(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = apply(step, std::move(out));
  return out;
}

}  // namespace harmonics::tokens
