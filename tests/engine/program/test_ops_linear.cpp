#include <catch2/catch.hpp>

#include "numbers.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

using Ints = std::vector<int64_t>;

namespace {

Attributes window(Ints kernel, Ints strides, Ints low, Ints high, Ints dilation, double fill = 0) {
  return Attributes()
      .set("kernel", kernel)
      .set("strides", strides)
      .set("padding_low", low)
      .set("padding_high", high)
      .set("dilation", dilation)
      .set("fill", fill);
}

}  // namespace

TEST_CASE("dot multiplies matrices") {
  const HTensor a = f32({2, 3}, {1, 2, 3, 4, 5, 6}), b = f32({3, 2}, {7, 8, 9, 10, 11, 12});
  CHECK(numbers<float>(matmul(a, b)) == std::vector<float>{58, 64, 139, 154});
  CHECK(numbers<float>(dot(a, transpose(b, {1, 0}), {1}, {1})) == std::vector<float>{58, 64, 139, 154});
}

TEST_CASE("the result of dot has batch, left free, then right free axes") {
  const HTensor a = counting(DType::F64, {3, 2, 4}), b = counting(DType::F64, {5, 2, 3});
  const HTensor y = dot(a, b, {0}, {2}, {1}, {1});
  CHECK(y.shape() == Shape{2, 4, 5});
  const auto at = [](const HTensor& t, int64_t i, int64_t j, int64_t k) {
    return t.data<double>()[(i * t.shape()[1] + j) * t.shape()[2] + k];
  };
  for (int64_t g = 0; g < 2; ++g)
    for (int64_t m = 0; m < 4; ++m)
      for (int64_t n = 0; n < 5; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < 3; ++k) sum += at(a, k, g, m) * at(b, n, g, k);
        CHECK(at(y, g, m, n) == sum);
      }
}

