// Shared state of the parser's rules: lexer, errors, recovery.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dsl/hmx/lexer.hpp"
#include "engine/flow/flow.hpp"

namespace harmonics::engine::hmx {

// Thrown after an error was recorded, to abandon the statement.
struct Recover {};
// Thrown when the maximum number of errors is reached.
struct Stop {};

constexpr size_t kMostErrors = 20;
constexpr size_t kMostUnreadWords = 100'000;
constexpr size_t kMostNodes = 1'000'000;  // limits memory; far above realistic input
constexpr size_t kDeepestNesting = 64;    // of lists, and of blocks

using Notes = std::vector<std::string>;

class Reader {
 public:
  explicit Reader(const SourceText& source) : lexer(source), source_(source) {}

  Lexer lexer;

  // ---- positions
  Span span(const Token& token) const { return source_.span(token.offset, token.text.size()); }
  Span span(size_t begin, size_t end) const { return source_.span(begin, end - begin); }
  Span since(size_t begin) const { return span(begin, lexer.previous_end()); }
  Span here() const { return span(lexer.peek()); }
  Span behind_previous() const { return source_.span(lexer.previous_end(), 1); }
  std::string place(Span span) const { return source_.place(span); }
  std::string_view text(size_t begin, size_t end) const;

  // ---- errors. Only one is kept per position, preferably a syntax error, since they have the same cause.
  void complain(ErrorKind kind, Span span, const std::string& message, Notes notes = {});
  [[noreturn]] void fail(Span span, const std::string& message, Notes notes = {});
  // Throws "expected <what>, found <token>", or a specific message for common typos (curly quotes, /* ...).
  [[noreturn]] void unexpected(const std::string& what, Notes notes = {});
  std::string found() const;
  std::vector<Error> take_errors() { return std::move(errors_); }
  size_t complaints() const { return complaints_; }  // errors so far, including several at one position

  // ---- unread text
  // Adds the text from `start` to the last token. `kept`: whether its declaration, if any, was kept.
  void leave_out(const Lexer& start, bool kept = false);
  void doubt_blocks() { unread_.blocks = true; }
  Unread take_unread() { return std::move(unread_); }

  // Reads an IDENT. `what` describes it: "a name for the layer".
  Name expect_name(const std::string& what, Notes notes = {});
  // Returns whether '-' directly follows a name: my-layer.
  bool at_hyphenated_name() const;
  [[noreturn]] void refuse_hyphenated_name();
  // Reads the ';' after `what`. If only the ';' is missing, the statement is kept.
  void end_statement(const std::string& what);
  int64_t whole_number(const Token& digits);

  // Skips to the next possible start of a statement. `start`: offset of the broken one.
  void recover(size_t start);
  void count_node();
  bool in_shape = false;        // inside the braces of a shape
  bool in_declaration = false;  // of a producer, consumer or layer

 private:
  void skip_block();
  bool begins_statement() const;

  const SourceText& source_;
  std::vector<Error> errors_;
  Unread unread_;
  size_t complaints_ = 0, nodes_ = 0;
};

std::string lowered(std::string_view word);
// Returns the text in single quotes, shortened and printable.
std::string quoted(std::string_view text);

}  // namespace harmonics::engine::hmx
