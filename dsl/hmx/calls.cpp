// Rules: tag, call, argument, value.
#include <charconv>
#include <cmath>

#include "dsl/hmx/rules.hpp"

namespace harmonics::engine::hmx {

namespace {

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53

// Rejects characters directly after a number: 5. 0x10 1_000 3px.
void refuse_rest_of_number(Reader& reader, const Token& token) {
  const Lexer& lexer = reader.lexer;
  if (!lexer.touches_previous() || !(lexer.at(".") || !lexer.peek_word().empty())) return;
  size_t end = lexer.position();
  const std::string_view rest = lexer.rest();
  while (end - lexer.position() < rest.size() &&
         (is_identifier_character(rest[end - lexer.position()]) || rest[end - lexer.position()] == '.')) {
    ++end;
  }
  const std::string_view whole = reader.text(token.offset, end);
  reader.fail(reader.span(token.offset, end), "malformed number " + quoted(whole),
              {"write numbers as 3, -0.5 or 1e-3"});
}

std::string unescape(Reader& reader, const Token& token) {
  std::string out;
  for (size_t i = 1; i + 1 < token.text.size(); ++i) {
    if (token.text[i] != '\\') {
      out += token.text[i];
      continue;
    }
    const char c = token.text[++i];
    const size_t known = std::string_view("\"\\ntr").find(c);
    if (known == std::string_view::npos) {
      const std::string shown =
          c == '\n' || c == '\r' ? "a backslash at the end of the line" : quoted(token.text.substr(i - 1, 2));
      reader.complain(ErrorKind::Type, reader.span(token.offset + i - 1, token.offset + i + 1),
                      "unknown escape in a string: " + shown,
                      {"known escapes: \\\" \\\\ \\n \\t \\r; write a backslash as \\\\"});
    } else {
      out += "\"\\\n\t\r"[known];
    }
  }
  return out;
}

ArgumentList read_list(Reader& reader, size_t depth) {
  Lexer& lexer = reader.lexer;
  const Token open = lexer.peek();
  if (depth >= kDeepestNesting) {
    reader.fail(reader.here(), "lists nest deeper than " + std::to_string(kDeepestNesting));
  }
  lexer.accept("[");
  ArgumentList values;
  if (lexer.accept("]")) return values;
  do {
    if (!values.empty() && lexer.at("]")) {
      reader.fail(reader.here(), "expected a value after ','", {"remove the last ','"});
    }
    values.push_back(read_value(reader, "a value in the list", depth + 1));
  } while (lexer.accept(","));
  if (!lexer.accept("]")) {
    reader.unexpected("',' or ']' in the list", {"note: the list begins at " + reader.place(reader.span(open))});
  }
  return values;
}

void refuse_missing_digit(Reader& reader) {
  const Lexer& lexer = reader.lexer;
  if (lexer.at(".") && !lexer.rest().substr(1).empty() && lexer.rest()[1] >= '0' && lexer.rest()[1] <= '9') {
    reader.fail(reader.here(), "a number begins with a digit", {"write '0.5' instead of '.5'"});
  }
}

[[noreturn]] void refuse_value(Reader& reader, const std::string& what) {
  const Lexer& lexer = reader.lexer;
  refuse_missing_digit(reader);
  if (lexer.at("{") || lexer.at("(")) reader.unexpected(what, {"write a list in brackets: [3, 3]"});
  if (lexer.at("=")) reader.unexpected(what, {"an argument is written 'name=value'"});
  reader.unexpected(what, {"values are numbers, \"strings\", true, false, lists [1, 2] and names"});
}

CallArgument read_argument(Reader& reader) {
  Lexer& lexer = reader.lexer;
  CallArgument argument;
  Lexer ahead = lexer;
  if (const auto token = ahead.name()) {
    if (ahead.accept("=")) {
      argument.name = Name{std::string(token->text), reader.span(*token)};
      lexer = ahead;
    } else if (ahead.at(":")) {
      lexer = ahead;
      reader.fail(reader.here(), "':' after the argument's name",
                  {"write '" + std::string(token->text) + "=' and its value"});
    }
  }
  argument.value = read_value(reader, argument.name ? "a value after '" + argument.name->text + "='" : "an argument");
  return argument;
}

[[noreturn]] void refuse_rest_of_arguments(Reader& reader, const Call& call, const Token& open) {
  const Lexer& lexer = reader.lexer;
  const Word* word = std::get_if<Word>(&call.arguments.back().value.value);
  if (word && lexer.at("(")) {
    reader.fail(reader.here(), "'" + word->text + "' is called inside the arguments of '" + call.name.text + "'",
                {"calls do not nest; functions of a tag are applied one after another: -(f, g)->"});
  }
  if (word && lexer.at(".")) reader.unexpected("',' or ')'", {"write a text with points in double quotes"});
  const bool ended = lexer.at(";") || lexer.at("->") || lexer.at("{") || lexer.at("}") || lexer.at_end();
  reader.unexpected("',' or ')' after an argument of '" + call.name.text + "'",
                    ended ? Notes{"note: '(' was opened at " + reader.place(reader.span(open))}
                          : Notes{"arguments are separated by ','"});
}

void read_arguments(Reader& reader, Call& call) {
  Lexer& lexer = reader.lexer;
  const Token open = lexer.peek();
  if (!lexer.accept("(")) return;
  call.has_parentheses = true;
  if (lexer.accept(")")) return;
  do {
    if (!call.arguments.empty() && lexer.at(")")) {
      reader.fail(reader.here(), "expected an argument after ','", {"remove the last ','"});
    }
    call.arguments.push_back(read_argument(reader));
  } while (lexer.accept(","));
  if (!lexer.accept(")")) refuse_rest_of_arguments(reader, call, open);
}

}  // namespace

Number read_number(Reader& reader, const std::string& what) {
  const auto token = reader.lexer.number();
  if (!token) {
    refuse_missing_digit(reader);
    reader.unexpected(what);
  }
  refuse_rest_of_number(reader, *token);
  std::string_view digits = token->text;
  if (digits.front() == '+') digits.remove_prefix(1);
  Number number{0, digits.find_first_of(".eE") == std::string_view::npos};
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number.value);
  if (result.ec != std::errc()) {
    reader.complain(ErrorKind::Type, reader.span(*token), "number out of range: " + quoted(token->text),
                    {"the magnitude of a number is between 1e-307 and 1e308"});
    number = {0, true};
  } else if (number.integral && std::abs(number.value) > kLargestExactInteger) {
    reader.complain(ErrorKind::Type, reader.span(*token), "number out of range: " + quoted(token->text),
                    {"whole numbers are exact up to 9007199254740992; write a point or an exponent when the nearest "
                     "number will do"});
  }
  return number;
}

