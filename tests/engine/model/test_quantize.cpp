// Converts the matrices of GGUF files to another type.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_type.hpp>
#include <harmonics/element_weighted.hpp>

#include "engine/model/imported.hpp"
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

// Returns a file of f32 tensors, the first of them unaligned. With `parts` files, returns the one numbered `part`.
std::string model_file(const std::vector<Matrix>& tensors, int64_t part = 0, int64_t parts = 1) {
  GgufWriter writer;
  if (part == 0) {
    writer.set_text("general.architecture", "none");
    writer.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
    writer.set("general.file_type", GgufKind::U32, int64_t{0});
  }
  if (parts > 1) {
    writer.set("split.no", GgufKind::U16, part);
    writer.set("split.count", GgufKind::U16, parts);
  }
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

QuantizeOptions options_of(std::string_view mix) {
  QuantizeOptions options;
  options.mix = type_mix_named(mix);
  return options;
}

}  // namespace

TEST_CASE("quantize: matrices are the bytes of the reference conversion, the rest is as it was") {
  const journeys::Folder folder;
  const std::string from = folder.write("m.gguf", model_file(kTensors)), to = folder / "q.gguf";
  for (const TypeMix& mix : type_mixes()) {
    INFO(mix.name);
    for (const int threads : {1, 3}) {
      const auto executor = make_team_executor(threads);
      const QuantizeResult result = quantize_gguf(from, to, options_of(mix.name), *executor);
      const std::string bytes = read_file(to);
      const GgufFile file = read_gguf(bytes, {to, ErrorKind::Weights});
      REQUIRE(file.tensors.size() == kTensors.size());
      CHECK(file.find("tokenizer.ggml.tokens")->texts()->size() == 2);
      CHECK(file.find("general.architecture")->text() == "none");
      CHECK(file.find("general.file_type")->integer() == mix.file_type);
      const bool blocks = element_type(mix.base).block > 1;
      CHECK(result.converted == (mix.base == DType::F32 ? 0 : 3));
      uint64_t total = 0;
      for (size_t i = 0; i < file.tensors.size(); ++i) {
        const GgufTensor& tensor = file.tensors[i];
        INFO(tensor.name);
        total += tensor.bytes;
        CHECK(result.tensors[i].to == tensor.type->name);
        CHECK(result.tensors[i].bytes_after == tensor.bytes);
        CHECK(result.tensors[i].fallback == (blocks && tensor.name == "blk.0.narrow.weight"));
        size_t count = 1;
        for (const uint64_t length : tensor.shape) count *= length;
        std::vector<float> values(count);
        for (size_t n = 0; n < count; ++n) values[n] = weight(n);
        std::string expected(tensor.bytes, '\0');
        encode_elements(*dtype_of(*tensor.type), values.data(), expected.data(), static_cast<int64_t>(count));
        CHECK(bytes.substr(tensor.offset, tensor.bytes) == expected);
      }
      CHECK(result.bytes_after == total);
      CHECK(result.relative_error < 0.3);  // q2_k has 2 bits
      CHECK((result.relative_error == 0) == (mix.base == DType::F32));
    }
  }
}

TEST_CASE("quantize: a plan is what is written") {
  const journeys::Folder folder;
  const std::string from = folder.write("m.gguf", model_file(kTensors));
  const QuantizeResult planned = plan_quantization(from, options_of("q4_k_m")),
                       written =
                           quantize_gguf(from, folder / "q.gguf", options_of("q4_k_m"), *make_sequential_executor());
  REQUIRE(planned.tensors.size() == written.tensors.size());
  for (size_t i = 0; i < planned.tensors.size(); ++i) CHECK(planned.tensors[i].to == written.tensors[i].to);
  CHECK(planned.bytes_after == written.bytes_after);
  CHECK(planned.bits_per_weight() == Approx(static_cast<double>(written.bytes_after) * 8 / written.elements));
}

TEST_CASE("quantize: errors are weighed by importance, matrix by matrix") {
  const journeys::Folder folder;
  const std::vector<Matrix> tensors = {{"blk.0.attn_q.weight", {70, 512}}, {"blk.0.ffn_up_exps.weight", {3, 70, 256}}};
  const std::string from = folder.write("m.gguf", model_file(tensors)), to = folder / "q.gguf";
  ImportanceMatrix importance;
  ColumnImportance &plain = importance.tensors["blk.0.attn_q.weight"],
                   &stack = importance.tensors["blk.0.ffn_up_exps.weight"];
  plain.columns = 512;
  plain.counts = {1};
  stack.columns = 256;
  stack.counts = {5, 0, 2};
  for (int i = 0; i < 512; ++i) plain.squares.push_back(i % 16 ? 1 : 100);
  for (int i = 0; i < 3 * 256; ++i) stack.squares.push_back(i % 7 ? 1 : 50);
  for (const char* mix : {"q4_k_m", "q4_0", "q5_1", "iq4_xs", "q8_0"}) {
    INFO(mix);
    QuantizeOptions options = options_of(mix);
    options.importance = &importance;
    const QuantizeResult result = quantize_gguf(from, to, options, *make_team_executor(3));
    const std::string bytes = read_file(to);
    const GgufFile file = read_gguf(bytes, {to, ErrorKind::Weights});
    for (size_t t = 0; t < 2; ++t) {
      const GgufTensor& tensor = file.tensors[t];
      const DType dtype = *dtype_of(*tensor.type);
      CHECK(result.tensors[t].importance == has_weighted_encoder(dtype));
      const size_t columns = tensor.shape.back(), rows = t == 0 ? 70 : 210;
      std::string expected(tensor.bytes, '\0');
      std::vector<float> values(rows * columns), weights;
      for (size_t i = 0; i < values.size(); ++i) values[i] = weight(i);
      for (size_t row = 0; row < rows; ++row) {
        const std::vector<float> of_row = (t == 0 ? plain : stack).weights(static_cast<int64_t>(row / 70));
        weights.insert(weights.end(), of_row.begin(), of_row.end());
      }
      encode_weighted(dtype, values.data(), weights.data(), expected.data(), static_cast<int64_t>(values.size()));
      CHECK(bytes.substr(tensor.offset, tensor.bytes) == expected);
    }
  }
  QuantizeOptions options = options_of("q4_k_m");
  options.importance = &importance;
  plain.columns = 511;
  plain.squares.pop_back();
  CHECK(message_of([&] {
          quantize_gguf(from, to, options, *make_sequential_executor());
        }).find("'blk.0.attn_q.weight' has 1 matrix of 512 columns, and its importance 1 of 511") != std::string::npos);
}

