#include "dsl/spec/expression.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::specs {

namespace {

constexpr size_t kLongestText = 4096;
constexpr int kDeepest = 64;  // nesting of parentheses and signs

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string position_text(const std::string& place, const std::string& text, size_t offset) {
  return fmt::format("{}: column {} of {}", place.empty() ? "expression" : place, offset + 1,
                     "'" + printable(text, 120) + "'");
}

}  // namespace

std::string text_of(const Number& number) {
  if (const auto* whole = std::get_if<int64_t>(&number)) return std::to_string(*whole);
  return fmt::format("{}", std::get<double>(number));
}

class ExpressionReader {
 public:
  explicit ExpressionReader(Expression& to) : to_(to), text_(to.text_) {}

  void read() {
    if (text_.size() > kLongestText)
      throw Error(ErrorKind::Syntax, fmt::format("{}: an expression of {} characters; the limit is {}", to_.place_,
                                                 text_.size(), kLongestText));
    sum();
    if (at_ < text_.size()) fail(fmt::format("{} does not belong here", shown_name(text_.substr(at_, 1))));
  }

 private:
  using Kind = Expression::Kind;

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::Syntax, position_text(to_.place_, to_.text_, at_) + ": " + what, {},
                {"an expression has whole numbers, variables, + - * / %, parentheses, min, max and ceil_div"});
  }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void add(Kind kind, size_t offset) { to_.nodes_.push_back({kind, static_cast<uint32_t>(offset)}); }

  void sum() {
    product();
    for (;;) {
      space();
      const size_t offset = at_;
      if (take('+'))
        product(), add(Kind::add, offset);
      else if (take('-'))
        product(), add(Kind::subtract, offset);
      else
        return;
    }
  }
  void product() {
    factor();
    for (;;) {
      space();
      const size_t offset = at_;
      if (take('*'))
        factor(), add(Kind::multiply, offset);
      else if (take('/'))
        factor(), add(Kind::divide, offset);
      else if (take('%'))
        factor(), add(Kind::modulo, offset);
      else
        return;
    }
  }
  void factor() {
    if (++depth_ > kDeepest) fail(fmt::format("more than {} levels of parentheses and signs", kDeepest));
    space();
    const size_t offset = at_;
    if (take('-')) {
      factor();
      add(Kind::negate, offset);
    } else if (take('(')) {
      sum();
      close(')');
    } else if (take('{')) {
      space();
      const std::string variable = name();
      if (variable.empty()) fail("a variable's name is missing");
      close('}');
      variable_node(variable, offset);
    } else if (at_ < text_.size() && is_digit(text_[at_])) {
      number();
    } else if (const std::string word = name(); !word.empty()) {
      take('(') ? function(word, offset) : variable_node(word, offset);
    } else {
      fail(at_ == text_.size()
               ? "a number or a variable is missing at the end"
               : fmt::format("{} is neither a number nor a variable", shown_name(text_.substr(at_, 1))));
    }
    --depth_;
  }
  void close(char c) {
    if (!take(c)) fail(fmt::format("'{}' is missing", c));
  }
  std::string name() {
    const size_t from = at_;
    if (at_ < text_.size() && begins_name(text_[at_]))
      while (at_ < text_.size() && (begins_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }
  void variable_node(const std::string& variable, size_t offset) {
    add(Kind::variable, offset);
    to_.nodes_.back().variable = variable;
  }
  void number() {
    const size_t offset = at_;
    const auto digits = [&] {
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    };
    digits();
    bool real = false;
    if (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) ++at_, digits(), real = true;
    if (const size_t e = at_; e + 1 < text_.size() && (text_[e] == 'e' || text_[e] == 'E')) {
      const size_t first = text_[e + 1] == '-' || text_[e + 1] == '+' ? e + 2 : e + 1;
      if (first < text_.size() && is_digit(text_[first])) at_ = first, digits(), real = true;
    }
    const char *from = text_.data() + offset, *to = text_.data() + at_;
    add(real ? Kind::real : Kind::whole, offset);
    const auto result =
        real ? std::from_chars(from, to, to_.nodes_.back().real) : std::from_chars(from, to, to_.nodes_.back().whole);
    if (result.ec != std::errc() || result.ptr != to) {
      at_ = offset;
      fail("the number is too large");
    }
  }
  void function(const std::string& word, size_t offset) {
    constexpr std::pair<std::string_view, Kind> kFunctions[] = {
        {"min", Kind::least}, {"max", Kind::most}, {"ceil_div", Kind::ceil_div}, {"sqrt", Kind::root}};
    const auto* row =
        std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const auto& f) { return f.first == word; });
    if (row == std::end(kFunctions)) {
      at_ = offset;
      fail(fmt::format("there is no function {}", shown_name(word)));
    }
    sum();
    int arguments = 1;
    while (take(',')) {
      sum();
      ++arguments;
      if (row->second == Kind::least || row->second == Kind::most) add(row->second, offset);
    }
    close(')');
    const bool fits = row->second == Kind::root       ? arguments == 1
                      : row->second == Kind::ceil_div ? arguments == 2
                                                      : arguments >= 2;
    if (!fits) {
      at_ = offset;
      fail(fmt::format("{} takes {}, not {}", word,
                       row->second == Kind::root       ? "one argument"
                       : row->second == Kind::ceil_div ? "two arguments"
                                                       : "two or more",
                       arguments));
    }
    if (row->second == Kind::ceil_div || row->second == Kind::root) add(row->second, offset);
  }

  Expression& to_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

