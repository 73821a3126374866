// Any input is an IDX file, plain or compressed, or an error.
#include "producers/file/idx.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutate(data, size, max_size, seed, 0, idx_file);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const GuardedBytes bytes("input.idx", data, size);
  return refusing([&] {
    FileBytesPtr file = bytes.file();
    if (is_gzip(*file)) file = gunzip(file, size_t{1} << 20);
    if (file->size() > (size_t{1} << 22)) return;  // highly compressed zeros: valid, but slow to read
    read_everything(read_idx(file));
  });
}
