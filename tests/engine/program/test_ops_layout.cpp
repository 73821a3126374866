#include <catch2/catch.hpp>

#include "numbers.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

using Ints = std::vector<int64_t>;

TEST_CASE("layout operations move every element type alike") {
  const std::vector<std::function<HTensor(const HTensor&)>> bodies{
      [](const HTensor& x) {
        return reshape(x, {4, 6});
      },
      [](const HTensor& x) {
        return transpose(x, {2, 0, 1});
      },
      [](const HTensor& x) {
        return broadcast(reshape(x, {2, 3, 1, 4}), {2, 3, 5, 4});
      },
      [](const HTensor& x) {
        return slice(x, {0, 1, 0}, {2, 3, 4}, {1, 1, 3});
      },
      [](const HTensor& x) {
        return pad(x, {1, 0, 2}, {0, 1, 0}, 1, {0, 2, 1});
      },
      [](const HTensor& x) {
        return concat({x, x, slice_axis(x, 1, 0, 1)}, 1);
      },
      [](const HTensor& x) {
        return reverse(x, {0, 2});
      },
  };
  for (const DType dtype : all_dtypes())
    for (const auto& body : bodies) {
      INFO(static_cast<int>(dtype));
      const HTensor x = counting(dtype, {2, 3, 4}), y = body(x);
      CHECK(y.dtype() == dtype);
      CHECK(doubles(y) == doubles(body(cast(x, DType::F64))));
    }
}

TEST_CASE("transpose permutes the axes") {
  const HTensor y = transpose(counting(DType::I64, {2, 3}), {1, 0});
  CHECK(y.shape() == Shape{3, 2});
  CHECK(numbers<int64_t>(y) == Ints{0, 3, 1, 4, 2, 5});
}

TEST_CASE("broadcast aligns trailing axes and stretches ones") {
  const HTensor y = broadcast(i64({2, 1}, {5, 7}), {2, 2, 3});
  CHECK(numbers<int64_t>(y) == Ints{5, 5, 5, 7, 7, 7, 5, 5, 5, 7, 7, 7});
  CHECK(numbers<int64_t>(broadcast(i64({}, {9}), {2})) == Ints{9, 9});
  CHECK(broadcast(i64({1}, {9}), {0}).size() == 0);
}

TEST_CASE("slice takes every stride-th element") {
  const HTensor x = counting(DType::I64, {10});
  CHECK(numbers<int64_t>(slice(x, {1}, {10}, {4})) == Ints{1, 5, 9});
  CHECK(numbers<int64_t>(slice(x, {1}, {9}, {4})) == Ints{1, 5});
  CHECK(slice(x, {3}, {3}, {2}).shape() == Shape{0});
  CHECK(numbers<int64_t>(slice_axis(counting(DType::I64, {2, 3}), 1, 1, 3)) == Ints{1, 2, 4, 5});
}

TEST_CASE("pad fills around and between") {
  const HTensor y = pad(i64({3}, {1, 2, 3}), {2}, {1}, 7, {1});
  CHECK(numbers<int64_t>(y) == Ints{7, 7, 1, 7, 2, 7, 3, 7});
  CHECK(numbers<int64_t>(pad(i64({0}, {}), {2}, {1}, 7, {5})) == Ints{7, 7, 7});
  CHECK(numbers<float>(pad(f32({1}, {1}), {1}, {0}, -INFINITY)) == std::vector<float>{-INFINITY, 1});
}

TEST_CASE("concat joins in order, empty parts included") {
  const HTensor y = concat({i64({2, 1}, {1, 2}), i64({2, 0}, {}), i64({2, 2}, {3, 4, 5, 6})}, 1);
  CHECK(y.shape() == Shape{2, 3});
  CHECK(numbers<int64_t>(y) == Ints{1, 3, 4, 2, 5, 6});
  CHECK(numbers<int64_t>(concat({i64({1}, {4})}, 0)) == Ints{4});
}

TEST_CASE("reverse turns the named axes around") {
  CHECK(numbers<int64_t>(reverse(counting(DType::I64, {2, 3}), {1})) == Ints{2, 1, 0, 5, 4, 3});
  CHECK(numbers<int64_t>(reverse(counting(DType::I64, {2, 3}), {})) == Ints{0, 1, 2, 3, 4, 5});
  CHECK(reverse(HTensor(DType::F32, {0, 3}), {0}).shape() == Shape{0, 3});
}

