// Any bytes are an NPY file or a refusal; several arrays in one file are walked through.
#include "producers/file/npy.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured.hpp"

using namespace harmonics;
using namespace harmonics::testing;

namespace {

std::string array(Choices& c, size_t room) {
  static const std::vector<std::string> types = {"|b1", "|u1", "|i1", "<i2", ">u2", "<i4", "<u4", ">i8", "<u8", "<f2", "<f4", ">f8", "|O", "<c8"};
  std::string shape = "(";
  for (uint64_t i = 0, axes = c.below(10); i < axes; ++i) shape += std::to_string(c.length()) + (i + 1 < axes || axes == 1 ? ", " : "");
  const std::string text = "{'descr': '" + c.of(types) + "', 'fortran_order': " + (c.one_in(2) ? "True" : "False") + ", 'shape': " + shape + "), }\n";
  const uint64_t promised = c.one_in(4) ? c.length() : text.size();
  std::string file = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(promised) + static_cast<char>(promised >> 8) + text;
  file.append(c.below(std::min<size_t>(room, 600)), '\1');
  return file;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutate(data, size, max_size, seed, 0, array);
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
