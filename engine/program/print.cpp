#include "engine/program/print.hpp"

#include <algorithm>
#include <cmath>

#include "engine/program/host_function.hpp"
#include "engine/tensor/literal_text.hpp"
#include "engine/program/op.hpp"
#include "engine/program/ops/dispatch.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kLongestList = 32;

template <typename T>
std::string element_text(T stored) {
  if constexpr (std::is_same_v<T, bool>)
    return stored ? "true" : "false";
  else if constexpr (is_float_element<T>)
    return float_text(static_cast<Computed<T>>(stored));
  else
    return std::to_string(stored);
}

// Returns the elements as a list, or "" if it would be too long or lossy, as for NaN, whose payload would be lost.
std::string literal_list(const HTensor& literal) {
  const TensorType type = type_of(literal);
  const int64_t n = type.shape.count();
  if (n > kLongestList || is_stored(type.dtype)) return "";
  return visit_dtype(type.dtype, [&](auto tag) -> std::string {
    using T = typename decltype(tag)::type;
    const auto* x = static_cast<const T*>(literal.bytes());
    std::string text = "[";
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (is_float_element<T>)
        if (std::isnan(static_cast<Computed<T>>(x[i]))) return "";
      if (i) text += ", ";
      text += element_text(x[i]);
    }
    text += ']';
    return text;
  });
}

std::string literal_text(const HTensor& literal) {
  if (std::string list = literal_list(literal); !list.empty()) return list;
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "bytes \"";
  const auto* bytes = static_cast<const unsigned char*>(literal.bytes());
  for (size_t i = 0; i < type_of(literal).bytes(); ++i) {
    text += kHex[bytes[i] >> 4];
    text += kHex[bytes[i] & 15];
  }
  text += '"';
  return text;
}

std::string scope_text(const NodeScope& scope) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/' || c == '-';
  };
  std::string text = scope.text();
  if (text.empty() || !std::all_of(text.begin(), text.end(), plain)) text = quoted(text);
  if (!scope.origin.empty()) text += " from " + quoted(scope.origin);
  if (scope.rounding != Rounding::none) text += " in " + std::string(rounding_name(scope.rounding));
  return text;
}

class Printer {
 public:
  Printer(const Program& program, std::string indent)
      : program_(program), number_(program.values.size(), 0), indent_(std::move(indent)) {}

  // Returns the lines after the first.
  std::string run() {
    for (const Node& n : program_.nodes) node(n);
    for (const NamedValue& v : program_.outputs) named("output", v);
    for (const NamedValue& v : program_.updates) named("update", v);
    return std::move(text_);
  }

 private:
  std::string value(ValueId v) const { return "%" + std::to_string(number_[v]); }

  void named(const char* kind, const NamedValue& v) {
    text_ += indent_ + kind;
    text_ += ' ' + quoted(v.name) + " = " + value(v.value) + '\n';
  }

  void node(const Node& n) {
    text_ += indent_;
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      number_[n.outputs[i]] = next_++;
      if (i) text_ += ", ";
      text_ += value(n.outputs[i]) + ": " + program_.type(n.outputs[i]).str();
    }
    text_ += " = " + operation(n);
    if (const std::string a = n.attributes.str(); !a.empty()) text_ += ' ' + a;
    if (const NodeScope& s = program_.scope_of(n); s != NodeScope()) text_ += " @" + scope_text(s);
    text_ += '\n';
    if (n.op == Op::scan)
      text_ +=
          indent_ + "begin " + quoted(n.body->name) + '\n' + Printer(*n.body, indent_ + "  ").run() + indent_ + "end\n";
  }

  std::string operation(const Node& n) const {
    switch (n.op) {
      case Op::input:
      case Op::parameter:
      case Op::state:
        return std::string(op_name(n.op)) + ' ' + quoted(n.callee);
      case Op::literal:
        return "literal " + literal_text(n.literal);
      case Op::call:
        return (is_word(n.callee) && !find_any_op(n.callee) ? n.callee : "call " + quoted(n.callee)) + operands(n);
      case Op::host_call:
        return "host_call " + quoted(n.host->name()) + operands(n);
      default:
        return std::string(op_name(n.op)) + operands(n);
    }
  }

  std::string operands(const Node& n) const {
    std::string text = "(";
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (i) text += ", ";
      text += value(n.inputs[i]);
    }
    text += ')';
    return text;
  }

  const Program& program_;
  std::vector<uint64_t> number_;
  std::string indent_;
  uint64_t next_ = 0;
  std::string text_;
};

}  // namespace

std::string print(const Program& program) {
  return "program " + quoted(program.name) + "\n" + Printer(program, "").run();
}

}  // namespace harmonics::engine
