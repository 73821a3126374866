#include "dsl/hmx/parser.hpp"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <utility>

#include "dsl/hmx/rules.hpp"
#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::hmx {

namespace {

struct Block {
  std::string what;  // "cycle", "harmonic 'mnist'"
  Span keyword;
  size_t open = 0;  // offset of its '{'
  bool has_flow = false;
};

// Returns a placeholder for an unparsed flow, so that the next lines can still continue it.
FlowLine unread_flow() {
  FlowLine flow;
  flow.broken = true;
  return flow;
}

class Parser {
 public:
  explicit Parser(const SourceText& source) : reader_(source), lexer_(reader_.lexer), source_(source) {}

  std::vector<Harmonic> file();
  std::vector<Error> take_errors() { return reader_.take_errors(); }
  Unread take_unread() { return reader_.take_unread(); }

 private:
  Harmonic harmonic(const Token& keyword);
  void stray_text(const std::vector<Harmonic>& before);
  void statement(Block& block);
  void declaration(DeclarationKind kind);
  Cycle cycle(const Token& keyword);
  void conditions(Cycle& cycle);
  bool skip_condition();
  void step(Block& block, std::vector<FlowStep>& steps);
  std::shared_ptr<Conditional> conditional();
  void misplaced(Block& block, const std::string& word);

  // Expects '{' after `after`. Adds `notes` to the error otherwise.
  void open(Block& block, const std::string& after, Notes notes = {});
  template <typename Read>
  void body(Block& block, const Read& read_statement);
  bool ends(const Block& block);
  void missing_brace();
  void note_indentation(const Block& block, Span brace);
  void skip_to_brace();

  // Reports a keyword that resembles one of `words`, and returns that word.
  std::string misspelt(const std::vector<std::string>& words);

  Reader reader_;
  Lexer& lexer_;
  const SourceText& source_;
  std::deque<Block> blocks_;  // a deque: statements hold references to their block
  std::string indentation_hint_;
  bool brace_in_doubt_ = false;
  Harmonic* harmonic_ = nullptr;  // being parsed
  bool kept_ = false;             // harmonic_ already has the declaration that the broken statement belongs to
};

std::string Parser::misspelt(const std::vector<std::string>& words) {
  Lexer ahead = lexer_;
  const auto word = ahead.name();
  if (!word || !(ahead.at_name() || ahead.at("{") || ahead.at("(") || ahead.at_reserved())) return {};
  const auto meant = nearest(lowered(word->text), words);
  if (!meant || *meant == word->text) return {};
  reader_.complain(ErrorKind::Syntax, reader_.span(*word), "unknown statement " + quoted(word->text),
                   {"did you mean '" + *meant + "'?"});
  lexer_.skip();
  return *meant;
}

// ---- blocks

void Parser::skip_to_brace() {
  const Lexer start = lexer_;
  while (!lexer_.at_end() && !lexer_.at("{") && !lexer_.at("}") && !lexer_.at(";") && !lexer_.at_reserved()) {
    lexer_.skip();
  }
  if (lexer_.position() > start.position()) reader_.leave_out(start, true);
}

void Parser::open(Block& block, const std::string& after, Notes notes) {
  if (!lexer_.at("{")) {
    const std::string message = "expected '{' after " + after;
    const bool forgotten = lexer_.at_end() || lexer_.on_new_line() || lexer_.at_reserved();
    try {
      if (forgotten) reader_.fail(reader_.behind_previous(), message);
      reader_.unexpected("'{' after " + after, std::move(notes));
    } catch (const Recover&) {
      if (!forgotten) skip_to_brace();
      if (!lexer_.at("{")) reader_.doubt_blocks();
      if (!forgotten && !lexer_.at("{")) throw;
    }
  }
  if (blocks_.size() > kDeepestNesting) {
    reader_.fail(reader_.here(), "blocks nest deeper than " + std::to_string(kDeepestNesting));
  }
  block.open = lexer_.at("{") ? lexer_.position() : lexer_.previous_end();
  lexer_.accept("{");
}

void Parser::missing_brace() {
  reader_.doubt_blocks();
  if (brace_in_doubt_) return;
  Notes notes;
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    notes.push_back("note: the '{' of " + block->what + " is at " + reader_.place(source_.span(block->open, 1)));
    if (notes.size() == 4) break;
  }
  if (!indentation_hint_.empty()) notes.push_back(indentation_hint_);
  const std::string before = lexer_.at_end() ? "the end of the file" : quoted(lexer_.peek().text);
  reader_.complain(ErrorKind::Syntax, reader_.behind_previous(), "expected '}' before " + before, std::move(notes));
}

