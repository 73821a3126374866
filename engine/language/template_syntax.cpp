#include "engine/language/template_syntax.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include <fmt/core.h>

#include "engine/language/template_lexer.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::jinja {

namespace {

class TemplateParser {
 public:
  TemplateParser(std::vector<Token> tokens, const std::string& name) : tokens_(std::move(tokens)), name_(name) {}

  NodePtr run() {
    NodePtr body = parse_body({});
    if (!is(TokenKind::end)) fail(fmt::format("there is no beginning for '{}'", tokens_[at_ + 1].text));
    return body;
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  // Counts nested calls of the parser.
  class Level {
   public:
    explicit Level(TemplateParser& parser) : level_(parser.level_) {
      if (++level_ > kSyntaxDepth) parser.fail(fmt::format("it is nested more than {} deep", kSyntaxDepth));
    }
    ~Level() { --level_; }

   private:
    int& level_;
  };

  const Token& now() const { return tokens_[at_]; }
  [[noreturn]] void fail(const std::string& what) const {
    throw template_error(ErrorKind::Syntax, name_, now().at, what);
  }
  [[noreturn]] void expected(const std::string& what) const {
    const Token& token = now();
    std::string found = "the end of the template";
    if (token.kind == TokenKind::data)
      found = "text";
    else if (token.kind == TokenKind::text)
      found = "a string";
    else if (token.kind != TokenKind::end)
      found = "'" + printable(token.text) + "'";
    fail(fmt::format("expected {}, found {}", what, found));
  }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_sign(std::string_view text) const { return is(TokenKind::sign) && now().text == text; }
  bool is_word(std::string_view text) const { return is(TokenKind::name) && now().text == text; }
  bool accept_sign(std::string_view text) { return is_sign(text) && (++at_, true); }
  bool accept_word(std::string_view text) { return is_word(text) && (++at_, true); }
  void expect_sign(std::string_view text) {
    if (!accept_sign(text)) expected(fmt::format("'{}'", text));
  }
  std::string expect_name(const char* what) {
    if (!is(TokenKind::name)) expected(what);
    return tokens_[at_++].text;
  }
  // Arguments are looked for by name, one by one.
  void expect_few(size_t arguments) {
    constexpr size_t kArguments = 256;
    if (arguments == kArguments) fail(fmt::format("there are more than {} arguments", kArguments));
  }
  void expect_end_of_block() {
    if (!is(TokenKind::end_block)) expected("'%}'");
    ++at_;
  }

  NodePtr node(NodeKind kind, Span at, std::string text = "") {
    auto made = std::make_unique<Node>();
    made->kind = kind;
    made->at = at;
    made->text = std::move(text);
    return made;
  }
  // Adds an operand, which may be null.
  void adopt(Node& parent, NodePtr child) {
    if (child) deepen(parent, *child);
    parent.children.push_back(std::move(child));
  }
  void deepen(Node& parent, const Node& child) {
    parent.depth = std::max(parent.depth, child.depth + 1);
    if (parent.depth > kSyntaxDepth) fail(fmt::format("it is nested more than {} deep", kSyntaxDepth));
  }
  NodePtr binary(NodeKind kind, Span at, std::string text, NodePtr a, NodePtr b) {
    NodePtr made = node(kind, at, std::move(text));
    adopt(*made, std::move(a));
    adopt(*made, std::move(b));
    return made;
  }

  // Parses statements up to a block that starts with one of the words in `ends`, which is not read.
  NodePtr parse_body(Words ends) {
    const Level level(*this);
    NodePtr body = node(NodeKind::block, now().at);
    for (;;) {
      const Token& token = now();
      if (token.kind == TokenKind::end) return body;
      if (token.kind == TokenKind::data) {
        adopt(*body, node(NodeKind::data, token.at, token.text));
        ++at_;
      } else if (token.kind == TokenKind::begin_output) {
        ++at_;
        NodePtr output = node(NodeKind::output, token.at);
        adopt(*output, parse_tuple());
        if (!is(TokenKind::end_output)) expected("'}}'");
        ++at_;
        adopt(*body, std::move(output));
      } else {
        const std::string& word = tokens_[at_ + 1].text;
        if (tokens_[at_ + 1].kind == TokenKind::name && std::find(ends.begin(), ends.end(), word) != ends.end())
          return body;
        if (word.rfind("end", 0) == 0 || word == "else" || word == "elif") return body;
        ++at_;
        if (NodePtr statement = parse_statement()) adopt(*body, std::move(statement));
      }
    }
  }

  // Parses a body and the word of the block that ends it. The rest of that block is left to the caller.
  NodePtr parse_body_to(Words ends, Span begin, const char* what, std::string& end) {
    NodePtr body = parse_body(ends);
    if (is(TokenKind::end)) {
      throw template_error(ErrorKind::Syntax, name_, begin, fmt::format("'{}' has no 'end{}'", what, what));
    }
    ++at_;
    if (!is(TokenKind::name) || std::find(ends.begin(), ends.end(), now().text) == ends.end())
      expected(fmt::format("'end{}'", what));
    end = tokens_[at_++].text;
    return body;
  }
  NodePtr parse_body_to(const char* end, Span begin, const char* what) {
    std::string word;
    NodePtr body = parse_body_to({std::string_view(end)}, begin, what, word);
    expect_end_of_block();
    return body;
  }

  NodePtr parse_statement() {
    const Span at = now().at;
    const std::string word = expect_name("the word of a block");
    if (word == "if") return parse_branch(at);
    if (word == "for") return parse_loop(at);
    if (word == "set") return parse_set(at);
    if (word == "macro") return parse_macro(at);
    if (word == "with") return parse_with(at);
    if (word == "filter") return parse_filter_block(at);
    if (word == "generation") {
      expect_end_of_block();
      return parse_body_to("endgeneration", at, "generation");
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) throw template_error(ErrorKind::Syntax, name_, at, fmt::format("'{}' is in no loop", word));
      expect_end_of_block();
      return node(NodeKind::leave, at, word);
    }
    for (const char* file : {"include", "import", "from", "extends"})
      if (word == file)
        throw template_error(ErrorKind::Syntax, name_, at,
                             fmt::format("'{}' reads other files, which templates may not do", word));
    throw template_error(ErrorKind::Syntax, name_, at, fmt::format("there is no block '{}'", printable(word)));
  }