ArgumentValue read_value(Reader& reader, const std::string& what, size_t depth) {
  reader.count_node();
  Lexer& lexer = reader.lexer;
  const size_t begin = lexer.position();
  ArgumentValue value;
  if (const char c = lexer.at_end() ? '\0' : lexer.rest().front(); c == '+' || c == '-' || (c >= '0' && c <= '9')) {
    value.value = read_number(reader, what);
  } else if (const auto string = lexer.string()) {
    value.value = unescape(reader, *string);
  } else if (lexer.at_word("true") || lexer.at_word("false")) {
    value.value = lexer.at_word("true");
    lexer.skip();
  } else if (lexer.at("[")) {
    value.value = read_list(reader, depth);
  } else if (const auto word = lexer.name()) {
    value.value = Word{std::string(word->text)};
  } else {
    if (lexer.at_reserved()) reader.expect_name(what);
    refuse_value(reader, what);
  }
  value.span = reader.since(begin);
  return value;
}

Call read_call(Reader& reader) {
  Lexer& lexer = reader.lexer;
  const size_t begin = lexer.position();
  Call call;
  call.name = reader.expect_name("a function's name", {"functions are named without quotes, for example -(relu)->"});
  while (lexer.accept(".")) call.name.text += "." + reader.expect_name("a name after '.'").text;
  call.name.span = reader.since(begin);
  const size_t before = reader.complaints();
  read_arguments(reader, call);
  call.broken = reader.complaints() != before;
  return call;
}

std::vector<Call> read_tag(Reader& reader) {
  std::vector<Call> calls;
  do {
    calls.push_back(read_call(reader));
  } while (reader.lexer.accept(","));
  return calls;
}

}  // namespace harmonics::engine::hmx