bool Parser::ends(const Block& block) {
  const Span brace = reader_.here();
  if (lexer_.accept("}")) {
    note_indentation(block, brace);
    return true;
  }
  const bool outdented =
      lexer_.at_reserved() && lexer_.on_new_line() && brace.column <= block.keyword.column && blocks_.size() > 1;
  if (!lexer_.at_end() && !lexer_.at_word("harmonic") && !outdented) return false;
  missing_brace();
  return true;
}

// Notes a '}' at the beginning of a line that is not aligned with its block: a brace is probably missing above.
void Parser::note_indentation(const Block& block, Span brace) {
  const std::string_view closing = source_.line(brace.line), opening = source_.line(block.keyword.line);
  const size_t closing_indent = closing.find_first_not_of(" \t"), opening_indent = opening.find_first_not_of(" \t");
  if (brace.line == block.keyword.line || closing_indent != brace.column - 1) return;
  if (closing.substr(0, closing_indent) == opening.substr(0, opening_indent) || !indentation_hint_.empty()) return;
  indentation_hint_ = "look first at " + reader_.place(brace) + ": that '}' ends the " + block.what + " of " +
                      reader_.place(block.keyword) + ", which is indented differently";
}

template <typename Read>
void Parser::body(Block& block, const Read& read_statement) {
  blocks_.push_back(block);
  while (!ends(block)) {
    const Lexer start = lexer_;
    try {
      if (lexer_.at(";")) {
        reader_.complain(ErrorKind::Syntax, reader_.here(), "a ';' without a statement", {"remove it"});
        lexer_.accept(";");
      } else {
        read_statement();
      }
    } catch (const Recover&) {
      reader_.recover(start.position());
      reader_.leave_out(start, std::exchange(kept_, false));
    }
  }
  blocks_.pop_back();
}

// ---- file, harmonic, statement

std::vector<Harmonic> Parser::file() {
  std::vector<Harmonic> harmonics;
  if (lexer_.at_end()) {
    reader_.complain(ErrorKind::Syntax, source_.span(0, 1), "the file holds no harmonic",
                     {"write for example 'harmonic net { producer x; layer y {10}; x -> y; }'"});
  }
  while (!lexer_.at_end()) {
    const Token keyword = lexer_.peek();
    const Lexer start = lexer_;
    try {
      if (!lexer_.accept_word("harmonic") && misspelt({"harmonic"}).empty()) {
        stray_text(harmonics);
      } else {
        harmonics.push_back(harmonic(keyword));
      }
    } catch (const Recover&) {
      while (!lexer_.at_end() && !lexer_.at_word("harmonic")) lexer_.skip();
      reader_.leave_out(start);
    }
  }
  return harmonics;
}

void Parser::stray_text(const std::vector<Harmonic>& before) {
  reader_.doubt_blocks();
  const std::string shown = quoted(lexer_.peek().text);
  Notes notes;
  if (!before.empty())
    notes.push_back("note: harmonic '" + before.back().name.text + "' ends at " +
                    reader_.place(source_.span(lexer_.previous_end() - 1, 1)));
  if (lexer_.at("}")) reader_.fail(reader_.here(), "a '}' that closes nothing", std::move(notes));
  if (lexer_.at_reserved()) {
    notes.insert(notes.begin(), "statements belong inside 'harmonic NAME { ... }'");
    reader_.fail(reader_.here(), shown + " outside of a harmonic", std::move(notes));
  }
  if (!before.empty()) reader_.unexpected("'harmonic' or the end of the file", std::move(notes));
  reader_.unexpected("'harmonic'", {"a file begins with 'harmonic NAME {'"});
}

Harmonic Parser::harmonic(const Token& keyword) {
  Harmonic harmonic;
  harmonic_ = &harmonic;
  Block block{"harmonic", reader_.span(keyword)};
  try {
    harmonic.name = reader_.expect_name("a name for the harmonic", {"write 'harmonic NAME {'"});
    block.what = "harmonic '" + harmonic.name.text + "'";
  } catch (const Recover&) {
    skip_to_brace();
    if (!lexer_.at("{")) throw;
  }
  open(block, block.what);
  body(block, [&] { statement(blocks_.back()); });
  harmonic.span = reader_.span(keyword);
  return harmonic;
}

