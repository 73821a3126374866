#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/op.hpp"
#include "engine/program/ops/dispatch.hpp"
#include "engine/program/parse_cursor.hpp"
#include "engine/program/print.hpp"

namespace harmonics::engine {

namespace {

// A host function read from text, which only contains its name.
class NamedHost : public HostFunction {
 public:
  explicit NamedHost(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::vector<HTensor> run(const std::vector<HTensor>&) const override {
    throw Error(ErrorKind::Plugin, name_ + " was read from a program's text, which holds its name but not its code");
  }
  std::vector<HTensor> gradient(const std::vector<HTensor>&, const std::vector<HTensor>&,
                                const std::vector<HTensor>&) const override {
    return {};
  }

 private:
  std::string name_;
};

template <typename T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

template <typename T>
bool read_element(std::string_view text, T& element) {
  if constexpr (std::is_same_v<T, bool>) {
    element = text == "true";
    return element || text == "false";
  } else {
    Computed<T> value{};
    if (!read_number(text, value)) return false;
    element = T(value);
    return true;
  }
}

class Parser {
 public:
  Parser(const SourceText& source, ParseCursor& cursor, int depth) : source_(source), cursor_(cursor), depth_(depth) {}

  Program run() {
    cursor_.skip_lines();
    const size_t from = cursor_.place();
    if (cursor_.word() != "program") cursor_.fail(from, "a program's text begins with program \"NAME\"");
    program_.name = cursor_.text();
    for (cursor_.end_line(); !cursor_.at_end(); cursor_.end_line()) line();
    return finished();
  }

 private:
  // Parses the body of a scan, through its line `end`.
  Program body() {
    const size_t from = cursor_.place();
    if (cursor_.word() != "begin") cursor_.fail(from, "the body of a scan begins with begin \"NAME\"");
    if (depth_ > kMostDepth) cursor_.fail(from, "scans are nested more than " + std::to_string(kMostDepth) + " deep");
    program_.name = cursor_.text();
    for (cursor_.end_line(); !at_end_of_body(); cursor_.end_line()) line();
    return finished();
  }
  bool at_end_of_body() {
    if (cursor_.at_end()) cursor_.fail_here("the body of a scan ends with the line end");
    ParseCursor ahead = cursor_;
    if (ahead.word() != "end") return false;
    cursor_.word();
    return true;
  }

  Program finished() {
    try {
      verify(program_);
    } catch (const Error& e) {
      throw SourceErrors(source_, {Error(ErrorKind::Syntax, e.what())});
    }
    return std::move(program_);
  }

  void line() {
    const size_t from = cursor_.place();
    if (cursor_.next_is('%')) return node(from);
    const std::string_view word = cursor_.word();
    if (word == "output") return named(program_.outputs);
    if (word == "update") return named(program_.updates);
    cursor_.fail(from, "expected a value such as %3, output or update");
  }

  void named(std::vector<NamedValue>& list) {
    const size_t from = cursor_.place();
    std::string name = cursor_.text();
    for (const NamedValue& v : list)
      if (v.name == name) cursor_.fail(from, "'" + name + "' is defined twice");
    cursor_.expect('=');
    list.push_back({std::move(name), value()});
  }

  uint64_t value_number() {
    cursor_.expect('%');
    const size_t from = cursor_.place();
    uint64_t number = 0;
    if (!read_number(cursor_.number(), number)) cursor_.fail(from, "expected the number of a value");
    return number;
  }

  ValueId value() {
    const size_t from = cursor_.place();
    const uint64_t number = value_number();
    const auto it = values_.find(number);
    if (it == values_.end()) cursor_.fail(from, "%" + std::to_string(number) + " is used before it is defined");
    return it->second;
  }

  void node(size_t from) {
    std::vector<uint64_t> numbers;
    std::vector<TensorType> types;
    do {
      const size_t at = cursor_.place();
      numbers.push_back(value_number());
      if (values_.count(numbers.back()) || std::count(numbers.begin(), numbers.end(), numbers.back()) > 1)
        cursor_.fail(at, "%" + std::to_string(numbers.back()) + " is defined twice");
      cursor_.expect(':');
      types.push_back(type());
    } while (cursor_.take(','));
    cursor_.expect('=');
    cursor_.skip_space();
    Node n = operation(types);
    if (cursor_.next_is('{')) n.attributes = attributes();
    if (cursor_.take('@')) n.scope = scope();
    if (n.op == Op::scan) {
      cursor_.end_line();
      n.body = std::make_shared<const Program>(Parser(source_, cursor_, depth_ + 1).body());
    }
    const uint32_t index = program_.append(std::move(n), types);
    for (size_t i = 0; i < numbers.size(); ++i) values_[numbers[i]] = program_.nodes[index].outputs[i];
    check(index, types, from);
  }