TEST_CASE("dot of no axes is the outer product, of all the inner") {
  const HTensor a = i64({2}, {2, 3}), b = i64({3}, {1, 10, 100});
  CHECK(numbers<int64_t>(dot(a, b, {}, {})) == Ints{2, 20, 200, 3, 30, 300});
  CHECK(dot(b, b, {0}, {0}).item<int64_t>() == 10101);
  CHECK(numbers<float>(dot(HTensor(DType::F32, {2, 0}), HTensor(DType::F32, {0, 2}), {1}, {0})) ==
        std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("dot of every element type, 16-bit floats summed in f32") {
  for (const DType dtype : number_dtypes()) {
    const HTensor a = cast(i64({2, 2}, {1, 2, 3, 4}), dtype), y = matmul(a, a);
    CHECK(y.dtype() == dtype);
    CHECK(doubles(y) == std::vector<double>{7, 10, 15, 22});
  }
  const HTensor ones = cast(f32({3}, {1, 1, 1}), DType::F16), x = cast(f32({3}, {2048, 1, 1}), DType::F16);
  CHECK(doubles(dot(x, ones, {0}, {0})) == std::vector<double>{2050});
  CHECK(dot(f32({3}, {16777216, 1, 1}), f32({3}, {1, 1, 1}), {0}, {0}).item<float>() == 16777216);
}

TEST_CASE("patches lays windows out channel by channel, tap by tap") {
  const HTensor x = counting(DType::F32, {1, 2, 2, 3});
  const HTensor y = call1("patches", {x}, window({2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}));
  CHECK(y.shape() == Shape{1, 8, 1, 2});
  CHECK(numbers<float>(y) == std::vector<float>{0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11});
}

TEST_CASE("patches pads, strides and dilates") {
  const HTensor x = f32({1, 1, 5}, {1, 2, 3, 4, 5});
  const HTensor y = call1("patches", {x}, window({2}, {2}, {1}, {2}, {3}, -1));
  // windows begin at -1, 1, 3 and span 3 elements
  CHECK(y.shape() == Shape{1, 2, 3});
  CHECK(numbers<float>(y) == std::vector<float>{-1, 2, 4, 3, 5, -1});
  const HTensor bytes = cast(x, DType::U8);
  CHECK(doubles(call1("patches", {bytes}, window({1}, {1}, {1}, {0}, {1}, -INFINITY)))[0] == 0);
}

TEST_CASE("unpatches adds what overlaps and drops the padding") {
  const HTensor ones = broadcast(f32({}, {1}), {1, 2, 4});
  const HTensor y = call1("unpatches", {ones}, window({2}, {1}, {1}, {0}, {1}).set("input_shape", Ints{1, 1, 4}));
  CHECK(numbers<float>(y) == std::vector<float>{2, 2, 2, 1});
}

TEST_CASE("patches without windows or images") {
  const HTensor none(DType::F32, {0, 2, 4});
  CHECK(call1("patches", {none}, window({2}, {1}, {0}, {0}, {1})).shape() == Shape{0, 4, 3});
}

TEST_CASE("contractions: shape and type errors") {
  const HTensor a(DType::F32, {2, 3}), b(DType::F32, {4, 5});
  CHECK(refusal([&] { dot(a, b, {1}, {0}); }) ==
        "shape error: dot: operands are f32[2, 3] and f32[4, 5]; contract axis 1 of the left has size 3, axis 0 of the "
        "right 4; "
        "they must be equal");
  CHECK(
      refusal([&] { dot(a, b, {1}, {}); }) ==
      "shape error: dot: operands are f32[2, 3] and f32[4, 5]; lhs_contract = [1] and rhs_contract = [] must pair up");
  CHECK(
      refusal([&] { dot(a, b, {0}, {1}, {0}, {0}); }) ==
      "shape error: dot: operands are f32[2, 3] and f32[4, 5]; lhs_batch and lhs_contract = [0, 0] names axis 0 twice");
  CHECK(refusal([&] { dot(a, cast(b, DType::I64), {1}, {0}); }) ==
        "type error: dot: operands are f32[2, 3] and i64[4, 5]; element types must be equal; cast one");
  const HTensor wide(DType::F32, {1, 1, 1, 1, 1});
  CHECK(refusal([&] { dot(wide, wide, {}, {}); }).find("would have more than 8 dimensions") != std::string::npos);

  const HTensor x(DType::F32, {1, 1, 4, 4});
  CHECK(refusal([&] {
          call1("patches", {x}, window({5, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}));
        }) ==
        "shape error: patches: the operand is f32[1, 1, 4, 4]; along spatial axis 0 a window of 5 with dilation 1 is "
        "larger "
        "than the image of 4 padded by 0 and 0");
  CHECK(refusal([&] { call1("patches", {a}, window({}, {}, {}, {}, {})); }) ==
        "shape error: patches: the operand is f32[2, 3]; images have the shape [N, C, spatial...], not [2, 3]");
  CHECK(refusal([&] {
          call1("patches", {x}, window({2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}));
        }) == "shape error: patches: the operand is f32[1, 1, 4, 4]; kernel = [2] must have 2 entries");
  CHECK(refusal([&] {
          call1("patches", {x}, window({2, 2}, {1, 0}, {0, 0}, {0, 0}, {1, 1}));
        }) == "shape error: patches: the operand is f32[1, 1, 4, 4]; strides = [1, 0] must not hold a number below 1");
  CHECK(refusal([&] {
          call1("unpatches", {x}, window({2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}).set("input_shape", Ints{1, 1, 5, 5}));
        }) ==
        "shape error: unpatches: the operand is f32[1, 1, 4, 4]; the patches of an image f32[1, 1, 5, 5] are f32[1, 4, "
        "4, 4]");
  CHECK(refusal([&] {
          call1("patches", {x}, window({INT64_MAX, 2}, {1, 1}, {0, 0}, {0, 0}, {3, 1}));
        }).find("shape error: ") == 0);
}