  NodePtr parse_branch(Span at) {
    NodePtr branch = node(NodeKind::branch, at);
    std::string word = "if";
    while (word != "endif") {
      if (word != "else") adopt(*branch, parse_expression());
      expect_end_of_block();
      const bool last = word == "else";
      NodePtr body =
          last ? parse_body_to({"endif"}, at, "if", word) : parse_body_to({"elif", "else", "endif"}, at, "if", word);
      adopt(*branch, std::move(body));
    }
    expect_end_of_block();
    return branch;
  }

  // Parses "a", "a, b" or "(a, b)".
  std::vector<std::string> parse_targets() {
    const bool brackets = accept_sign("(");
    std::vector<std::string> names = {expect_name("a name")};
    while (accept_sign(",")) {
      if (is_word("in") || is_sign("=") || is_sign(")")) break;
      names.push_back(expect_name("a name"));
    }
    if (brackets) expect_sign(")");
    return names;
  }

  NodePtr parse_loop(Span at) {
    NodePtr loop = node(NodeKind::loop, at);
    loop->targets = parse_targets();
    if (!accept_word("in")) expected("'in'");
    NodePtr list = parse_tuple(false), condition;
    if (accept_word("if")) condition = parse_expression();
    if (is_word("recursive")) fail("recursive loops are not supported: use a macro");
    expect_end_of_block();
    ++loops_;
    std::string word;
    NodePtr body = parse_body_to({"else", "endfor"}, at, "for", word), otherwise;
    --loops_;
    if (word == "else") {
      expect_end_of_block();
      otherwise = parse_body_to({"endfor"}, at, "for", word);
    }
    expect_end_of_block();
    adopt(*loop, std::move(list));
    adopt(*loop, std::move(body));
    adopt(*loop, std::move(otherwise));
    adopt(*loop, std::move(condition));
    return loop;
  }

