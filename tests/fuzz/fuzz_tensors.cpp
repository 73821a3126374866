// Any input is a safetensors file whose tensors are samples, or an error.
#include "producers/file/safetensors.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutate(data, size, max_size, seed, 0, safetensors_file);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const GuardedBytes bytes("input.safetensors", data, size);
  for (const char* name : {"", "a", "b"})
    refusing([&] {
      read_everything(read_safetensors_array(bytes.file(), *name ? std::optional<std::string>(name) : std::nullopt));
    });
  return 0;
}
