// Arithmetic expressions of model specs: "d_model / n_heads", "ceil_div({m}, 4) * 2".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace harmonics::engine::specs {

using Number = std::variant<int64_t, double>;
std::string text_of(const Number& number);

// Returns the value of a variable, or throws.
using Lookup = std::function<Number(const std::string& variable)>;

// Supports numbers, variables (`x` or `{x}`), + - * / %, parentheses, min, max and ceil_div; real expressions also have
// decimal fractions and sqrt. Integer division truncates towards zero.
class Expression {
 public:
  Expression() = default;  // 0
  // `place`: position of the text in its spec, for errors. Throws ErrorKind::Syntax with the column.
  Expression(std::string_view text, std::string place);
  explicit Expression(int64_t number, std::string place = {});

  // Throw ErrorKind::Weights, with the column, for a division by zero, an overflow, or a real number where an integer
  // is required.
  int64_t whole(const Lookup& lookup) const;
  double real(const Lookup& lookup) const;

  const std::string& text() const { return text_; }
  const std::string& place() const { return place_; }
  std::vector<std::string> variables() const;  // in text order, without duplicates
  bool has_reals() const;                      // whether it has a decimal fraction or sqrt

 private:
  friend class ExpressionReader;
  enum class Kind {
    whole,
    real,
    variable,
    negate,
    add,
    subtract,
    multiply,
    divide,
    modulo,
    least,
    most,
    ceil_div,
    root
  };
  struct Node {
    Kind kind;
    uint32_t offset;  // in the text
    int64_t whole = 0;
    double real = 0;
    std::string variable = {};
  };
  [[noreturn]] void fail(const Node& node, const std::string& what) const;
  int64_t combined(const Node& node, int64_t a, int64_t b) const;
  double combined(const Node& node, double a, double b) const;

  std::string text_ = "0", place_;
  std::vector<Node> nodes_;  // in postfix order; empty: 0
};

}  // namespace harmonics::engine::specs