  NodePtr parse_set(Span at) {
    NodePtr set = node(NodeKind::set, at);
    set->targets = parse_targets();
    if (set->targets.size() == 1 && accept_sign(".")) set->target_attribute = expect_name("an attribute");
    if (accept_sign("=")) {
      adopt(*set, parse_tuple());
      expect_end_of_block();
      return set;
    }
    set->kind = NodeKind::set_block;
    NodePtr filters = node(NodeKind::literal, at);  // stands for the text
    while (is_sign("|")) filters = parse_filter(std::move(filters));
    expect_end_of_block();
    adopt(*set, parse_body_to("endset", at, "set"));
    adopt(*set, std::move(filters));
    return set;
  }

  NodePtr parse_filter_block(Span at) {
    NodePtr block = node(NodeKind::set_block, at);  // without targets: the text is output
    --at_;
    tokens_[at_] = {TokenKind::sign, "|", at};  // {% filter upper %} is parsed as the filter "| upper"
    NodePtr filters = node(NodeKind::literal, at);
    while (is_sign("|")) filters = parse_filter(std::move(filters));
    expect_end_of_block();
    adopt(*block, parse_body_to("endfilter", at, "filter"));
    adopt(*block, std::move(filters));
    return block;
  }

  NodePtr parse_macro(Span at) {
    NodePtr macro = node(NodeKind::macro, at, expect_name("the macro's name"));
    expect_sign("(");
    while (!accept_sign(")")) {
      expect_few(macro->arguments.size());
      if (!macro->arguments.empty()) expect_sign(",");
      Parameter parameter{expect_name("a parameter"), nullptr};
      if (accept_sign("=")) {
        parameter.value = parse_expression();
        deepen(*macro, *parameter.value);
      }
      macro->arguments.push_back(std::move(parameter));
    }
    expect_end_of_block();
    const int loops = std::exchange(loops_, 0);
    adopt(*macro, parse_body_to("endmacro", at, "macro"));
    loops_ = loops;
    return macro;
  }

  NodePtr parse_with(Span at) {
    NodePtr scope = node(NodeKind::scope, at);
    while (!is(TokenKind::end_block)) {
      if (!scope->targets.empty()) expect_sign(",");
      scope->targets.push_back(expect_name("a name"));
      expect_sign("=");
      adopt(*scope, parse_expression());
    }
    expect_end_of_block();
    adopt(*scope, parse_body_to("endwith", at, "with"));
    return scope;
  }

  // Parses one expression, or a list of several separated by commas.
  NodePtr parse_tuple(bool choices = true) {
    const Span at = now().at;
    NodePtr first = choices ? parse_expression() : parse_either();
    if (!is_sign(",")) return first;
    NodePtr list = node(NodeKind::list, at);
    adopt(*list, std::move(first));
    while (accept_sign(",")) {
      if (is(TokenKind::end_output) || is(TokenKind::end_block) || is_sign(")")) break;
      adopt(*list, choices ? parse_expression() : parse_either());
    }
    return list;
  }

  NodePtr parse_expression() {
    const Level level(*this);
    NodePtr value = parse_either();
    while (is_word("if")) {
      NodePtr choice = node(NodeKind::choice, now().at);
      ++at_;
      adopt(*choice, parse_either());
      adopt(*choice, std::move(value));
      adopt(*choice, accept_word("else") ? parse_expression() : nullptr);
      value = std::move(choice);
    }
    return value;
  }

  NodePtr parse_either() {
    NodePtr left = parse_both();
    while (is_word("or")) {
      const Span at = tokens_[at_++].at;
      left = binary(NodeKind::either, at, "or", std::move(left), parse_both());
    }
    return left;
  }
  NodePtr parse_both() {
    NodePtr left = parse_not();
    while (is_word("and")) {
      const Span at = tokens_[at_++].at;
      left = binary(NodeKind::both, at, "and", std::move(left), parse_not());
    }
    return left;
  }
  NodePtr parse_not() {
    if (!is_word("not")) return parse_compare();
    const Level level(*this);
    NodePtr made = node(NodeKind::unary, now().at, "not");
    ++at_;
    adopt(*made, parse_not());
    return made;
  }

  std::string comparison() {
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"})
      if (accept_sign(sign)) return sign;
    if (accept_word("in")) return "in";
    if (is_word("not") && tokens_[at_ + 1].kind == TokenKind::name && tokens_[at_ + 1].text == "in") {
      at_ += 2;
      return "not in";
    }
    return "";
  }
  NodePtr parse_compare() {
    const Span at = now().at;
    NodePtr left = parse_sum();
    std::string sign = comparison();
    if (sign.empty()) return left;
    NodePtr made = node(NodeKind::compare, at);
    adopt(*made, std::move(left));
    for (; !sign.empty(); sign = comparison()) {
      made->operators.push_back(sign);
      adopt(*made, parse_sum());
    }
    return made;
  }

