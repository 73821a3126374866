#include "tokens/divisions.hpp"

#include "formats/utf8.hpp"
#include "tokens/families.hpp"
#include "tokens/unicode.hpp"

namespace harmonics::tokens {

namespace {

// Returns each character of a class as a separate match.
template <typename Belongs>
std::vector<Piece> characters_apart(std::string_view text, Belongs belongs) {
  std::vector<Piece> pieces;
  size_t from = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (belongs(point.value)) {
      if (at > from) pieces.push_back({text.substr(from, at - from), false});
      pieces.push_back({text.substr(at, point.length), true});
      from = at + point.length;
    }
    at += point.length;
  }
  if (from < text.size()) pieces.push_back({text.substr(from), false});
  return pieces;
}

std::vector<Piece> literal_pieces(std::string_view text, const std::string& what) {
  std::vector<Piece> pieces;
  size_t from = 0;
  for (size_t found; !what.empty() && (found = text.find(what, from)) != std::string_view::npos;
       from = found + what.size()) {
    if (found > from) pieces.push_back({text.substr(from, found - from), false});
    pieces.push_back({text.substr(found, what.size()), true});
  }
  if (from < text.size()) pieces.push_back({text.substr(from), false});
  return pieces;
}

void keep(const std::vector<Piece>& pieces, Behaviour behaviour, std::vector<std::string>& words) {
  bool before = false;  // whether the previous piece is a match
  bool any = false;
  for (const Piece& piece : pieces) {
    const bool match = piece.match;
    bool joins = false;
    switch (behaviour) {
      case Behaviour::isolated:
        break;
      case Behaviour::removed:
        if (match) continue;
        break;
      case Behaviour::with_previous:
        joins = match && any && !before;
        break;
      case Behaviour::with_next:
        joins = !match && any && before;
        break;
      case Behaviour::contiguous:
        joins = any && match == before;
        break;
    }
    if (joins)
      words.back() += piece.text;
    else
      words.emplace_back(piece.text);
    before = match;
    any = true;
  }
}

std::string marked(const Division& rule, std::string_view word, bool first) {
  std::string text;
  for (const char c : word)
    if (c == ' ')
      text += rule.mark;
    else
      text += c;
  const bool wanted = rule.prepend == Prepend::always || (rule.prepend == Prepend::first && first);
  return wanted && text.compare(0, rule.mark.size(), rule.mark) != 0 ? rule.mark + text : text;
}

}  // namespace

WordDivision::WordDivision(const std::vector<Division>& steps) {
  for (const Division& rule : steps) {
    Step step{rule, nullptr};
    if (rule.kind == DivisionKind::split && !rule.literal) step.pattern = std::make_unique<Pattern>(rule.pattern);
    if (rule.kind == DivisionKind::byte_level && rule.words) step.pattern = std::make_unique<Pattern>(kGpt2Words);
    steps_.push_back(std::move(step));
  }
}

void WordDivision::apply(const Step& step, std::string word, bool first, std::vector<std::string>& words) {
  const Division& rule = step.rule;
  switch (rule.kind) {
    case DivisionKind::split: {
      std::vector<Piece> pieces = rule.literal ? literal_pieces(word, rule.pattern) : step.pattern->divide(word);
      if (rule.invert)
        for (Piece& piece : pieces) piece.match = !piece.match;
      return keep(pieces, rule.behaviour, words);
    }
    case DivisionKind::byte_level: {
      if (rule.prefix && word[0] != ' ') word.insert(0, 1, ' ');
      if (!step.pattern) return words.push_back(std::move(word));
      return keep(step.pattern->divide(word), Behaviour::isolated, words);
    }
    case DivisionKind::metaspace: {
      const std::string text = marked(rule, word, first);
      if (!rule.words) return words.push_back(text);
      return keep(literal_pieces(text, rule.mark), Behaviour::with_next, words);
    }
    case DivisionKind::bert:
      for (const Piece& piece : characters_apart(word, is_white_space))
        if (!piece.match) keep(characters_apart(piece.text, is_punctuation_of_bert), Behaviour::isolated, words);
      return;
    case DivisionKind::digits:
      return keep(characters_apart(word, is_number), rule.individual ? Behaviour::isolated : Behaviour::contiguous,
                  words);
    case DivisionKind::punctuation:
      return keep(characters_apart(word, is_punctuation_of_bert), rule.behaviour, words);
    case DivisionKind::whitespace:
      for (const Piece& piece : characters_apart(word, is_white_space))
        if (!piece.match) keep(characters_apart(piece.text, is_of_word), Behaviour::contiguous, words);
      return;
    case DivisionKind::whitespace_split:
      return keep(characters_apart(word, is_white_space), Behaviour::removed, words);
    case DivisionKind::length: {
      std::string part;
      uint32_t count = 0;
      for (const char32_t c : characters(word)) {
        append(part, c);
        if (++count != rule.count) continue;
        words.push_back(std::move(part));
        part.clear();
        count = 0;
      }
      if (!part.empty()) words.push_back(std::move(part));
      return;
    }
  }
}

std::vector<std::string> WordDivision::divide(std::string_view text, bool first) const {
  std::vector<std::string> words = {std::string(text)};
  for (const Step& step : steps_) {
    std::vector<std::string> finer;
    for (size_t i = 0; i < words.size(); ++i)
      if (!words[i].empty()) apply(step, std::move(words[i]), first && i == 0, finer);
    // Behind text that the step removed, the first word does not begin the input.
    const bool adds = step.rule.kind == DivisionKind::byte_level || step.rule.kind == DivisionKind::metaspace;
    if (!adds && (finer.empty() || !text.starts_with(finer[0]))) first = false;
    words = std::move(finer);
  }
  std::erase_if(words, [](const std::string& word) { return word.empty(); });
  return words;
}

}  // namespace harmonics::tokens
