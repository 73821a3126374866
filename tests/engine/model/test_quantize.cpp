// GGUF files with their matrices in another type.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_type.hpp>

#include "engine/model/quantize.hpp"
#include "formats/gguf.hpp"
#include "tests/message_of.hpp"
#include "tests/plugins/gguf_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

float weight(size_t i) { return std::sin(static_cast<float>(i) * 0.37f) * (1.0f + static_cast<float>(i % 7)); }

struct Matrix {
  const char* name;
  std::vector<uint64_t> shape;
};

// f32 tensors, the first of them far from any alignment of blocks.
std::string model_file(const std::vector<Matrix>& tensors) {
  GgufWriter writer;
  writer.set_text("general.architecture", "none");
  writer.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  writer.set("general.file_type", GgufKind::U32, int64_t{0});
  std::string data;
  for (const Matrix& m : tensors) {
    data.resize(writer.add(m.name, *find_gguf_type(DType::F32), m.shape));
    size_t count = 1;
    for (const uint64_t length : m.shape) count *= length;
    for (size_t i = 0; i < count; ++i) {
      const float value = weight(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  return writer.header() + data;
}

const std::vector<Matrix> kTensors = {{"blk.0.attn_norm.weight", {3}},
                                      {"blk.0.attn_q.weight", {70, 512}},
                                      {"blk.0.ffn_gate_inp.weight", {4, 256}},
                                      {"blk.0.narrow.weight", {5, 33}},
                                      {"output.weight", {9, 256}}};

}  // namespace

TEST_CASE("quantize: matrices are the bytes of the reference conversion, the rest is as it was") {
  const journeys::Folder folder;
  const std::string from = folder.write("m.gguf", model_file(kTensors)), to = folder / "q.gguf";
  for (const std::string& name : quantized_types()) {
    INFO(name);
    const DType dtype = dtype_named(name);
    for (const int threads : {1, 3}) {
      const auto executor = make_team_executor(threads);
      const QuantizeResult result = quantize_gguf(from, to, {dtype, false}, *executor);
      const std::string bytes = read_file(to);
      const GgufFile file = read_gguf(bytes, {to, ErrorKind::Weights});
      REQUIRE(file.tensors.size() == kTensors.size());
      CHECK(file.find("tokenizer.ggml.tokens")->texts()->size() == 2);
      CHECK(file.find("general.architecture")->text() == "none");
      const bool blocks = element_type(dtype).block > 1;
      CHECK(result.converted == (dtype == DType::F32 ? 0 : blocks ? 2 : 3));
      CHECK(result.unfit == (blocks ? std::vector<std::string>{"blk.0.narrow.weight"} : std::vector<std::string>{}));
      uint64_t total = 0;
      for (const GgufTensor& tensor : file.tensors) {
        INFO(tensor.name);
        total += tensor.bytes;
        size_t count = 1;
        for (const uint64_t length : tensor.shape) count *= length;
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i) values[i] = weight(i);
        std::string expected(tensor.bytes, '\0');
        encode_elements(*dtype_of(*tensor.type), values.data(), expected.data(), static_cast<int64_t>(count));
        CHECK(bytes.substr(tensor.offset, tensor.bytes) == expected);
      }
      CHECK(result.bytes_after == total);
      CHECK(result.relative_error < 0.3);  // q2_k has 2 bits
      CHECK((result.relative_error == 0) == (dtype == DType::F32));
    }
  }
}

TEST_CASE("quantize: what cannot be done is refused, and no file is left") {
  const journeys::Folder folder;
  const std::string from = folder.write("m.gguf", model_file(kTensors)), to = folder / "q.gguf";
  const auto executor = make_sequential_executor();
  CHECK(message_of([&] {
          quantize_gguf(from, from, {DType::Q8_0, false}, *executor);
        }).find("are one file") != std::string::npos);
  quantize_gguf(from, to, {DType::Q4_0, false}, *executor);
  const std::string again = folder / "again.gguf";
  CHECK(message_of([&] {
          quantize_gguf(to, again, {DType::Q8_0, false}, *executor);
        }).find("the tensor 'blk.0.attn_q.weight' is quantized already, to Q4_0") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(again));
  CHECK(quantize_gguf(to, again, {DType::Q8_0, true}, *executor).converted == 2);
  CHECK(message_of([&] {
          quantize_gguf(folder.write("no.gguf", "GGUX"), again, {DType::Q8_0, true}, *executor);
        }).find("is no GGUF file") != std::string::npos);
}
