// Any bytes are a safetensors file whose tensors are samples, or a refusal.
#include "producers/file/safetensors.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const GuardedBytes bytes("input.safetensors", data, size);
  for (const char* name : {"", "a", "b"})
    refusing([&] {
      read_everything(read_safetensors_array(bytes.file(), *name ? std::optional<std::string>(name) : std::nullopt));
    });
  return 0;
}
