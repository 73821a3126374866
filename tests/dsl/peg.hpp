// Interpreter of parsing expression grammars: reads dsl/hmx/grammar.peg, recognises texts and generates random ones.
// Conventions are described at the start of that file: rules in capitals are tokens, SPACING is skipped between tokens.
#pragma once

#include <cctype>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace peg {

struct Expression {
  enum class Kind { Literal, Class, Any, Rule, Sequence, Choice, Optional, Star, Plus, Not } kind;
  std::string text;  // a literal, a rule's name, or the characters of a class
  bool negated = false;
  std::vector<Expression> parts;
};

inline bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Grammar {
 public:
  explicit Grammar(std::string_view text) : text_(text) {
    while (skip(), at_ < text_.size()) {
      const std::string rule = word();
      expect("<-");
      rules_.emplace(rule, choice());
      if (first_.empty()) first_ = rule;
    }
    check_rules();
  }

  const Expression& rule(const std::string& name) const { return rules_.at(name); }
  const std::string& first() const { return first_; }
  static bool is_token(const std::string& rule) { return std::isupper(static_cast<unsigned char>(rule[0])) != 0; }

 private:
  using Kind = Expression::Kind;

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("grammar at byte " + std::to_string(at_) + ": " + what);
  }
  void skip() {
    while (at_ < text_.size() && (std::isspace(static_cast<unsigned char>(text_[at_])) || text_[at_] == '#')) {
      at_ = text_[at_] == '#' ? std::min(text_.find('\n', at_), text_.size()) : at_ + 1;
    }
  }
  bool accept(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected " + std::string(token));
  }
  std::string word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word_character(text_[at_])) ++at_;
    if (at_ == begin) fail("expected a name");
    return std::string(text_.substr(begin, at_ - begin));
  }
  char character() {
    if (at_ >= text_.size()) fail("unexpected end");
    if (text_[at_] != '\\') return text_[at_++];
    at_ += 2;
    const char c = text_[at_ - 1];
    return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }

  Expression choice() {
    Expression result{Kind::Choice, {}, false, {sequence()}};
    while (accept("/")) result.parts.push_back(sequence());
    return result.parts.size() == 1 ? result.parts[0] : result;
  }
  bool at_rule_head() {
    const size_t before = at_;
    if (at_ >= text_.size() || !is_word_character(text_[at_])) return false;
    word();
    const bool head = accept("<-");
    at_ = before;
    return head;
  }
  Expression sequence() {
    Expression result{Kind::Sequence, {}, false, {}};
    while (skip(), at_ < text_.size() && text_[at_] != '/' && text_[at_] != ')' && !at_rule_head()) {
      result.parts.push_back(suffixed());
    }
    if (result.parts.empty()) fail("empty sequence");
    return result.parts.size() == 1 ? result.parts[0] : result;
  }
  Expression suffixed() {
    if (accept("!")) return {Kind::Not, {}, false, {suffixed()}};
    Expression inner = primary();
    if (accept("?")) return {Kind::Optional, {}, false, {inner}};
    if (accept("*")) return {Kind::Star, {}, false, {inner}};
    if (accept("+")) return {Kind::Plus, {}, false, {inner}};
    return inner;
  }
  Expression primary() {
    if (accept("(")) {
      Expression inner = choice();
      expect(")");
      return inner;
    }
    if (accept("'")) {
      Expression literal{Kind::Literal, {}, false, {}};
      while (text_.substr(at_, 1) != "'") literal.text += character();
      ++at_;
      return literal;
    }
    if (accept("[")) return character_class();
    if (accept(".")) return {Kind::Any, {}, false, {}};
    return {Kind::Rule, word(), false, {}};
  }
  Expression character_class() {
    Expression result{Kind::Class, {}, false, {}};
    if (text_.substr(at_, 1) == "^") result.negated = true, ++at_;
    while (text_.substr(at_, 1) != "]") {
      const char first = character();
      const bool range = text_.substr(at_, 1) == "-" && text_.substr(at_ + 1, 1) != "]";
      if (range) ++at_;
      const char last = range ? character() : first;
      for (int c = first; c <= last; ++c) result.text += static_cast<char>(c);
    }
    ++at_;
    return result;
  }

  void check(const Expression& expression) const {
    if (expression.kind == Kind::Rule && !rules_.count(expression.text)) {
      throw std::runtime_error("grammar: no rule " + expression.text);
    }
    for (const Expression& part : expression.parts) check(part);
  }
  void check_rules() const {
    for (const auto& [name, expression] : rules_) check(expression);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, Expression> rules_;
  std::string first_;
};

class Matcher {
 public:
  Matcher(const Grammar& grammar, std::string_view text) : grammar_(grammar), text_(text) {}

  bool accepts() const { return match(grammar_.rule(grammar_.first()), 0, false).has_value(); }

 private:
  using Kind = Expression::Kind;
  using End = std::optional<size_t>;

  size_t spaced(size_t at, bool in_token) const { return in_token ? at : *match(grammar_.rule("SPACING"), at, true); }

