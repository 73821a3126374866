// Any bytes are JSON lines or a refusal. The first byte chooses options.
#include "producers/file/jsonl.hpp"
#include "tests/fuzz/read_table.hpp"

using namespace harmonics;
using namespace harmonics::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  TableOptions options;
  choose(data[0], options);
  const GuardedBytes bytes("input.jsonl", data + 1, size - 1);
  return refusing([&] { read_both_ways([&] { return json_rows(bytes.file(), options); }, options); });
}
