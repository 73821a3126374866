// Block types: bytes and numbers equal those of the gguf package (make_block_types.py).
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <fstream>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_weighted.hpp>

#include "golden.hpp"
#include "tests/test_data.hpp"

namespace harmonics::engine::parity {

namespace {

struct StoredTensor {
  uint32_t type = 0;  // 0: f32
  std::vector<char> bytes;
};

// Reads a model in rwkv.cpp's format: six numbers, then for each tensor its number of axes, the length of its name, its
// type, the lengths of the axes, the name and the numbers.
std::map<std::string, StoredTensor> rwkv_tensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::map<std::string, StoredTensor> all;
  const auto number = [&] {
    uint32_t value = 0;
    in.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  };
  for (int i = 0; i < 6; ++i) number();
  while (in.peek() != std::ifstream::traits_type::eof()) {
    const uint32_t axes = number();
    std::string name(number(), '\0');
    StoredTensor tensor{number(), {}};
    uint32_t count = 1;
    for (uint32_t axis = 0; axis < axes; ++axis) count *= number();
    in.read(name.data(), static_cast<std::streamsize>(name.size()));
    tensor.bytes.resize(tensor.type == 0 ? count * sizeof(float) : run_bytes(DType::Q5_0, count));
    in.read(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()));
    REQUIRE(in.good());
    all[name] = std::move(tensor);
  }
  return all;
}

}  // namespace

TEST_CASE("block types: a trained model has the blocks of q5_0 that ggml wrote") {
  const std::string wide = "quant/tiny-rwkv-4v0-660K-FP32.bin", narrow = "quant/tiny-rwkv-4v0-660K-Q5_0.bin";
  if (!testing::have_data(wide) || !testing::have_data(narrow)) return;
  const auto plain = rwkv_tensors(testing::data_path(wide)), blocks = rwkv_tensors(testing::data_path(narrow));
  REQUIRE(plain.size() == blocks.size());
  int compared = 0;
  for (const auto& [name, tensor] : blocks) {
    INFO(name);
    const std::vector<char>& numbers = plain.at(name).bytes;
    if (tensor.type == 0) {
      CHECK(tensor.bytes == numbers);
      continue;
    }
    ++compared;
    std::vector<float> values(numbers.size() / sizeof(float)), back(values.size());
    std::memcpy(values.data(), numbers.data(), numbers.size());
    std::vector<char> found(tensor.bytes.size());
    encode_elements(DType::Q5_0, values.data(), found.data(), static_cast<int64_t>(values.size()));
    CHECK(found == tensor.bytes);
    decode_elements(DType::Q5_0, tensor.bytes.data(), back.data(), static_cast<int64_t>(back.size()));
    for (size_t block = 0; block < values.size(); block += 32) {
      float most = 0, lost = 0;
      for (size_t i = block; i < block + 32; ++i) {
        most = std::fmax(most, std::fabs(values[i]));
        lost = std::fmax(lost, std::fabs(values[i] - back[i]));
      }
      // At most one step, because the number opposite to the largest one has no code. f16 rounds small scales.
      REQUIRE(lost <= most / 16 * 1.01f + 5e-7f);
    }
  }
  CHECK(compared == 28);
}

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

TEST_CASE("block types: blocks whose scale has no inverse or is beyond f16 have the same bytes each time") {
  const char* name = GENERATE("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4");
  const float largest = GENERATE(1e-40f, 1e-37f, 1e7f, 3e38f);
  CAPTURE(name, largest);
  std::vector<float> x(32), weights(32), back(32);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = largest * (static_cast<float>(i % 5) - 2) / 2;
    weights[i] = static_cast<float>(i + 1);
  }
  const DType dtype = dtype_named(name);
  std::vector<char> first(run_bytes(dtype, 32)), again(first.size());
  for (std::vector<char>* blocks : {&first, &again}) {
    std::fill(blocks->begin(), blocks->end(), static_cast<char>(blocks == &first ? 0x55 : 0xAA));
    encode_elements(dtype, x.data(), blocks->data(), 32);
  }
  CHECK(first == again);
  decode_elements(dtype, first.data(), back.data(), 32);
  if (largest < 1)
    for (const float value : back) CHECK(std::fabs(value) <= 1e-6f);
  if (!has_weighted_encoder(dtype)) return;
  volatile char stack[4096];  // what lies where the encoder's indices will
  for (std::vector<char>* blocks : {&first, &again}) {
    for (volatile char& c : stack) c = static_cast<char>(blocks == &first ? 0x55 : 0xAA);
    encode_weighted(dtype, x.data(), weights.data(), blocks->data(), 32);
  }
  CHECK(first == again);
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
