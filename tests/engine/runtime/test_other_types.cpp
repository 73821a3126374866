// Weights of a flow in other element types than f32: what is converted, and what is read in its type.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <harmonics/ops.hpp>

#include "engine/model/sealed_file.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

namespace fs = std::filesystem;
using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr int64_t kTypedWidth = 16384;  // 32 rows of it are mapped in every type
const std::string kTypedLarge = "x.h.affine.weight", kTypedSmall = "h.o.affine.weight";
const std::string kTypedFlow =
    "harmonic g { producer x {16384}; producer y {32}; layer h {32}; layer o; cycle (epochs 1) { x -(affine)-> h "
    "-(tanh)-> o; o <-(mse)- y; } }";

std::unique_ptr<BoundGraph> open_typed(bool trains, const std::string& text = kTypedFlow) {
  Graph graph = make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", text)), Registry::global());
  if (!trains) graph.taps.clear();
  return std::make_unique<BoundGraph>(std::move(graph));
}

HTensor typed_noise(const Shape& shape, uint32_t seed) {
  std::vector<float> values = numbers(static_cast<size_t>(shape.count()), seed);
  for (float& v : values) v /= 64;
  return HTensor::from(shape, values);
}

std::map<std::string, HTensor> typed_model(DType matrices, DType vectors) {
  return {{kTypedLarge, cast(typed_noise({32, kTypedWidth}, 1), matrices)},
          {"x.h.affine.bias", cast(typed_noise({32}, 2), vectors)},
          {kTypedSmall, cast(typed_noise({32, 32}, 3), matrices)},
          {"h.o.affine.bias", cast(typed_noise({32}, 4), vectors)}};
}
std::map<std::string, HTensor> typed_in_f32(std::map<std::string, HTensor> tensors) {
  for (auto& [name, tensor] : tensors) tensor = cast(tensor, DType::F32);
  return tensors;
}

struct TypedFile {
  explicit TypedFile(const std::map<std::string, HTensor>& tensors) { save_sealed({{}, tensors}, path); }
  ~TypedFile() { fs::remove(path); }
  std::string path = (fs::temp_directory_path() / ("typed_" + std::to_string(::getpid()) + ".safetensors")).string();
};

std::vector<float> typed_results(BoundGraph& g) {
  bind_rows(g, "x", {kTypedWidth}, numbers(static_cast<size_t>(kTypedWidth * 3), 9));
  const auto kept = keep(g, "");
  CycleRuntime(g, 0, settings(1)).run();
  return kept->values;
}
std::vector<float> typed_training(BoundGraph& g) {
  bind_rows(g, "x", {kTypedWidth}, numbers(static_cast<size_t>(kTypedWidth * 8), 9));
  bind_rows(g, "y", {32}, numbers(32 * 8, 10));
  RunSettings s = settings(4);
  s.optimizer = "sgd(lr=0.125)";
  CycleRuntime(g, 0, s).run();
  return weights(g, kTypedLarge);
}

bool stays_in_file(BoundGraph& g, const std::string& name) { return g.store().find(name)->file != nullptr; }
DType typed_as(BoundGraph& g, const std::string& name) { return g.store().find(name)->type.dtype; }

}  // namespace

TEST_CASE("weights of other types: inference reads large matrices in the file's type, where they lie") {
  for (const DType type : {DType::F16, DType::BF16, DType::Q8_0}) {
    CAPTURE(dtype_name(type));
    const auto tensors = typed_model(type, is_stored(type) ? DType::F32 : type);
    const TypedFile file(tensors);
    auto narrow = open_typed(false), wide = open_typed(false);
    narrow->load_weights(file.path);
    wide->load_weights(TensorFile{{}, typed_in_f32(tensors)}, "w");
    const std::vector<float> found = typed_results(*narrow), expected = typed_results(*wide);
    REQUIRE(found.size() == 96);
    for (size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-4f);
    CHECK(typed_as(*narrow, kTypedLarge) == type);
    CHECK(stays_in_file(*narrow, kTypedLarge));
    CHECK(typed_as(*narrow, kTypedSmall) == DType::F32);
    CHECK(typed_as(*narrow, "x.h.affine.bias") == DType::F32);
  }
}

TEST_CASE("weights of other types: precision int8 quantises what quantized weights are multiplied by") {
  const auto results = [](const std::map<std::string, HTensor>& tensors, Precision precision, bool noted) {
    auto g = open_typed(false);
    g->load_weights(TensorFile{{}, tensors}, "w");
    bind_rows(*g, "x", {kTypedWidth}, numbers(static_cast<size_t>(kTypedWidth * 3), 9));
    const auto kept = keep(*g, "");
    RunSettings s = settings(1);
    s.precision = precision;
    const auto notes = CycleRuntime(*g, 0, s).run().notes;
    CHECK(std::count(notes.begin(), notes.end(),
                     "precision int8 changes nothing here: no weight is of a quantized type") == (noted ? 1 : 0));
    return kept->values;
  };
  const auto tensors = typed_model(DType::Q8_0, DType::F32);
  const std::vector<float> exact = results(tensors, Precision::fp32, false),
                           rounded = results(tensors, Precision::int8, false);
  REQUIRE(exact.size() == rounded.size());
  CHECK(exact != rounded);
  for (size_t i = 0; i < exact.size(); ++i) CHECK(std::abs(exact[i] - rounded[i]) < 0.02f);
  const auto wide = typed_in_f32(tensors);
  CHECK(results(wide, Precision::int8, true) == results(wide, Precision::fp32, false));
}