  // Repeats type inference, in order to report errors with their position.
  void check(uint32_t index, const std::vector<TensorType>& types, size_t from) {
    std::vector<TensorType> want;
    try {
      want = inferred_types(program_, program_.nodes[index]);
    } catch (const Error& e) {
      cursor_.fail(from, e.what(), e.kind(), e.notes());
    }
    if (want.size() != types.size())
      cursor_.fail(from,
                   "the operation has " + quantity(want.size(), "result") + ", not " + std::to_string(types.size()));
    for (size_t i = 0; i < types.size(); ++i)
      if (want[i] != types[i])
        cursor_.fail(from, "the result is " + want[i].str() + ", not " + types[i].str(), ErrorKind::Shape);
  }

  TensorType type() {
    cursor_.skip_space();
    const size_t from = cursor_.place();
    const std::string_view name = cursor_.word();
    std::vector<int64_t> dims;
    cursor_.expect('[');
    if (!cursor_.take(']')) {
      do {
        const size_t at = cursor_.place();
        dims.push_back(0);
        if (!read_number(cursor_.number(), dims.back())) cursor_.fail(at, "expected the size of an axis");
      } while (cursor_.take(','));
      cursor_.expect(']');
    }
    try {
      return from_c(make_type(dtype_named(name), Shape(dims)));
    } catch (const Error& e) {
      cursor_.fail(from, e.what(), e.kind(), e.notes());
    }
  }

  Node operation(const std::vector<TensorType>& types) {
    const size_t from = cursor_.place();
    const std::string_view name = cursor_.word();
    Node n{};
    const OpRow* row = find_any_op(name);
    n.op = row ? row->op : Op::call;
    if (!row) {
      n.callee = std::string(name);
      known_functional(n.callee, from);
    }
    switch (n.op) {
      case Op::input:
      case Op::parameter:
      case Op::state: {
        n.callee = cursor_.text();
        if (!leaves_.emplace(n.op, n.callee).second)
          cursor_.fail(from, "a second " + std::string(name) + " '" + n.callee + "'");
        expect_one(types, from);
        return n;
      }
      case Op::literal:
        expect_one(types, from);
        n.literal = literal(types[0]);
        return n;
      case Op::host_call:
        n.host = std::make_shared<NamedHost>(cursor_.text());
        break;
      case Op::call:
        if (row) known_functional(n.callee = cursor_.text(), from);
        break;
      default:
        break;
    }
    cursor_.expect('(');
    if (!cursor_.take(')')) {
      do n.inputs.push_back(value());
      while (cursor_.take(','));
      cursor_.expect(')');
    }
    return n;
  }

  void known_functional(const std::string& name, size_t from) {
    if (FunctionalTable::global().find(name)) return;
    std::vector<std::string> known;
    for (const OpRow& row : op_rows()) known.emplace_back(row.name);
    for (std::string& known_name : FunctionalTable::global().names()) known.push_back(std::move(known_name));
    const auto near = nearest(name, known);
    cursor_.fail(from, "there is no operation '" + name + "'", ErrorKind::Name,
                 near ? std::vector<std::string>{"did you mean '" + *near + "'?"} : std::vector<std::string>{});
  }

  void expect_one(const std::vector<TensorType>& types, size_t from) {
    if (types.size() != 1) cursor_.fail(from, "this has one result, not " + std::to_string(types.size()));
  }

  HTensor literal(const TensorType& type) {
    cursor_.skip_space();
    const size_t from = cursor_.place();
    return cursor_.next_is('[') ? literal_list(type, from) : literal_bytes(type, from);
  }

  HTensor literal_list(const TensorType& type, size_t from) {
    if (is_stored(type.dtype))
      cursor_.fail(from, "a literal of " + type.str() + " is written as bytes \"...\", not as numbers",
                   ErrorKind::Type);
    std::vector<std::string_view> words;
    cursor_.expect('[');
    if (!cursor_.take(']')) {
      do words.push_back(cursor_.number());
      while (cursor_.take(','));
      cursor_.expect(']');
    }
    if (static_cast<int64_t>(words.size()) != type.shape.count())
      cursor_.fail(from, quantity(words.size(), "number") + " cannot fill " + type.str(), ErrorKind::Shape);
    HTensor t = make_value(type, std::make_shared<Storage>(type.bytes()));
    visit_dtype(type.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      auto* to = static_cast<T*>(t.mutable_bytes());
      for (size_t i = 0; i < words.size(); ++i)
        if (!read_element(words[i], to[i]))
          cursor_.fail(
              from, "'" + std::string(words[i]) + "' is not a number of type " + std::string(dtype_name(type.dtype)));
    });
    return t;
  }