Expression::Expression(std::string_view text, std::string place) : text_(text), place_(std::move(place)) {
  ExpressionReader(*this).read();
}

Expression::Expression(int64_t number, std::string place) : text_(std::to_string(number)), place_(std::move(place)) {
  nodes_.push_back({Kind::whole, 0, number});
}

std::vector<std::string> Expression::variables() const {
  std::vector<std::string> names;
  for (const Node& node : nodes_)
    if (node.kind == Kind::variable && std::find(names.begin(), names.end(), node.variable) == names.end())
      names.push_back(node.variable);
  return names;
}

bool Expression::has_reals() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const Node& node) { return node.kind == Kind::real || node.kind == Kind::root; });
}

void Expression::fail(const Node& node, const std::string& what) const {
  throw Error(ErrorKind::Weights, position_text(place_, text_, node.offset) + ": " + what);
}

int64_t Expression::combined(const Node& node, int64_t a, int64_t b) const {
  int64_t result = 0;
  bool overflows = false;
  switch (node.kind) {
    case Kind::add:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Kind::subtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Kind::multiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Kind::least:
      return std::min(a, b);
    case Kind::most:
      return std::max(a, b);
    default: {
      if (b == 0) fail(node, fmt::format("{} is divided by 0", a));
      if (a == std::numeric_limits<int64_t>::min() && b == -1) {
        overflows = node.kind != Kind::modulo;
        break;
      }
      if (node.kind == Kind::modulo) return a % b;
      result = a / b;
      if (node.kind == Kind::ceil_div && a % b != 0 && (a < 0) == (b < 0)) ++result;
    }
  }
  if (overflows) fail(node, fmt::format("the result of {} and {} is beyond 64 bits", a, b));
  return result;
}

double Expression::combined(const Node& node, double a, double b) const {
  switch (node.kind) {
    case Kind::add:
      return a + b;
    case Kind::subtract:
      return a - b;
    case Kind::multiply:
      return a * b;
    case Kind::least:
      return std::min(a, b);
    case Kind::most:
      return std::max(a, b);
    default:
      if (b == 0) fail(node, fmt::format("{} is divided by 0", a));
      return node.kind == Kind::divide ? a / b : node.kind == Kind::modulo ? std::fmod(a, b) : std::ceil(a / b);
  }
}

int64_t Expression::whole(const Lookup& lookup) const {
  std::vector<int64_t> stack;
  for (const Node& node : nodes_) {
    if (node.kind == Kind::whole) {
      stack.push_back(node.whole);
    } else if (node.kind == Kind::variable) {
      const Number value = lookup(node.variable);
      if (const auto* number = std::get_if<int64_t>(&value))
        stack.push_back(*number);
      else
        fail(node, fmt::format("'{}' is {}, but a whole number is needed", node.variable, text_of(value)));
    } else if (node.kind == Kind::real || node.kind == Kind::root) {
      fail(node, "a whole number is needed");
    } else if (node.kind == Kind::negate) {
      if (stack.back() == std::numeric_limits<int64_t>::min()) fail(node, "the result is beyond 64 bits");
      stack.back() = -stack.back();
    } else {
      const int64_t b = stack.back();
      stack.pop_back();
      stack.back() = combined(node, stack.back(), b);
    }
  }
  return stack.empty() ? 0 : stack.back();
}

double Expression::real(const Lookup& lookup) const {
  std::vector<double> stack;
  for (const Node& node : nodes_) {
    if (node.kind == Kind::whole) {
      stack.push_back(static_cast<double>(node.whole));
    } else if (node.kind == Kind::real) {
      stack.push_back(node.real);
    } else if (node.kind == Kind::variable) {
      stack.push_back(std::visit([](auto v) { return static_cast<double>(v); }, lookup(node.variable)));
    } else if (node.kind == Kind::negate) {
      stack.back() = -stack.back();
    } else if (node.kind == Kind::root) {
      if (stack.back() < 0) fail(node, fmt::format("{} has no root", stack.back()));
      stack.back() = std::sqrt(stack.back());
    } else {
      const double b = stack.back();
      stack.pop_back();
      stack.back() = combined(node, stack.back(), b);
    }
  }
  const double result = stack.empty() ? 0 : stack.back();
  if (!std::isfinite(result) && !nodes_.empty()) fail(nodes_.back(), fmt::format("the result is {}", result));
  return result;
}

}  // namespace harmonics::engine::specs
