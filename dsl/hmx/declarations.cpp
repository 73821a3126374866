// Rules: producer, consumer, layer, shape, dim, ratio.
#include "dsl/hmx/rules.hpp"

namespace harmonics::engine::hmx {

namespace {

constexpr size_t kHighestRank = 8;

const char* word_of(DeclarationKind kind) {
  switch (kind) {
    case DeclarationKind::Producer:
      return "producer";
    case DeclarationKind::Consumer:
      return "consumer";
    case DeclarationKind::Layer:
      return "layer";
  }
  return "";
}

Dim read_dim(Reader& reader, bool is_first) {
  Lexer& lexer = reader.lexer;
  reader.count_node();
  const size_t begin = lexer.position();
  if (lexer.accept("*")) return {-1, reader.since(begin)};
  const auto digits = lexer.integer();
  if (!digits) {
    if (is_first && lexer.at("}")) {
      reader.fail(reader.here(), "empty shape", {"write its sizes, for example '{28, 28}', or leave the braces out"});
    }
    if (lexer.at("}")) reader.fail(reader.here(), "expected a size after ','", {"remove the last ','"});
    reader.unexpected("a size or '*'", {"'*' is a variable length: {*, 9}"});
  }
  const int64_t size = reader.whole_number(*digits);
  if (size == 0) {
    reader.complain(ErrorKind::Shape, reader.span(*digits), "a size of zero in a shape",
                    {"sizes are at least 1; '*' is a variable length"});
  }
  return {size, reader.span(*digits)};
}

[[noreturn]] void refuse_rest_of_shape(Reader& reader, const Dim& last, Span open) {
  const Lexer& lexer = reader.lexer;
  if (lexer.touches_previous() && lexer.at(".")) {
    reader.fail(last.span, "sizes are whole numbers", {"write for example '{28, 28}'"});
  }
  const std::string_view word = lexer.peek_word();
  if (lexer.at("*") || (!word.empty() && word[0] == 'x')) {
    reader.unexpected("',' or '}' in the shape", {"sizes are separated by ',': {28, 28}"});
  }
  reader.unexpected("',' or '}' in the shape", {"note: '{' was opened at " + reader.place(open)});
}

std::vector<Dim> read_shape(Reader& reader) {
  Lexer& lexer = reader.lexer;
  const Span open = reader.here();
  lexer.accept("{");
  reader.in_shape = true;
  std::vector<Dim> dims;
  do {
    dims.push_back(read_dim(reader, dims.empty()));
    if (dims.size() == kHighestRank + 1) {
      reader.complain(ErrorKind::Shape, dims.back().span, "a shape has at most 8 sizes");
    }
  } while (lexer.accept(","));
  if (!lexer.accept("}")) refuse_rest_of_shape(reader, dims.back(), open);
  reader.in_shape = false;
  return dims;
}

[[noreturn]] void refuse_ratio(Reader& reader, const Token& number) {
  const Lexer& lexer = reader.lexer;
  const std::string digits(number.text);
  if (lexer.at(".") || lexer.at("%") || lexer.at(":")) {
    reader.fail(reader.span(number.offset, lexer.position() + 1), "a ratio is two whole numbers and a name",
                {"write it as '1/2 input'"});
  }
  const bool is_width = lexer.at(";") || lexer.at("}") || lexer.at_end() || lexer.on_new_line();
  if (is_width || lexer.at(",")) {
    reader.fail(reader.span(number), "a width without braces",
                {"write '{" + digits + "}' for a width, or a ratio such as '1/2 input'"});
  }
  reader.unexpected("'/' of a ratio after '" + digits + "'", {"a ratio is written '1/2 input'"});
}

Ratio read_ratio(Reader& reader) {
  Lexer& lexer = reader.lexer;
  const size_t begin = lexer.position();
  const Token numerator = *lexer.integer();
  if (!lexer.accept("/")) refuse_ratio(reader, numerator);
  const auto denominator = lexer.integer();
  if (!denominator) reader.unexpected("a whole number after '/'", {"a ratio is written '1/2 input'"});
  const std::string shown(reader.text(begin, denominator->end()));
  Ratio ratio{reader.whole_number(numerator), reader.whole_number(*denominator), {}, {}};
  if (ratio.numerator == 0 || ratio.denominator == 0) {
    reader.complain(ErrorKind::Shape, reader.span(begin, denominator->end()), "zero in the ratio '" + shown + "'",
                    {"both numbers of a ratio are at least 1"});
  }
  const std::string what = "a name after the ratio '" + shown + "'";
  if (lexer.at(";")) reader.unexpected(what, {"name what it is a ratio of: '" + shown + " input'"});
  ratio.of = reader.expect_name(what);
  ratio.span = reader.since(begin);
  return ratio;
}

std::string example(const Declaration& declaration) {
  return declaration.kind == DeclarationKind::Layer
             ? "give a layer a width by '{128}' or by a ratio such as '1/2 input'"
             : "give it a shape by '{28, 28}'; streams are bound when the flow runs: --producer NAME=ADDRESS";
}

// Rejects text between the name and the ';' of a declaration.
void refuse_rest_of_declaration(Reader& reader, const Declaration& declaration) {
  const Lexer& lexer = reader.lexer;
  const std::string& name = declaration.name.text;
  const std::string after = "';' after " + std::string(word_of(declaration.kind)) + " '" + name + "'";
  if (reader.at_hyphenated_name()) reader.refuse_hyphenated_name();
  if (lexer.at("{")) {
    reader.unexpected(after, {declaration.has_shape ? "a declaration has one shape"
                                                    : "write the shape before the ratio: '{10} 1/2 input'"});
  }
  if (lexer.at("[") || lexer.at("(")) reader.unexpected(after, {"write a shape in braces: {28, 28}"});
  if (lexer.at(",")) {
    reader.unexpected(after, {"declare one name at a time: '" + std::string(word_of(declaration.kind)) + " " + name +
                              "; " + word_of(declaration.kind) + " ...;'"});
  }
  if (lexer.peek_arrow().text == "=" || lexer.at(":") || (lexer.at("\"") && lexer.peek().text.back() == '"')) {
    reader.unexpected(after, {example(declaration)});
  }
  if (lexer.on_new_line()) return;
  if (!lexer.peek_arrow().text.empty()) {
    reader.unexpected(after, {"declare the name first, then write the flow as a separate statement"});
  }
  if (declaration.ratio && declaration.ratio->of.text == "of" && lexer.at_name()) {
    reader.unexpected(after, {"write a ratio without 'of': '1/2 input'"});
  }
}

}  // namespace

void read_declaration(Reader& reader, Declaration& declaration) {
  Lexer& lexer = reader.lexer;
  const size_t before = reader.complaints();
  reader.in_declaration = true;
  const std::string word = word_of(declaration.kind);
  declaration.name = reader.expect_name("a name for the " + word);
  if (lexer.at("{")) {
    declaration.shape = read_shape(reader);
    declaration.has_shape = true;
  }
  const char next = lexer.at_end() ? '\0' : lexer.rest().front();
  if (next >= '0' && next <= '9') {
    if (declaration.kind == DeclarationKind::Consumer) {
      reader.fail(reader.here(), "a consumer takes no ratio", {"its arrow determines its width"});
    }
    declaration.ratio = read_ratio(reader);
  }
  refuse_rest_of_declaration(reader, declaration);
  declaration.broken = reader.complaints() != before;
  reader.end_statement(word + " '" + declaration.name.text + "'");
  reader.in_declaration = false;
}

}  // namespace harmonics::engine::hmx