  // Parses left-associative operators of one precedence.
  NodePtr parse_operators(Words signs, NodePtr (TemplateParser::*operand)()) {
    NodePtr left = (this->*operand)();
    while (is(TokenKind::sign) && std::find(signs.begin(), signs.end(), now().text) != signs.end()) {
      const Token& sign = tokens_[at_++];
      left = binary(NodeKind::binary, sign.at, sign.text, std::move(left), (this->*operand)());
    }
    return left;
  }
  NodePtr parse_sum() { return parse_operators({"+", "-"}, &TemplateParser::parse_joined); }
  NodePtr parse_joined() { return parse_operators({"~"}, &TemplateParser::parse_product); }
  NodePtr parse_product() { return parse_operators({"*", "/", "//", "%"}, &TemplateParser::parse_power); }
  NodePtr parse_power() { return parse_operators({"**"}, &TemplateParser::parse_filtered); }

  NodePtr parse_filtered() { return parse_suffixes(parse_unary()); }
  NodePtr parse_unary() {
    if (is_sign("-") || is_sign("+")) {
      const Level level(*this);
      NodePtr made = node(NodeKind::unary, now().at, now().text);
      ++at_;
      adopt(*made, parse_unary());
      return made;
    }
    return parse_postfix(parse_primary());
  }
  NodePtr parse_suffixes(NodePtr value) {
    for (;;) {
      if (is_sign("|"))
        value = parse_filter(std::move(value));
      else if (is_word("is"))
        value = parse_test(std::move(value));
      else if (is_sign("(") || is_sign(".") || is_sign("["))
        value = parse_postfix(std::move(value));
      else
        return value;
    }
  }

  NodePtr parse_filter(NodePtr value) {
    ++at_;
    const Span at = now().at;
    NodePtr made = node(NodeKind::filter, at, expect_name("a filter"));
    adopt(*made, std::move(value));
    if (accept_sign("(")) parse_arguments(*made);
    return made;
  }

  NodePtr parse_test(NodePtr value) {
    ++at_;
    const Span at = now().at;
    const bool negated = accept_word("not");
    NodePtr made = node(NodeKind::test, at, expect_name("a test"));
    adopt(*made, std::move(value));
    const Token& next = now();
    if (accept_sign("(")) {
      parse_arguments(*made);
    } else if (next.kind == TokenKind::text || next.kind == TokenKind::integer || next.kind == TokenKind::real ||
               is_sign("[") || is_sign("{") ||
               (next.kind == TokenKind::name && !is_word("and") && !is_word("or") && !is_word("else") &&
                !is_word("is") && !is_word("if") && !is_word("not") && !is_word("in") && !is_word("recursive"))) {
      Parameter argument{"", parse_postfix(parse_primary())};
      deepen(*made, *argument.value);
      made->arguments.push_back(std::move(argument));
    }
    if (!negated) return made;
    NodePtr no = node(NodeKind::unary, at, "not");
    adopt(*no, std::move(made));
    return no;
  }

  // Called after '('.
  void parse_arguments(Node& call) {
    const Level level(*this);
    while (!accept_sign(")")) {
      expect_few(call.arguments.size());
      if (!call.arguments.empty()) {
        expect_sign(",");
        if (accept_sign(")")) return;
      }
      Parameter argument;
      if (is(TokenKind::name) && tokens_[at_ + 1].kind == TokenKind::sign && tokens_[at_ + 1].text == "=") {
        argument.name = now().text;
        at_ += 2;
      } else if (!call.arguments.empty() && !call.arguments.back().name.empty()) {
        fail("an argument without a name follows one with a name");
      }
      argument.value = parse_expression();
      deepen(call, *argument.value);
      call.arguments.push_back(std::move(argument));
    }
  }

