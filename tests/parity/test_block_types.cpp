// Block types: bytes and numbers equal those of the gguf package (make_block_types.py).
#include <catch2/catch.hpp>

#include <cstring>

#include <harmonics/element_conversion.hpp>

#include "golden.hpp"

namespace harmonics::engine::parity {

TEST_CASE("block types: blocks decode to the numbers of the gguf package") {
  const TensorFile file = golden("block_types.safetensors");
  const char* name = GENERATE("q8_0", "q4_0", "q4_k", "q6_k");
  CAPTURE(name);
  const auto of = below(file, name);
  const HTensor &bytes = of.at("bytes"), &numbers = of.at("numbers");
  const HTensor blocks(dtype_named(name), numbers.shape(), bytes.bytes());
  REQUIRE(type_of(blocks).bytes() == type_of(bytes).bytes());
  const HTensor y = cast(blocks, DType::F32);
  for (int64_t i = 0; i < y.size(); ++i) REQUIRE(y.data<float>()[i] == numbers.data<float>()[i]);
}

TEST_CASE("block types: numbers are quantised to the bytes of the gguf package") {
  const TensorFile file = golden("block_types.safetensors");
  const char* name = GENERATE("q8_0", "q4_0");
  CAPTURE(name);
  const auto of = below(file, name);
  const HTensor blocks = cast(of.at("from"), dtype_named(name));
  const HTensor& bytes = of.at("bytes");
  const auto *found = static_cast<const uint8_t*>(blocks.bytes()), *expected = bytes.data<uint8_t>();
  for (int64_t i = 0; i < bytes.size(); ++i) {
    CAPTURE(i);
    REQUIRE(int{found[i]} == int{expected[i]});
  }
}

}  // namespace harmonics::engine::parity