void Parser::declaration(DeclarationKind kind) {
  Lexer ahead = lexer_;
  const bool is_whole = ahead.name() && !(ahead.touches_previous() && (ahead.at("-") || ahead.at(".")));
  Declaration declaration{kind, {}, {}, false, std::nullopt};
  try {
    read_declaration(reader_, declaration);
  } catch (const Recover&) {
    kept_ = is_whole;
    if (kept_) harmonic_->declarations.push_back({kind, std::move(declaration.name), {}, false, std::nullopt, true});
    throw;
  }
  harmonic_->declarations.push_back(std::move(declaration));
}

void Parser::statement(Block& block) {
  reader_.count_node();
  const Token keyword = lexer_.peek();
  std::string word(lexer_.at_reserved() ? keyword.text : std::string_view());
  if (word.empty()) {
    word = misspelt({"producer", "consumer", "layer", "cycle"});
  } else {
    lexer_.skip();
  }
  if (word == "producer") {
    declaration(DeclarationKind::Producer);
  } else if (word == "consumer") {
    declaration(DeclarationKind::Consumer);
  } else if (word == "layer") {
    declaration(DeclarationKind::Layer);
  } else if (word == "cycle") {
    harmonic_->cycles.push_back(cycle(keyword));
  } else {
    FlowLine& flow = harmonic_->flows.emplace_back(unread_flow());
    Lexer ahead = lexer_;
    const bool is_if = ahead.accept_word("if") && ahead.at_name();
    if (is_if) reader_.fail(reader_.here(), "'if' outside of a cycle", {"write 'cycle { if ... }'"});
    const bool is_first = !block.has_flow;
    block.has_flow = true;
    read_flow(reader_, is_first, flow);
  }
}

// ---- cycle, step, conditional

Cycle Parser::cycle(const Token& keyword) {
  Cycle cycle;
  Block block{"cycle", reader_.span(keyword)};
  cycle.span = reader_.span(keyword);
  if (lexer_.at_name() && !lexer_.on_new_line()) {
    reader_.complain(ErrorKind::Syntax, reader_.here(), "a cycle has no name",
                     {"write 'cycle {' or 'cycle (epochs 10) {'"});
    lexer_.skip();
  }
  if (lexer_.accept("(")) conditions(cycle);
  open(block, "'cycle'");
  body(block, [&] { step(blocks_.back(), cycle.steps); });
  return cycle;
}

// Skips to the ',' or ')' that ends a broken condition. Returns whether there is one.
bool Parser::skip_condition() {
  for (size_t lists = 0; !lexer_.at_end(); lexer_.skip()) {
    if (lists == 0 && (lexer_.at(",") || (lexer_.at(")") && !lexer_.at(")-")))) return true;
    if (lexer_.at("{") || lexer_.at("}") || lexer_.at(";") || lexer_.at_reserved()) return false;
    if (lexer_.at("->") || lexer_.at("-(") || lexer_.at("<-")) return false;  // a flow: the ')' is missing
    lists += lexer_.at("[");
    lists -= lists > 0 && lexer_.at("]");
  }
  return false;
}

void Parser::conditions(Cycle& cycle) {
  const Span begin = source_.span(lexer_.previous_end() - 1, 1);
  Lexer start = lexer_;
  try {
    do {
      start = lexer_;
      const size_t before = reader_.complaints();
      try {
        CycleCondition condition = read_condition(reader_);
        if (reader_.complaints() == before) cycle.conditions.push_back(std::move(condition));
      } catch (const Recover&) {
        if (!skip_condition()) throw;
        reader_.leave_out(start, true);
      }
    } while (lexer_.accept(","));
    if (lexer_.accept(")")) return;
    if (lexer_.at("{") || lexer_.at_end()) {
      reader_.fail(reader_.behind_previous(), "expected ')' after the conditions of the cycle",
                   {"note: '(' was opened at " + reader_.place(begin)});
    }
    reader_.unexpected("',' or ')' after a condition", {"conditions are separated by ','"});
  } catch (const Recover&) {
    do {
      skip_to_brace();
    } while (lexer_.accept(";"));  // a ';' between conditions is part of the mistake
    reader_.leave_out(start, true);
    if (!lexer_.at("{")) throw;
  }
}

