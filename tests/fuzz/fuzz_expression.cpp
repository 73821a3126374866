// Any text is an expression of a model spec or an error with its column; an expression has a value or an error.
#include <cmath>
#include <limits>

#include "dsl/spec/expression.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Depends on the length of the name: integers and reals, large and small.
specs::Number fuzzed_value(const std::string& variable) {
  switch (variable.size() % 4) {
    case 0:
      return int64_t{0};
    case 1:
      return int64_t{-7};
    case 2:
      return std::numeric_limits<int64_t>::max();
    default:
      return 0.25;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  return refusing([&] {
    specs::Expression expression;
    try {
      expression = specs::Expression(text, "input");
    } catch (const Error& e) {
      require(std::strstr(e.what(), "input: "), "a refusal without its place");
      throw;
    }
    require(expression.text() == text, "another text came back");
    for (const std::string& variable : expression.variables()) require(!variable.empty(), "a variable without name");
    refusing([&] { require(expression.whole(fuzzed_value) == expression.whole(fuzzed_value), "two values"); });
    refusing([&] { require(std::isfinite(expression.real(fuzzed_value)), "a value that is not a number"); });
  });
}
