// Any input is CSV text or an error. The first two bytes select options.
#include "producers/file/csv.hpp"
#include "tests/fuzz/read_table.hpp"
#include "tests/fuzz/structured.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string table(Choices& c, size_t room) {
  static const std::vector<std::string> words = {"",        "a",        "b",           "NA",      "nan", "true",
                                                 "\"a,b\"", "\"\"\"\"", "caf\xC3\xA9", "caf\xE9", " x "};
  static const std::vector<std::string> ends = {"\n", "\r\n", "\r", "\n\n"};
  const bool wide = c.one_in(4);
  const uint64_t columns = wide ? 1 + c.below(room / 4 + 1) : 1 + c.below(5), rows = 1 + c.below(wide ? 2 : 20);
  const std::string end = c.of(ends);
  std::string text;
  for (uint64_t row = 0; row < rows && text.size() < room; ++row) {
    const uint64_t cells = c.one_in(50) ? c.below(2 * columns) : columns;
    for (uint64_t i = 0; i < cells && text.size() < room; ++i)
      text += (i ? "," : "") + (row == 0 && !wide ? c.of(words) : c.one_in(8) ? c.of(words) : c.number());
    text += end;
  }
  return text;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutate(data, size, max_size, seed, 2, table);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  CsvOptions options;
  const uint8_t rest = choose(data[0], options);
  const char* const headers[] = {"auto", "true", "false"};
  options.header = headers[(data[1] + rest) % 3];
  if (data[1] / 3 % 2) options.delimiter = "tab";
  const GuardedBytes bytes("input.csv", data + 2, size - 2);
  return refusing([&] { read_both_ways([&] { return csv_rows(bytes.file(), options); }, options); });
}
