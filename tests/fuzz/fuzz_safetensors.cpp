// Any input is a safetensors file or an error, and a parsed file round-trips. Each input is tried unchanged, and as
// "header newline data" with a matching length, so that most mutations get past the first check.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/model/safetensors.hpp"
#include "tests/engine/model/safetensors_bytes.hpp"
#include "tests/fuzz/structured_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void expect_equal(const TensorFile& a, const TensorFile& b) {
  require(a.metadata == b.metadata && a.tensors.size() == b.tensors.size(), "another table came back");
  for (const auto& [name, x] : a.tensors) {
    const auto at = b.tensors.find(name);
    require(at != b.tensors.end() && type_of(x) == type_of(at->second), "a tensor came back as another type");
    const size_t bytes = type_of(x).bytes();
    require(bytes == 0 || std::memcmp(x.bytes(), at->second.bytes(), bytes) == 0,
            "a tensor came back with other numbers");
  }
}

void try_file(const void* data, size_t size) {
  TensorFile file;
  try {
    file = read_safetensors(data, size, "input");
  } catch (const Error& e) {
    const bool is_placed =
        std::strstr(e.what(), "at byte ") || std::strstr(e.what(), " is not a safetensors file, but ");
    require(e.kind() == ErrorKind::Weights && is_placed, "a refusal without its place");
    return;
  }
  const std::string once = write_safetensors(file);
  const TensorFile back = read_safetensors(once.data(), once.size(), "written");
  expect_equal(file, back);
  require(write_safetensors(back) == once, "writing again gave other bytes");
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return testing::mutate(data, size, max_size, seed, 0, [](testing::Choices& c, size_t room) {
    return c.one_in(2) ? testing::safetensors_file(c, room)
                       : testing::safetensors_header(c) + "\n" + std::string(c.below(60), '\1');
  });
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try_file(data, size);
  const auto* newline = static_cast<const uint8_t*>(std::memchr(data, '\n', size));
  if (!newline) return 0;
  const std::string header(data, newline), rest(newline + 1, data + size);
  const std::string bytes = testing::safetensors_bytes(header, rest);
  const std::vector<char> exact(bytes.begin(), bytes.end());
  try_file(exact.data(), exact.size());
  return 0;
}
