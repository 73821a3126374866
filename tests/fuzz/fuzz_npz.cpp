// Any input is a zip archive or an error; every member is read, and arrays are parsed, also as weights.
#include "engine/model/npz.hpp"
#include "producers/file/npz.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutate(data, size, max_size, seed, 0, [](Choices& c, size_t room) { return zip_file(c, room, npy_file); });
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const GuardedBytes bytes("input.npz", data, size);
  bool small = true;
  refusing([&] {
    for (const ZipMember& member : read_zip_directory(bytes.file()->bytes(), bytes.file()->origin())) {
      small = small && member.size <= (size_t{1} << 22);
      if (member.size > (size_t{1} << 22)) continue;  // highly compressed zeros: valid, but slow to read
      refusing([&] { read_zip_member(bytes.file(), member); });
      if (member.name.size() > 4)
        refusing([&] { read_everything(read_npz(bytes.file(), member.name.substr(0, member.name.size() - 4))); });
    }
  });
  if (small) refusing([&] { read_npz(data, size, "input.npz"); });
  return 0;
}