void Parser::misplaced(Block& block, const std::string& word) {
  reader_.complain(ErrorKind::Syntax, reader_.here(), quoted(word) + " inside of a cycle",
                   {"declare names before the cycle; a cycle holds flows and 'if'",
                    "note: the '{' of " + block.what + " is at " + reader_.place(source_.span(block.open, 1))});
  brace_in_doubt_ = true;
  reader_.doubt_blocks();
  const Token keyword = lexer_.peek();
  lexer_.skip();
  if (word == "cycle") {
    harmonic_->cycles.push_back(cycle(keyword));
  } else {
    declaration(word == "producer"   ? DeclarationKind::Producer
                : word == "consumer" ? DeclarationKind::Consumer
                                     : DeclarationKind::Layer);
  }
}

void Parser::step(Block& block, std::vector<FlowStep>& steps) {
  reader_.count_node();
  if (lexer_.at_reserved()) return misplaced(block, std::string(lexer_.peek_word()));
  steps.emplace_back(unread_flow());
  Lexer ahead = lexer_;
  ahead.skip();
  const bool arrow_follows = !ahead.peek_arrow().text.empty();
  if (!arrow_follows && (lexer_.at_word("else") || lexer_.at_word("elif"))) {
    reader_.fail(reader_.here(), quoted(lexer_.peek_word()) + " without 'if'",
                 {"write 'if ... { } else { if ... { } }'"});
  }
  if (!arrow_follows && lowered(lexer_.peek_word()) == "if") {
    if (!lexer_.at_word("if")) {
      reader_.complain(ErrorKind::Syntax, reader_.here(), "unknown statement " + quoted(lexer_.peek_word()),
                       {"did you mean 'if'?"});
    }
    steps.back() = conditional();
    return;
  }
  const bool is_first = !block.has_flow;
  block.has_flow = true;
  read_flow(reader_, is_first, std::get<FlowLine>(steps.back()));
}

std::shared_ptr<Conditional> Parser::conditional() {
  const Token keyword = lexer_.peek();
  lexer_.skip();
  auto conditional = std::make_shared<Conditional>();
  Block block{"'if'", reader_.span(keyword)};
  const size_t before = reader_.complaints();
  try {
    conditional->predicate = read_predicate(reader_);
  } catch (const Recover&) {
    skip_to_brace();
    if (!lexer_.at("{")) throw;
  }
  conditional->span = reader_.since(keyword.offset);
  open(block, "the condition of 'if'", {"'if' takes one comparison or predicate: 'if loss < 0.5 { a -> b; }'"});
  conditional->broken = reader_.complaints() != before;
  body(block, [&] { step(blocks_.back(), conditional->then_steps); });
  Lexer ahead = lexer_;
  if (!ahead.accept_word("else") || !ahead.at("{")) return conditional;
  Block otherwise{"'else'", reader_.here()};
  lexer_.accept_word("else");
  open(otherwise, "'else'");
  conditional->has_else = true;
  body(otherwise, [&] { step(blocks_.back(), conditional->else_steps); });
  return conditional;
}

void check_encoding(const SourceText& source) {
  const std::string& text = source.text();
  const size_t zero = text.find('\0');
  const auto invalid = find_invalid_utf8(text);
  if (zero != std::string::npos && (!invalid || zero < *invalid)) {
    throw SourceErrors(source, {Error(ErrorKind::Syntax, "a NUL byte: this is not text", source.span(zero, 1),
                                      {"is this a flow file? flows are UTF-8 text"})});
  }
  if (!invalid) return;
  char byte[8];
  std::snprintf(byte, sizeof byte, "0x%02X", static_cast<unsigned char>(text[*invalid]));
  throw SourceErrors(source, {Error(ErrorKind::Syntax, std::string("the byte ") + byte + " is not UTF-8",
                                    source.span(*invalid, 1), {"save the file as UTF-8"})});
}

}  // namespace

Flow parse(std::shared_ptr<const SourceText> source) {
  check_encoding(*source);
  Parser parser(*source);
  Flow flow{source, {}, {}};
  try {
    flow.harmonics = parser.file();
  } catch (const Stop&) {
  }
  std::vector<Error> errors = parser.take_errors();
  if (errors.empty()) return flow;
  flow.unread = parser.take_unread();
  if (flow.unread.words.size() >= kMostUnreadWords) flow.harmonics.clear();  // an incomplete list: drop all
  // The source may be in a block that was not recognized.
  if (flow.unread.blocks) std::erase_if(errors, [](const Error& e) { return e.kind() == ErrorKind::Name; });
  throw FlowErrors(in_order_of_text(std::move(errors)), std::move(flow));
}

}  // namespace harmonics::engine::hmx
