// Any bytes are a CSV text or a refusal. The first two bytes choose options.
#include "producers/file/csv.hpp"
#include "tests/fuzz/read_table.hpp"

using namespace harmonics;
using namespace harmonics::testing;

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