TEST_CASE("quantize: a model in parts is written as one file, or as many parts") {
  const journeys::Folder folder;
  const std::string one = folder.write("m.gguf", model_file(kTensors));
  const std::vector<Matrix> few(kTensors.begin(), kTensors.begin() + 2), rest(kTensors.begin() + 2, kTensors.end());
  const std::string from = folder.write("m-00001-of-00003.gguf", model_file({}, 0, 3));
  folder.write("m-00002-of-00003.gguf", model_file(few, 1, 3));
  folder.write("m-00003-of-00003.gguf", model_file(rest, 2, 3));
  const auto executor = make_sequential_executor();
  QuantizeOptions options = options_of("q4_k_m");
  const QuantizeResult whole = quantize_gguf(one, folder / "whole.gguf", options, *executor);
  CHECK(whole.files == std::vector<std::string>{folder / "whole.gguf"});
  CHECK(quantize_gguf(from, folder / "joined.gguf", options, *executor).files.size() == 1);
  CHECK(read_file(folder / "joined.gguf") == read_file(folder / "whole.gguf"));

  options.keep_split = true;
  const std::vector<std::string> names = {folder / "q-00001-of-00003.gguf", folder / "q-00002-of-00003.gguf",
                                          folder / "q-00003-of-00003.gguf"};
  for (const char* to : {"q.gguf", "q", "q-00001-of-00003.gguf"}) {
    INFO(to);
    std::vector<double> shares;
    const QuantizeResult split =
        quantize_gguf(from, folder / to, options, *executor, [&](double share) { shares.push_back(share); });
    CHECK(split.files == names);
    CHECK(split.bytes_after == whole.bytes_after);
    CHECK(split.relative_error == whole.relative_error);
    CHECK(std::is_sorted(shares.begin(), shares.end()));
    CHECK(shares.back() == 1);
    CHECK_FALSE(std::filesystem::exists(folder / "q.gguf"));
    const ImportedModel model = import_model(names[0], Registry::global()),
                        expected = import_model(folder / "whole.gguf", Registry::global());
    REQUIRE(model.tensors.size() == kTensors.size());
    for (const auto& [name, tensor] : expected.tensors) {
      INFO(name);
      CHECK(model.tensor(name).dtype() == tensor.dtype());
      CHECK(std::memcmp(model.tensor(name).bytes(), tensor.bytes(),
                        run_bytes(tensor.dtype(), tensor.shape().count())) == 0);
    }
    const std::string first = read_file(names[0]), second = read_file(names[1]);
    CHECK(read_gguf(first, {names[0], ErrorKind::Weights}).tensors.empty());
    CHECK(read_gguf(second, {names[1], ErrorKind::Weights}).find("general.architecture") == nullptr);
    CHECK(read_gguf(first, {names[0], ErrorKind::Weights}).find("split.tensors.count")->integer() == 5);
    for (const std::string& name : names) std::filesystem::remove(name);
  }
  CHECK(quantize_gguf(one, folder / "single.gguf", options, *executor).files.size() == 1);  // of one file: one file
  CHECK(message_of([&] {
          quantize_gguf(from, folder / "m.gguf", options, *executor);
        }).find("m-00001-of-00003.gguf' is the model that is read") != std::string::npos);
  // A part cannot be written where a folder has its name. The parts written before are removed.
  std::filesystem::create_directories(folder / "r-00003-of-00003.gguf/full");
  CHECK(message_of([&] { quantize_gguf(from, folder / "r.gguf", options, *executor); }) != "");
  CHECK_FALSE(std::filesystem::exists(folder / "r-00001-of-00003.gguf"));
  CHECK_FALSE(std::filesystem::exists(folder / "r-00002-of-00003.gguf"));
}

TEST_CASE("quantize: what cannot be done is refused, and no file is left") {
  const journeys::Folder folder;
  const std::string from = folder.write("m.gguf", model_file(kTensors)), to = folder / "q.gguf";
  const auto executor = make_sequential_executor();
  CHECK(message_of([&] {
          quantize_gguf(from, from, options_of("q8_0"), *executor);
        }).find("is the model that is read") != std::string::npos);
  quantize_gguf(from, to, options_of("q4_0"), *executor);
  const std::string again = folder / "again.gguf";
  QuantizeOptions requantize = options_of("q8_0");
  CHECK(message_of([&] {
          quantize_gguf(to, again, requantize, *executor);
        }).find("the tensor 'blk.0.attn_q.weight' is quantized already, to Q4_0") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(again));
  requantize.requantize = true;
  CHECK(quantize_gguf(to, again, requantize, *executor).converted == 2);
  CHECK(message_of([&] {
          quantize_gguf(folder.write("no.gguf", "GGUX"), again, requantize, *executor);
        }).find("is not a GGUF file") != std::string::npos);
}