TEST_CASE("layout operations work at rank 0 and 8") {
  const Shape eight{1, 2, 1, 2, 1, 2, 1, 3};
  const HTensor x = counting(DType::F32, eight);
  const HTensor y = transpose(x, {7, 6, 5, 4, 3, 2, 1, 0});
  CHECK(y.shape() == Shape{3, 1, 2, 1, 2, 1, 2, 1});
  CHECK(doubles(transpose(y, {7, 6, 5, 4, 3, 2, 1, 0})) == doubles(x));
  const HTensor scalar = f32({}, {3});
  CHECK(transpose(scalar, {}).item<float>() == 3);
  CHECK(slice(scalar, {}, {}).item<float>() == 3);
  CHECK(pad(scalar, {}, {}).item<float>() == 3);
}

TEST_CASE("layout operations: shape and type errors") {
  const HTensor x(DType::F32, {2, 3});
  CHECK(refusal([&] { reshape(x, {4}); }) ==
        "shape error: reshape: the operand is f32[2, 3]; its 6 elements cannot fill the shape [4] of 4");
  CHECK(refusal([&] { reshape(x, {-1, -6}); }).find("shape error: reshape: negative dimension in [-1, -6]") == 0);
  CHECK(refusal([&] { transpose(x, {0}); }) ==
        "shape error: transpose: the operand is f32[2, 3]; permutation = [0] must have 2 entries");
  CHECK(refusal([&] {
          transpose(x, {1, 1});
        }) == "shape error: transpose: the operand is f32[2, 3]; permutation = [1, 1] names axis 1 twice");
  CHECK(refusal([&] {
          transpose(x, {0, 2});
        }) == "shape error: transpose: the operand is f32[2, 3]; axis 2 does not exist; axes go from 0 to 2 exclusive");
  CHECK(refusal([&] {
          broadcast(x, {2, 4});
        }) ==
        "shape error: broadcast: the operand is f32[2, 3]; it does not stretch to [2, 4]: aligned at the last axis, "
        "every "
        "size must be equal or 1");
  CHECK(refusal([&] { broadcast(x, {3}); }).find("it does not stretch to [3]") != std::string::npos);
  CHECK(refusal([&] {
          slice(x, {0, 2}, {2, 4});
        }) == "shape error: slice: the operand is f32[2, 3]; along axis 1, start 2 <= limit 4 <= size 3 must hold");
  CHECK(refusal([&] {
          slice(x, {0, 0}, {2, 3}, {1, 0});
        }) == "shape error: slice: the operand is f32[2, 3]; strides = [1, 0] must not hold a number below 1");
  CHECK(refusal([&] {
          pad(x, {0, -1}, {0, 0});
        }) == "shape error: pad: the operand is f32[2, 3]; low = [0, -1] must not hold a number below 0");
  CHECK(refusal([&] {
          pad(x, {0, 1}, {0, INT64_MAX});
        }) == "shape error: pad: the operand is f32[2, 3]; the padded size of axis 1 overflows");
  CHECK(refusal([&] {
          concat({x, HTensor(DType::F32, {3, 3})}, 1);
        }) == "shape error: concat: operands are f32[2, 3] and f32[3, 3]; all sizes but those of axis 1 must be equal");
  CHECK(refusal([&] {
          concat({x, HTensor(DType::F64, {2, 3})}, 1);
        }) == "type error: concat: operands are f32[2, 3] and f64[2, 3]; element types must be equal; cast one");
  CHECK(refusal([&] { concat({}, 0); }) == "type error: concat: operands are none; at least one is needed");
  CHECK(refusal([&] { reverse(x, {2}); }) ==
        "shape error: reverse: the operand is f32[2, 3]; axis 2 does not exist; axes go from 0 to 2 exclusive");
  CHECK(refusal([&] {
          call("reverse", {x, x}, Attributes().set("axes", Ints{0}));
        }) == "type error: reverse takes 1 operand, not 2 (f32[2, 3] and f32[2, 3])");
}
