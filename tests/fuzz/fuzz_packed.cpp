// Any input unpacks within the limit, or is an error.
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const GuardedBytes bytes("input.zst", data, size);
  return refusing([&] {
    constexpr size_t limit = size_t{1} << 20;
    const FileBytesPtr file = unpacked(bytes.file(), limit);
    require(file->size() > 0 && (file == bytes.file() || file->size() <= limit), "more than the limit");
  });
}