  HTensor literal_bytes(const TensorType& type, size_t from) {
    if (cursor_.word() != "bytes") cursor_.fail(from, "a literal is a list of numbers or bytes \"...\"");
    const std::string hex = cursor_.text();
    if (hex.size() % 2 || hex.size() / 2 != type.bytes())
      cursor_.fail(from,
                   quantity(hex.size(), "hexadecimal digit") + " cannot fill the " + quantity(type.bytes(), "byte") +
                       " of " + type.str(),
                   ErrorKind::Shape);
    HTensor t = make_value(type, std::make_shared<Storage>(type.bytes()));
    auto* to = static_cast<unsigned char*>(t.mutable_bytes());
    for (size_t i = 0; i < type.bytes(); ++i) {
      const auto [end, error] = std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, to[i], 16);
      if (error != std::errc() || end != hex.data() + 2 * i + 2 || (type.dtype == DType::Bool && to[i] > 1))
        cursor_.fail(from, "'" + hex.substr(2 * i, 2) + "' is not a byte of " + type.str());
    }
    return t;
  }

  AttributeMap attributes() {
    AttributeMap map;
    cursor_.expect('{');
    if (cursor_.take('}')) return map;
    do {
      cursor_.skip_space();
      const size_t from = cursor_.place();
      const std::string name = cursor_.next_is_text() ? cursor_.text() : std::string(cursor_.word());
      if (cursor_.place() == from) cursor_.fail_here("expected the name of an attribute");
      if (map.has(name)) cursor_.fail(from, "attribute '" + name + "' is defined twice");
      cursor_.expect('=');
      map.set(name, attribute(name));
    } while (cursor_.take(','));
    cursor_.expect('}');
    return map;
  }

  AttributeValue attribute(const std::string& name) {
    cursor_.skip_space();
    const size_t from = cursor_.place();
    if (cursor_.next_is_text()) return cursor_.text();
    if (cursor_.next_is('[')) return list();
    const std::string_view word = cursor_.number();
    if (word == "true" || word == "false") return word == "true";
    if (word == "floats") {
      cursor_.expect('[');
      cursor_.expect(']');
      return std::vector<double>();
    }
    int64_t whole = 0;
    if (read_number(word, whole)) return whole;
    double real = 0;
    if (read_number(word, real) && !is_whole(word)) return real;
    if (name == "dtype") {
      try {
        return static_cast<int64_t>(dtype_named(word));
      } catch (const Error& e) {
        cursor_.fail(from, e.what(), e.kind(), e.notes());
      }
    }
    cursor_.fail(from, "expected a number, a list, a string, true or false");
  }

  // Parses a list of integers, or of reals if the first element is a real.
  AttributeValue list() {
    const size_t from = cursor_.place();
    std::vector<std::string_view> words;
    cursor_.expect('[');
    if (!cursor_.take(']')) {
      do words.push_back(cursor_.number());
      while (cursor_.take(','));
      cursor_.expect(']');
    }
    std::vector<int64_t> whole(words.size());
    std::vector<double> real(words.size());
    bool all_whole = true, all_real = true;
    for (size_t i = 0; i < words.size(); ++i) {
      all_whole = all_whole && read_number(words[i], whole[i]);
      all_real = all_real && !is_whole(words[i]) && read_number(words[i], real[i]);
    }
    if (all_whole) return whole;
    if (all_real) return real;
    cursor_.fail(from, "a list holds whole numbers, or numbers that all have a point");
  }

  static bool is_whole(std::string_view word) {
    return std::all_of(word.begin(), word.end(), [](char c) { return c == '-' || (c >= '0' && c <= '9'); });
  }

  uint32_t scope() {
    NodeScope scope = scope_of_text(cursor_.next_is_text() ? cursor_.text() : std::string(cursor_.path()));
    cursor_.skip_space();
    size_t from = cursor_.place();
    std::string_view word = cursor_.word();
    if (word == "from") {
      scope.origin = cursor_.text();
      cursor_.skip_space();
      from = cursor_.place();
      word = cursor_.word();
    }
    if (word == "in")
      scope.rounding = rounding();
    else if (!word.empty())
      cursor_.fail(from, scope.origin.empty() ? "expected from \"ORIGIN\", in ROUNDING or the end of the line"
                                              : "expected in ROUNDING or the end of the line");
    const auto [it, fresh] = scopes_.try_emplace(std::move(scope), static_cast<uint32_t>(program_.scopes.size()));
    if (fresh) program_.scopes.push_back(it->first);
    return it->second;
  }

  Rounding rounding() {
    cursor_.skip_space();
    const size_t from = cursor_.place();
    const std::optional<Rounding> named = rounding_named(cursor_.word());
    if (!named || *named == Rounding::none) cursor_.fail(from, "a product rounds to fp16, bf16 or fp8");
    return *named;
  }

  static constexpr int kMostDepth = 16;
  const SourceText& source_;
  ParseCursor& cursor_;
  int depth_;  // number of enclosing scans
  Program program_;
  std::unordered_map<uint64_t, ValueId> values_;
  std::set<std::pair<Op, std::string>> leaves_;
  std::map<NodeScope, uint32_t> scopes_{{NodeScope(), 0}};
};

}  // namespace

Program parse_program(const std::string& text, const std::string& name) {
  const SourceText source(name, text);
  ParseCursor cursor(source);
  return Parser(source, cursor, 0).run();
}

}  // namespace harmonics::engine
