// Any input is an NPY file or an error. Several arrays in one file are read one after another.
#include "producers/file/npy.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutate(data, size, max_size, seed, 0, npy_file);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const GuardedBytes bytes("input.npy", data, size);
  return refusing([&] {
    for (size_t at = 0; at < size;) {
      const size_t begin = at;
      read_everything(read_npy_at(bytes.file(), begin, at));
      require(at > begin && at <= size, "an array that ends nowhere");
    }
  });
}