  End match(const Expression& expression, size_t at, bool in_token) const {
    switch (expression.kind) {
      case Kind::Literal:
        return literal(expression.text, spaced(at, in_token), in_token);
      case Kind::Class: {
        at = spaced(at, in_token);
        if (at >= text_.size()) return std::nullopt;
        const bool listed = expression.text.find(text_[at]) != std::string::npos;
        return listed != expression.negated ? End(at + 1) : std::nullopt;
      }
      case Kind::Any:
        at = spaced(at, in_token);
        return at < text_.size() ? End(at + 1) : std::nullopt;
      case Kind::Rule: {
        const bool token = !in_token && Grammar::is_token(expression.text);
        return match(grammar_.rule(expression.text), token ? spaced(at, false) : at, in_token || token);
      }
      case Kind::Sequence: {
        End end = at;
        for (const Expression& part : expression.parts) {
          end = match(part, *end, in_token);
          if (!end) return std::nullopt;
        }
        return end;
      }
      case Kind::Choice:
        for (const Expression& part : expression.parts) {
          if (const End end = match(part, at, in_token)) return end;
        }
        return std::nullopt;
      case Kind::Optional:
        return match(expression.parts[0], at, in_token).value_or(at);
      case Kind::Star:
        return repeat(expression.parts[0], at, in_token);
      case Kind::Plus: {
        const End first = match(expression.parts[0], at, in_token);
        return first ? End(repeat(expression.parts[0], *first, in_token)) : std::nullopt;
      }
      case Kind::Not:
        return match(expression.parts[0], at, in_token) ? std::nullopt : End(at);
    }
    return std::nullopt;
  }

  End literal(const std::string& literal, size_t at, bool in_token) const {
    if (text_.substr(at, literal.size()) != literal) return std::nullopt;
    const size_t end = at + literal.size();
    const bool goes_on = is_word_character(literal.back()) && end < text_.size() && is_word_character(text_[end]);
    return !in_token && goes_on ? std::nullopt : End(end);
  }

  size_t repeat(const Expression& expression, size_t at, bool in_token) const {
    for (End end = match(expression, at, in_token); end && *end > at; end = match(expression, at, in_token)) at = *end;
    return at;
  }

  const Grammar& grammar_;
  std::string_view text_;
};

// Generates random texts of the grammar. Names and numbers come from short lists, so that keywords occur as names.
class Writer {
 public:
  Writer(const Grammar& grammar, uint32_t seed) : grammar_(grammar), random_(seed) {}

  std::string sentence() {
    out_.clear();
    write(grammar_.rule(grammar_.first()), 0, false);
    return out_;
  }
  size_t below(size_t n) { return random_() % n; }
  const std::string& one_of(const std::vector<std::string>& words) { return words[below(words.size())]; }

 private:
  using Kind = Expression::Kind;

  void space(bool in_token) {
    static const std::vector<std::string> spaces = {" ",    " ", " ", " ", " ", "", "\n", "\t", "\r\n", " // c -> ;\n",
                                                    "# {\n"};
    if (!in_token) out_ += one_of(spaces);
  }
  void write(const Expression& expression, int depth, bool in_token) {
    const bool deep = depth > 24;
    switch (expression.kind) {
      case Kind::Literal:
        space(in_token), out_ += expression.text;
        return;
      case Kind::Class:
        out_ += expression.negated ? 'q' : expression.text[below(expression.text.size())];
        return;
      case Kind::Any:
        out_ += static_cast<char>(' ' + below(95));
        return;
      case Kind::Rule:
        return rule(expression.text, depth, in_token);
      case Kind::Sequence:
        for (const Expression& part : expression.parts) write(part, depth + 1, in_token);
        return;
      case Kind::Choice:
        return write(expression.parts[below(expression.parts.size())], depth + 1, in_token);
      case Kind::Plus:
        write(expression.parts[0], depth + 1, in_token);
        [[fallthrough]];
      case Kind::Star:
        for (size_t n = deep ? 0 : below(4); n > 0; --n) write(expression.parts[0], depth + 1, in_token);
        return;
      case Kind::Optional:
        if (!deep && below(2)) write(expression.parts[0], depth + 1, in_token);
        return;
      case Kind::Not:
        return;
    }
  }
  void rule(const std::string& name, int depth, bool in_token) {
    static const std::vector<std::string> names = {"a",   "b",    "x1",    "_",     "loss", "relu", "if",     "else",
                                                   "for", "true", "until", "steps", "e3",   "ms",   "layers", "epochs"};
    static const std::vector<std::string> integers = {"1", "2", "10", "784", "007", "0"};
    const bool token = !in_token && Grammar::is_token(name);
    if (token) space(false);
    if (name == "IDENT" && below(8)) {
      out_ += one_of(names);
    } else if (name == "INT") {
      out_ += one_of(integers);
    } else {
      write(grammar_.rule(name), depth + 1, in_token || token);
    }
  }

  const Grammar& grammar_;
  std::mt19937 random_;
  std::string out_;
};

}  // namespace peg
