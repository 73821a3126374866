// Any input is text, tokens and raw numbers, or errors. The first four bytes select options.
#include "producers/file/raw.hpp"
#include "producers/file/text.hpp"
#include "producers/file/tokens.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 5) return 0;
  WindowOptions windows;
  windows.window = data[0] % 8;
  windows.shift = data[1] % 8;
  const char* const parts[] = {"", "0-0.5", "0.5-1"};
  windows.part = parts[data[2] % 3];
  const char* const types[] = {"u16", "u32", "u8", "f32"};
  const char* const shapes[] = {"", "2", "2x3"};
  const std::string type = types[data[3] % 4];
  const GuardedBytes bytes("input.bin", data + 4, size - 4);
  refusing([&] { read_everything(*read_text(bytes.file(), {"", false, windows})); });
  refusing([&] { read_everything(*read_text(bytes.file(), {"ab\n", data[2] % 2 == 0, windows})); });
  refusing([&] { read_everything(*read_tokens(bytes.file(), {windows, type, data[3] / 4 % 2 ? 300u : 0u})); });
  return refusing([&] { read_everything(read_raw(bytes.file(), {type, shapes[data[2] % 3], data[1] / 8u})); });
}
