// Any input is JSON lines or an error. The first byte selects options.
#include "producers/file/jsonl.hpp"
#include "tests/fuzz/read_table.hpp"
#include "tests/fuzz/structured.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string scalar(Choices& c) {
  static const std::vector<std::string> words = {"null", "true", "\"word\"", "\"\"", "\"caf\\u00e9\"", "{}", "[]"};
  return c.one_in(8) ? c.of(words) : c.number();
}

// Returns nested arrays of at most `room` bytes. In a ragged one, only the first element of each level is an array, so
// that a few bytes declare a shape with any number of cells.
std::string nest(Choices& c, size_t depth, bool ragged, uint64_t size, size_t room) {
  if (depth == 0) return scalar(c);
  std::string text = "[" + nest(c, depth - 1, ragged, size, room);
  for (uint64_t i = 1; i < size && text.size() < room; ++i)
    text += "," + (ragged ? "0" : nest(c, depth - 1, ragged, size, room / size));
  return text + "]";
}

std::string value(Choices& c, size_t room) {
  const bool ragged = c.one_in(2);
  const uint64_t size = ragged ? uint64_t{1} << c.below(9) : 1 + c.below(3);
  return nest(c, c.below(10), ragged, size, room);
}

std::string document(Choices& c, size_t room) {
  static const std::vector<std::string> keys = {"a", "b", "c", "a.b", "0", "1", ""};
  std::string text;
  for (uint64_t line = 0, lines = 1 + c.below(3); line < lines; ++line) {
    if (c.one_in(3)) {
      text += value(c, room / lines) + "\n";
      continue;
    }
    text += "{";
    for (uint64_t i = 0, fields = 1 + c.below(4); i < fields; ++i)
      text += (i ? ",\"" : "\"") + c.of(keys) + "\":" + value(c, room / (lines * fields));
    text += "}\n";
  }
  return text;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutate(data, size, max_size, seed, 1, document);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  TableOptions options;
  choose(data[0], options);
  const GuardedBytes bytes("input.jsonl", data + 1, size - 1);
  return refusing([&] { read_both_ways([&] { return json_rows(bytes.file(), options); }, options); });
}
