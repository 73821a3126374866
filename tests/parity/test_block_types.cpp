// Block types: bytes and numbers equal those of the gguf package (make_block_types.py).
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_weighted.hpp>

#include "golden.hpp"

namespace harmonics::engine::parity {

TEST_CASE("block types: blocks decode to the numbers of the gguf package") {
  const TensorFile file = golden("block_types.safetensors");
  const char* name = GENERATE("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
                              "iq4_nl", "iq4_xs");
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
  const char* name = GENERATE("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4");
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

TEST_CASE("block types: searched scales lose no more than ggml's") {
  const TensorFile file = golden("block_types.safetensors");
  const char* name = GENERATE("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs");
  CAPTURE(name);
  const auto searched = below(file, "searched");
  const HTensor& x = searched.at("numbers");
  const HTensor y = cast(cast(x, dtype_named(name)), DType::F32);
  double squares = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double lost = static_cast<double>(y.data<float>()[i]) - static_cast<double>(x.data<float>()[i]);
    squares += lost * lost;
  }
  const double error = std::sqrt(squares / static_cast<double>(x.size())),
               reference = static_cast<double>(below(file, name).at("error").data<float>()[0]);
  CAPTURE(error, reference);
  CHECK(error <= 1.001 * reference);
  CHECK(error >= 0.5 * reference);
}

TEST_CASE("block types: with importance, searched scales lose no more than ggml's") {
  const TensorFile file = golden("block_types.safetensors");
  const char* name =
      GENERATE("q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs");
  CAPTURE(name);
  const auto searched = below(file, "searched");
  const HTensor &x = searched.at("numbers"), &importance = searched.at("importance");
  const auto columns = static_cast<size_t>(importance.size());
  std::vector<float> weights, found(static_cast<size_t>(x.size()));
  for (int64_t i = 0; i < x.size(); ++i) weights.push_back(importance.data<float>()[static_cast<size_t>(i) % columns]);
  std::vector<char> blocks(run_bytes(dtype_named(name), x.size()));
  encode_weighted(dtype_named(name), x.data<float>(), weights.data(), blocks.data(), x.size());
  decode_elements(dtype_named(name), blocks.data(), found.data(), x.size());
  double squares = 0, all = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double lost = static_cast<double>(found[i]) - static_cast<double>(x.data<float>()[i]);
    squares += static_cast<double>(weights[i]) * lost * lost;
    all += static_cast<double>(weights[i]);
  }
  const double error = std::sqrt(squares / all),
               reference = static_cast<double>(below(file, name).at("weighted_error").data<float>()[0]);
  CAPTURE(error, reference);
  CHECK(error <= 1.001 * reference);
  CHECK(error >= 0.4 * reference);
}

}  // namespace harmonics::engine::parity
