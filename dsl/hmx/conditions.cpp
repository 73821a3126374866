// Rules: condition, metric, comparison, predicate.
#include <charconv>

#include "dsl/hmx/rules.hpp"
#include "engine/base/spelling.hpp"

namespace harmonics::engine::hmx {

namespace {

const std::vector<std::string> kConditionWords = {"for", "until", "epochs", "steps"};

struct Unit {
  std::string_view suffix;
  double seconds;
};
constexpr Unit kUnits[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};

// Maps min, minutes, Hours, milliseconds, ... to a unit.
std::string unit_meant(std::string_view word) {
  if (word.substr(0, 2) == "ms" || word.substr(0, 3) == "mil") return "ms";
  return std::string(word.substr(0, 1));
}

double read_seconds(Reader& reader, const Token& token) {
  const std::string_view text = token.text;
  const size_t end = text.find_first_not_of("0123456789.");
  const std::string_view suffix = text.substr(end);
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + end, value);
  for (const Unit& unit : kUnits) {
    // Divides, so that 250ms is the double nearest to 0.25.
    if (suffix == unit.suffix) value = suffix == "ms" ? value / 1000 : value * unit.seconds;
  }
  if (result.ec != std::errc() || value > 1e300) {
    reader.complain(ErrorKind::Type, reader.span(token), "number out of range: " + quoted(text));
    return 1;
  }
  return value;
}

[[noreturn]] void refuse_duration(Reader& reader) {
  Lexer& lexer = reader.lexer;
  const std::string units = "write a number and a unit: ms, s, m, h or d, for example 'for 10m'";
  Lexer ahead = lexer;
  const auto digits = ahead.number();
  if (!digits) reader.unexpected("a duration after 'for'", {units});
  const std::string number(digits->text);
  const std::string_view word = ahead.peek_word();
  if (word.empty()) reader.fail(reader.span(*digits), "a duration without a unit: " + quoted(number), {units});
  const std::string unit = unit_meant(word);
  const bool known = std::string_view("smhd").find(unit[0]) != std::string_view::npos;
  const Span whole = reader.span(digits->offset, ahead.position() + word.size());
  if (word.find_first_of("0123456789") != std::string_view::npos) {
    reader.fail(whole, "a duration is one number with one unit",
                {"write for example 'for 90m' instead of 'for 1h30m'"});
  }
  if (!ahead.touches_previous() && unit == word) {
    reader.fail(whole, "a space between a number and its unit", {"write '" + number + unit + "'"});
  }
  reader.fail(whole, "unknown unit " + quoted(word), {known ? "write '" + number + unit + "'" : units});
}

std::string read_metric(Reader& reader, const std::string& what, Notes notes = {}) {
  std::string metric = reader.expect_name(what, std::move(notes)).text;
  while (reader.lexer.accept(".")) metric += "." + reader.expect_name("a name after '.'").text;
  return metric;
}

bool at_comparison(const Lexer& lexer) { return lexer.at("<") || lexer.at(">"); }

Comparison read_comparison(Reader& reader, std::string metric, const std::string& after, size_t begin) {
  Lexer& lexer = reader.lexer;
  Comparison comparison{std::move(metric), {}, 0, {}};
  if (lexer.at("=") || lexer.at("!=")) {
    const std::string run = lexer.at("!=") ? "!=" : std::string(lexer.peek_arrow().text);
    const Span span = reader.span(lexer.position(), lexer.position() + run.size());
    reader.fail(span, quoted(run) + " is not a comparison", {"metrics are compared with < <= > or >="});
  }
  for (const char* op : {"<=", ">=", "<", ">"}) {
    if (comparison.op.empty() && lexer.accept(op)) comparison.op = op;
  }
  if (comparison.op.empty()) {
    reader.unexpected("a comparison after '" + after + "'", {"write for example 'until loss < 0.05'"});
  }
  if (lexer.at_name()) {
    reader.unexpected("a number after '" + comparison.op + "'", {"metrics are compared with numbers"});
  }
  comparison.value = read_number(reader, "a number after '" + comparison.op + "'").value;
  comparison.span = reader.since(begin);
  return comparison;
}

[[noreturn]] void refuse_condition(Reader& reader) {
  Lexer& lexer = reader.lexer;
  Lexer ahead = lexer;
  if (lexer.at(")")) {
    reader.fail(reader.here(), "a condition is missing before ')'",
                {"leave '()' or the last ',' out, or write for example '(epochs 10)'"});
  }
  if (ahead.duration()) {
    reader.fail(reader.here(), "a duration without 'for'",
                {"write 'for " + std::string(reader.text(lexer.position(), ahead.previous_end())) + "'"});
  }
  if (const auto number = ahead.number()) {
    const std::string_view word = ahead.peek_word();
    if (word == "epochs" || word == "steps") {
      reader.fail(reader.span(lexer.position(), ahead.position() + word.size()), "the number belongs after the word",
                  {"write '" + std::string(word) + " " + std::string(number->text) + "'"});
    }
  }
  reader.expect_name("a condition", {"conditions are 'for 10m', 'until loss < 0.05', 'epochs 10', 'steps 1000' and "
                                     "settings such as 'batch=64'"});
  throw Recover{};
}

[[noreturn]] void refuse_setting(Reader& reader, const Name& name, size_t begin) {
  Lexer& lexer = reader.lexer;
  if (at_comparison(lexer) || lexer.at(".")) {
    std::string metric = name.text;
    while (lexer.accept(".")) metric += "." + reader.expect_name("a name after '.'").text;
    reader.fail(reader.since(begin), "a comparison without 'until'", {"write 'until " + metric + " < 0.05'"});
  }
  const auto near = nearest(name.text, kConditionWords);
  if (near && !lexer.at("=")) {
    reader.fail(name.span, "unknown condition " + quoted(name.text), {"did you mean '" + *near + "'?"});
  }
  reader.unexpected("'=' and a value after '" + name.text + "'",
                    {"a setting is written '" + name.text + "=VALUE', for example 'batch=64'"});
}

CycleCondition read_setting(Reader& reader, size_t begin) {
  Lexer& lexer = reader.lexer;
  CycleCondition condition{CycleCondition::Kind::Setting, 0, 0, {}, {}, {}, {}};
  if (!lexer.at_name()) refuse_condition(reader);
  condition.setting = reader.expect_name("a setting");
  if (!lexer.accept("=")) refuse_setting(reader, condition.setting, begin);
  if (lexer.at("=")) reader.fail(reader.here(), "'==' in a setting", {"a setting is written with one '='"});
  condition.value = read_value(reader, "a value after '" + condition.setting.text + "='");
  return condition;
}

int64_t read_count(Reader& reader, const std::string& word) {
  Lexer& lexer = reader.lexer;
  const auto digits = lexer.integer();
  if (!digits) reader.unexpected("a whole number after '" + word + "'", {"write for example '" + word + " 10'"});
  if (lexer.touches_previous() && (lexer.at(".") || !lexer.peek_word().empty())) {
    reader.fail(reader.span(*digits), "'" + word + "' takes a whole number", {"write for example '" + word + " 1000'"});
  }
  return reader.whole_number(*digits);
}

// Returns whether IDENT '=' value follows, and is none of the conditions that may contain '='.
bool is_setting(Lexer ahead) {
  const std::string word(ahead.peek_word());
  if (!ahead.name() || !ahead.accept("=")) return false;
  if (word == "for") return !ahead.duration();
  return !((word == "epochs" || word == "steps") && ahead.integer());
}

CycleCondition read_condition_body(Reader& reader, size_t begin) {
  using Kind = CycleCondition::Kind;
  Lexer& lexer = reader.lexer;
  CycleCondition condition{Kind::For, 0, 0, {}, {}, {}, {}};
  if (is_setting(lexer)) return read_setting(reader, begin);
  if (lexer.accept_word("for")) {
    lexer.accept("=");
    const auto duration = lexer.duration();
    if (!duration) refuse_duration(reader);
    condition.seconds = read_seconds(reader, *duration);
  } else if (lexer.accept_word("until")) {
    condition.kind = Kind::Until;
    const size_t at = lexer.position();
    std::string metric = read_metric(reader, "a metric after 'until'", {"write for example 'until loss < 0.05'"});
    const std::string after = "until " + metric;
    condition.until = read_comparison(reader, std::move(metric), after, at);
  } else if (lexer.at_word("epochs") || lexer.at_word("steps")) {
    const std::string word(lexer.peek_word());
    lexer.accept_word(word);
    lexer.accept("=");
    condition.kind = word == "epochs" ? Kind::Epochs : Kind::Steps;
    condition.count = read_count(reader, word);
  } else {
    return read_setting(reader, begin);
  }
  return condition;
}

}  // namespace