TEST_CASE("weights of other types: training converts them to f32 first, and says so") {
  for (const DType type : {DType::F16, DType::BF16, DType::F64, DType::Q8_0}) {
    CAPTURE(dtype_name(type));
    const auto tensors = typed_model(type, DType::F32);
    const TypedFile file(tensors);
    auto narrow = open_typed(true), wide = open_typed(true);
    narrow->load_weights(file.path);
    wide->load_weights(TensorFile{{}, typed_in_f32(tensors)}, "w");
    CHECK(typed_training(*narrow) == typed_training(*wide));
    CHECK(typed_as(*narrow, kTypedLarge) == DType::F32);
    CHECK(narrow->weight_notes() ==
          std::vector<std::string>{"2 tensors of " + file.path + " converted, such as 'h.o.affine.weight' from " +
                                   std::string(dtype_name(type)) + " to f32"});
    CHECK(wide->weight_notes().empty());
  }
}

TEST_CASE("weights of other types: a graph that infers with its tap converts them, and trains on") {
  const auto tensors = typed_model(DType::BF16, DType::BF16);
  auto g = open_typed(true), wide = open_typed(true);
  g->load_weights(TensorFile{{}, tensors}, "w");
  wide->load_weights(TensorFile{{}, typed_in_f32(tensors)}, "w");
  LoweringOptions o;
  o.mode = Mode::infer;
  o.wanted = g->results(0);
  bind_rows(*g, "x", {kTypedWidth}, numbers(static_cast<size_t>(kTypedWidth * 8), 9));
  bind_rows(*g, "y", {32}, numbers(32 * 8, 10));
  const CompiledStep alive(g->lower(o), g->store(), g->executor(1), g->compile_options({}));
  CHECK(typed_as(*g, kTypedLarge) == DType::F32);
  CHECK(typed_training(*g) == typed_training(*wide));
}

TEST_CASE("weights of other types: a table of 16-bit floats gives its rows in f32") {
  const std::string text =
      "harmonic g { producer x {*, 200}; layer h {*, 256}; layer o {*, 4}; cycle (epochs 1) { x -(embed)-> h -> o; } }";
  const auto tensors = [](DType type) {
    return std::map<std::string, HTensor>{{"x.h.embed.weight", cast(typed_noise({200, 256}, 1), type)},
                                          {"h.o.affine.weight", typed_noise({4, 256}, 2)},
                                          {"h.o.affine.bias", typed_noise({4}, 3)}};
  };
  for (const DType type : {DType::F16, DType::BF16}) {
    CAPTURE(dtype_name(type));
    const auto results = [&](const std::map<std::string, HTensor>& given, DType expected) {
      auto g = open_typed(false, text);
      g->load_weights(TensorFile{{}, given}, "w");
      bind_rows<int32_t>(*g, "x", {4}, {3, 199, 0, 77});
      const auto kept = keep(*g, "");
      CycleRuntime(*g, 0, settings(1)).run();
      CHECK(typed_as(*g, "x.h.embed.weight") == expected);
      return kept->values;
    };
    const std::vector<float> found = results(tensors(type), type);
    CHECK(found.size() == 16);
    CHECK(found == results(typed_in_f32(tensors(type)), DType::F32));
  }
}

TEST_CASE("weights of other types: integers, and other shapes, are refused with both types") {
  auto g = open_typed(false);
  auto tensors = typed_model(DType::F32, DType::F32);
  tensors[kTypedLarge] = cast(tensors[kTypedLarge], DType::I8);
  g->load_weights(TensorFile{{}, tensors}, "w");
  CHECK(message_of([&] { typed_results(*g); })
            .find("'x.h.affine.weight' is i8[32, 16384] in the given weights, but the "
                  "graph needs f32[32, 16384]; give it weights of that type") != std::string::npos);
}

TEST_CASE("weights of other types: weights= of a function takes them too") {
  const fs::path folder = fs::temp_directory_path() / ("typed_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const auto results = [&](DType type) {
    save_sealed(
        {{}, {{"weight", cast(typed_noise({32, kTypedWidth}, 1), type)}, {"bias", cast(typed_noise({32}, 2), type)}}},
        (folder / "first.safetensors").string());
    auto g =
        open_typed(false, "harmonic g { producer x {16384}; layer o {32}; cycle (epochs 1) { x -(affine(weights=\"" +
                              (folder / "first.safetensors").string() + "\"))-> o; } }");
    g->allow_weights_in(folder.string());
    const std::vector<float> values = typed_results(*g);
    CHECK(typed_as(*g, "x.o.affine.weight") == type);
    return values;
  };
  const std::vector<float> wide = results(DType::F32), narrow = results(DType::BF16);
  REQUIRE(wide.size() == narrow.size());
  REQUIRE(wide.size() == 96);
  for (size_t i = 0; i < wide.size(); ++i) CHECK(std::abs(wide[i] - narrow[i]) < 0.01f);
  fs::remove_all(folder);
}
