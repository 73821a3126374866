// Any bytes are a CSV text or a refusal. The first byte chooses options.
#include "producers/file/csv.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t choice = data[0];
  CsvOptions options;
  const char* const headers[] = {"auto", "true", "false"};
  const char* const kinds[] = {"auto", "number", "class"};
  const char* const selections[] = {"", "0", "1-2", "a,b"};
  options.header = headers[choice % 3];
  options.as = kinds[choice / 3 % 3];
  if (choice / 9 % 4) options.selection = selections[choice / 9 % 4];
  if (choice / 36 % 2) options.missing = "0";
  if (choice / 72 % 2) options.delimiter = "tab";
  const GuardedBytes bytes("input.csv", data + 1, size - 1);
  return refusing([&] { read_everything(read_csv(bytes.file(), options)); });
}