CycleCondition read_condition(Reader& reader) {
  reader.count_node();
  const size_t begin = reader.lexer.position();
  CycleCondition condition = read_condition_body(reader, begin);
  condition.span = reader.since(begin);
  return condition;
}

std::variant<Comparison, Call> read_predicate(Reader& reader) {
  Lexer& lexer = reader.lexer;
  const size_t begin = lexer.position();
  if (lexer.at("(")) {
    reader.fail(reader.here(), "the condition of 'if' takes no parentheses", {"write 'if loss < 0.5 { ... }'"});
  }
  if (lexer.at("!") || lexer.at_word("not")) {
    Lexer ahead = lexer;
    ahead.skip();
    if (lexer.at("!") || ahead.at_name()) {
      reader.fail(reader.here(), "'if' has no negation", {"write the flows into 'else { ... }'"});
    }
  }
  Lexer ahead = lexer;
  bool dotted = ahead.name().has_value();
  while (dotted && ahead.accept(".")) dotted = ahead.name().has_value();
  if (!dotted || at_comparison(ahead) || ahead.at("=") || ahead.at("!=")) {
    std::string metric = read_metric(reader, "a metric or predicate after 'if'", {"write 'if loss < 0.5 { ... }'"});
    const std::string after = "if " + metric;
    return read_comparison(reader, std::move(metric), after, begin);
  }
  return read_call(reader);
}

}  // namespace harmonics::engine::hmx