  NodePtr parse_postfix(NodePtr value) {
    for (;;) {
      const Span at = now().at;
      if (accept_sign(".")) {
        NodePtr made;
        if (is(TokenKind::integer)) {
          made = node(NodeKind::item, at);
          adopt(*made, std::move(value));
          adopt(*made, parse_primary());
        } else {
          made = node(NodeKind::attribute, at, expect_name("an attribute"));
          adopt(*made, std::move(value));
        }
        value = std::move(made);
      } else if (accept_sign("[")) {
        value = parse_subscript(std::move(value), at);
      } else if (accept_sign("(")) {
        NodePtr made = node(NodeKind::call, at);
        adopt(*made, std::move(value));
        parse_arguments(*made);
        value = std::move(made);
      } else {
        return value;
      }
    }
  }

  // Called after '['.
  NodePtr parse_subscript(NodePtr value, Span at) {
    NodePtr made = node(NodeKind::item, at), first;
    adopt(*made, std::move(value));
    if (!is_sign(":")) first = parse_expression();
    if (is_sign(":")) {
      made->kind = NodeKind::slice;
      adopt(*made, std::move(first));
      for (int i = 0; i < 2; ++i) {
        const bool given = accept_sign(":") && !is_sign(":") && !is_sign("]");
        adopt(*made, given ? parse_expression() : nullptr);
      }
    } else {
      adopt(*made, std::move(first));
    }
    expect_sign("]");
    return made;
  }

  NodePtr parse_primary() {
    const Level level(*this);
    const Token& token = now();
    if (token.kind == TokenKind::name) return parse_name();
    if (token.kind == TokenKind::text) return parse_text();
    if (token.kind == TokenKind::integer || token.kind == TokenKind::real) return parse_number();
    const Span at = token.at;
    if (accept_sign("(")) {
      if (accept_sign(")")) return node(NodeKind::list, at);
      NodePtr inner = parse_tuple();
      expect_sign(")");
      return inner;
    }
    if (accept_sign("[")) return parse_list(at);
    if (accept_sign("{")) return parse_map(at);
    expected("a value");
  }

  NodePtr parse_name() {
    const Token& token = tokens_[at_++];
    const auto literal = [&](Value value) {
      NodePtr made = node(NodeKind::literal, token.at);
      made->value = std::move(value);
      return made;
    };
    if (token.text == "true" || token.text == "True") return literal(Value(true));
    if (token.text == "false" || token.text == "False") return literal(Value(false));
    if (token.text == "none" || token.text == "None") return literal(Value::none());
    return node(NodeKind::name, token.at, token.text);
  }

  NodePtr parse_text() {
    NodePtr made = node(NodeKind::literal, now().at);
    std::string text;
    while (is(TokenKind::text)) text += tokens_[at_++].text;
    made->value = Value(std::move(text));
    return made;
  }

  NodePtr parse_number() {
    const Token& token = tokens_[at_++];
    NodePtr made = node(NodeKind::literal, token.at);
    const char *begin = token.text.data(), *end = begin + token.text.size();
    int64_t integer = 0;
    double real = 0;
    const bool whole = token.kind == TokenKind::integer;
    const std::from_chars_result read =
        whole ? std::from_chars(begin, end, integer) : std::from_chars(begin, end, real);
    if (read.ec != std::errc() || read.ptr != end)
      throw template_error(ErrorKind::Syntax, name_, token.at, "the number is too large");
    made->value = whole ? Value(integer) : Value(real);
    return made;
  }

  // Called after the opening bracket.
  NodePtr parse_list(Span at) {
    NodePtr list = node(NodeKind::list, at);
    while (!accept_sign("]")) {
      if (!list->children.empty()) {
        expect_sign(",");
        if (accept_sign("]")) break;
      }
      adopt(*list, parse_expression());
    }
    return list;
  }
  NodePtr parse_map(Span at) {
    NodePtr map = node(NodeKind::map, at);
    while (!accept_sign("}")) {
      if (!map->children.empty()) {
        expect_sign(",");
        if (accept_sign("}")) break;
      }
      adopt(*map, parse_expression());
      expect_sign(":");
      adopt(*map, parse_expression());
    }
    return map;
  }

  std::vector<Token> tokens_;
  const std::string& name_;
  size_t at_ = 0;
  int level_ = 0, loops_ = 0;
};

}  // namespace

NodePtr parse_template(std::string_view text, const std::string& name) {
  return TemplateParser(tokens_of_template(text, name), name).run();
}

}  // namespace harmonics::engine::jinja
