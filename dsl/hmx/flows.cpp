// Rules: flow, source, arrow.
#include "dsl/hmx/rules.hpp"
#include "dsl/hmx/typos.hpp"

namespace harmonics::engine::hmx {

namespace {

// Throws "expected X, found Y" for a token in place of the arrow's end, and suggests the correct arrow.
[[noreturn]] void refuse_forward_end(Reader& reader, size_t begin) {
  const Lexer& lexer = reader.lexer;
  const std::string whole = std::string(reader.text(begin, lexer.previous_end())) + ")->";
  const std::string remedy = "write '" + whole + "'";
  if (lexer.at("->") || lexer.at("-")) reader.fail(reader.here(), "missing ')' before '->'", {remedy});
  if (lexer.at(")-") || lexer.at(")>") || lexer.at(")=") || lexer.at(")~")) {
    reader.fail(reader.here(), "an arrow with functions ends with ')->'", {remedy});
  }
  if (lexer.at(")")) {
    Lexer ahead = lexer;
    ahead.accept(")");
    if (!ahead.peek_arrow().text.empty()) {
      reader.fail(reader.span(lexer.position(), ahead.position() + ahead.peek_arrow().text.size()),
                  "')->' is written without spaces", {remedy});
    }
    reader.fail(reader.here(), "an arrow with functions ends with ')->'", {remedy});
  }
  if (lexer.at_name()) reader.unexpected("',' or ')->'", {"functions of an arrow are separated by ','"});
  reader.unexpected("')->' to end the arrow", {remedy});
}

[[noreturn]] void refuse_backward_end(Reader& reader, size_t begin) {
  const Lexer& lexer = reader.lexer;
  const std::string whole = std::string(reader.text(begin, lexer.previous_end())) + ")-";
  const std::string remedy = "write '" + whole + "'";
  if (lexer.at("-")) reader.fail(reader.here(), "missing ')' before '-'", {remedy});
  if (lexer.at(")")) {
    Lexer ahead = lexer;
    ahead.accept(")");
    if (ahead.at("-") && !ahead.touches_previous()) {
      reader.fail(reader.span(lexer.position(), ahead.position() + 1), "')-' is written without spaces", {remedy});
    }
    reader.fail(reader.here(), "a training tap ends with ')-'", {remedy});
  }
  if (lexer.at_name()) reader.unexpected("',' or ')-'", {"losses of a tap are separated by ','"});
  reader.unexpected("')-' to end the tap", {remedy});
}

[[noreturn]] void refuse_arrow(Reader& reader) {
  const Lexer& lexer = reader.lexer;
  const Token run = lexer.peek_arrow();
  if (const auto bare = find_bare_tag(lexer)) {
    reader.fail(reader.span(lexer.position(), lexer.position() + bare->length), bare->message, {bare->remedy});
  }
  const std::string_view after = lexer.rest().substr(run.text.size());
  const size_t next = after.find_first_not_of(" \t");
  if (run.text == "-" && next != std::string_view::npos && after[next] == '(') {
    reader.fail(reader.span(run), "'-(' is written without a space", {"write '-(relu)->'"});
  }
  if (run.text == "-" && reader.at_hyphenated_name()) reader.refuse_hyphenated_name();
  const Typo typo = describe_bad_arrow(lexer);
  reader.fail(reader.span(run), typo.message, {typo.remedy});
}

void read_arrow_tag(Reader& reader, Arrow& arrow, size_t begin) {
  Lexer& lexer = reader.lexer;
  if (lexer.at(")")) {
    reader.fail(reader.since(begin), "an arrow without a function between its parentheses",
                {arrow.backward ? "write '<-' for the mean squared error" : "write '->' for a learned map alone"});
  }
  arrow.tag = read_tag(reader);
  if (!arrow.backward && !lexer.accept(")->")) refuse_forward_end(reader, begin);
  if (arrow.backward && (lexer.at(")->") || !lexer.accept(")-"))) refuse_backward_end(reader, begin);
}

Arrow read_arrow(Reader& reader) {
  Lexer& lexer = reader.lexer;
  reader.count_node();
  const size_t begin = lexer.position();
  const std::string_view run = lexer.peek_arrow().text;
  Arrow arrow;
  arrow.backward = lexer.at("<-");
  if (run == "<-" && !lexer.at("<-(") && find_bare_tag(lexer)) refuse_arrow(reader);
  if ((run == "-" && lexer.accept("-(")) || (run == "<-" && lexer.accept("<-("))) {
    read_arrow_tag(reader, arrow, begin);
  } else if (run == "->" || run == "<-") {
    lexer.accept(run);
  } else {
    refuse_arrow(reader);
  }
  arrow.span = reader.since(begin);
  return arrow;
}

[[noreturn]] void refuse_target(Reader& reader, const Arrow& arrow) {
  const Lexer& lexer = reader.lexer;
  const std::string shown = arrow.backward ? (arrow.tag.empty() ? "<-" : ")-") : (arrow.tag.empty() ? "->" : ")->");
  if (lexer.at("(") && arrow.tag.empty()) {
    const bool spaced = !lexer.touches_previous() && arrow.backward;
    reader.fail(reader.here(), spaced ? "'<-(' is written without a space" : "functions belong inside the arrow",
                {arrow.backward ? "write '<-(loss)-'" : "write '-(relu)->'"});
  }
  const bool nothing = lexer.at(";") || lexer.at("|") || lexer.at("}") || lexer.at_end() ||
                       !lexer.peek_arrow().text.empty() || (lexer.on_new_line() && lexer.at_reserved());
  if (nothing && !find_typo(lexer)) {
    reader.fail(arrow.span, arrow.backward ? "a training tap without its target" : "an arrow without its target",
                {arrow.backward ? "name the stream or layer to compare with: 'output <-(mse)- labels;'"
                                : "name the layer or consumer it leads to: 'a -> b;'"});
  }
  reader.unexpected("the name that '" + shown + "' leads to", {"arrows lead to layers and consumers by name"});
}

// Rejects text after a target.
void refuse_rest_of_flow(Reader& reader, const FlowLine& flow) {
  const Lexer& lexer = reader.lexer;
  if (lexer.on_new_line()) return;
  const std::string& name = flow.arrows.back().target.text;
  if (lexer.at("(")) {
    reader.fail(flow.arrows.back().target.span, "'" + name + "' is not a layer's name",
                {"functions belong inside the arrow: -(" + name + ")->"});
  }
  if (lexer.at(",")) {
    reader.unexpected("';' after '" + name + "'", {"lead one source to several layers with 'a -> b | -> c;'"});
  }
  if (lexer.at("+")) reader.unexpected("';' after '" + name + "'", {"several arrows into one layer add up"});
  if (lexer.at(".") || lexer.at("[")) {
    reader.unexpected("';' after '" + name + "'", {"an arrow leads to a whole layer, by its plain name"});
  }
}

[[noreturn]] void refuse_source(Reader& reader, const Name& source) {
  const Lexer& lexer = reader.lexer;
  const std::string shown = "'" + source.text + "'";
  if (lexer.at(",") || lexer.at("+")) {
    reader.fail(reader.here(), "a flow has one source",
                {"write a flow for each source; several arrows into one layer add up"});
  }
  if (lexer.at("(") && lexer.rest().substr(0, lexer.rest().find(';')).find(")->") != std::string_view::npos) {
    reader.fail(reader.here(), "an arrow with functions begins with '-('", {"write '-(relu)->'"});
  }
  if (lexer.at("|")) {
    reader.fail(reader.here(), "'|' before the first arrow",
                {"'|' returns to the flow's source after a target: 'a -> b | -> c;'"});
  }
  if (lexer.at(";") || lexer.at("}") || lexer.at_end()) {
    reader.fail(source.span, shown + " alone is not a statement",
                {"a flow has an arrow, for example '" + source.text + " -> b;'"});
  }
  if (find_typo(lexer)) reader.unexpected("an arrow");
  if (lexer.at_name() || lexer.at("{") || lexer.at("\"") || lexer.at("(") || !lexer.peek_word().empty()) {
    reader.fail(source.span, "unknown statement " + quoted(source.text),
                {"statements begin with producer, consumer, layer or cycle, or are flows such as 'a -> b;'"});
  }
  reader.unexpected("an arrow after " + shown, {"a flow is written 'a -> b;'"});
}

[[noreturn]] void refuse_flow_start(Reader& reader) {
  const Lexer& lexer = reader.lexer;
  if (lexer.at("|")) {
    reader.fail(reader.here(), "'|' before the first arrow",
                {"'|' returns to the flow's source after a target: 'a -> b | -> c;'"});
  }
  const std::string_view word = lexer.peek_word();
  if (!word.empty() && word[0] <= '9') reader.expect_name("a statement");
  reader.unexpected("a statement", {"statements begin with producer, consumer, layer or cycle, or are flows such as "
                                    "'a -> b;'"});
}

}  // namespace

void read_flow(Reader& reader, bool is_first, FlowLine& flow) {
  Lexer& lexer = reader.lexer;
  const size_t begin = lexer.position();
  if (lexer.at_name()) {
    flow.source = reader.expect_name("a source");
    if (lexer.peek_arrow().text.empty()) refuse_source(reader, *flow.source);
  } else if (lexer.peek_arrow().text.empty()) {
    refuse_flow_start(reader);
  }
  bool piped = false;
  do {
    Arrow arrow = read_arrow(reader);
    arrow.piped = piped;
    if (!lexer.at_name()) {
      if (lexer.at_reserved() && !lexer.on_new_line()) reader.expect_name("a target");
      refuse_target(reader, arrow);
    }
    arrow.target = reader.expect_name("a target");
    flow.arrows.push_back(std::move(arrow));
    piped = lexer.accept("|");
    if (piped && lexer.peek_arrow().text.empty()) {
      reader.unexpected("an arrow after '|'", {"'|' is written once and an arrow follows: 'a -> b | -> c;'"});
    }
  } while (piped || !lexer.peek_arrow().text.empty());
  if (is_first && !flow.source) {
    reader.complain(ErrorKind::Name, flow.arrows.front().span, "the first flow in its braces names no source",
                    {"write 'SOURCE " + std::string(flow.arrows.front().backward ? "<- " : "-> ") +
                     flow.arrows.front().target.text + "'"});
  }
  refuse_rest_of_flow(reader, flow);
  reader.end_statement("'" + flow.arrows.back().target.text + "'");
  flow.span = reader.since(begin);
  flow.broken = false;
}

}  // namespace harmonics::engine::hmx
