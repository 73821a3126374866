#include <catch2/catch.hpp>

#include <cmath>

#include "numbers.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

using Ints = std::vector<int64_t>;

TEST_CASE("reductions over any axes, kept or dropped") {
  const HTensor x = f32({2, 3}, {1, 5, 3, 4, 2, 6});
  CHECK(numbers<float>(reduce_sum(x, {1})) == std::vector<float>{9, 12});
  CHECK(numbers<float>(reduce_sum(x, {0})) == std::vector<float>{5, 7, 9});
  CHECK(reduce_sum(x, {1, 0}).item<float>() == 21);
  CHECK(reduce_sum(x, {0, 1}, true).shape() == Shape{1, 1});
  CHECK(numbers<float>(reduce_sum(x, {})) == numbers<float>(x));
  CHECK(numbers<float>(reduce_max(x, {1})) == std::vector<float>{5, 6});
  CHECK(numbers<float>(reduce_min(x, {0}, true)) == std::vector<float>{1, 2, 3});
  CHECK(numbers<float>(reduce_prod(x, {1})) == std::vector<float>{15, 48});
  CHECK(reduce_sum(f32({}, {4}), {}).item<float>() == 4);
}

TEST_CASE("reductions of every element type") {
  for (const DType dtype : number_dtypes()) {
    INFO(static_cast<int>(dtype));
    const HTensor x = cast(i64({2, 3}, {1, 2, 3, 4, 5, 2}), dtype);
    CHECK(reduce_sum(x, {1}).dtype() == dtype);
    CHECK(doubles(reduce_sum(x, {1})) == std::vector<double>{6, 11});
    CHECK(doubles(reduce_max(x, {0})) == std::vector<double>{4, 5, 3});
    CHECK(doubles(reduce_min(x, {0})) == std::vector<double>{1, 2, 2});
    CHECK(doubles(reduce_prod(x, {1})) == std::vector<double>{6, 40});
    CHECK(doubles(cumsum(x, 1)) == std::vector<double>{1, 3, 6, 4, 9, 11});
    CHECK(numbers<int64_t>(argmax(x, 1)) == Ints{2, 1});
  }
  const HTensor truth = cast(i64({2, 2}, {0, 1, 0, 0}), DType::Bool);
  CHECK(doubles(reduce_max(truth, {1})) == std::vector<double>{1, 0});  // any
  CHECK(doubles(reduce_min(truth, {0})) == std::vector<double>{0, 0});  // all
}

TEST_CASE("sums run in index order, in f32 for f32 and f16, in f64 for f64, wrapping for integers") {
  CHECK(reduce_sum(f32({3}, {16777216, 1, 1}), {0}).item<float>() == 16777216);
  CHECK(reduce_sum(f32({3}, {1, 1, 16777216}), {0}).item<float>() == 16777218);
  CHECK(reduce_sum(f64({3}, {16777216, 1, 1}), {0}).item<double>() == 16777218);
  CHECK(doubles(reduce_sum(cast(f32({3}, {2048, 1, 1}), DType::F16), {0})) == std::vector<double>{2050});
  CHECK(doubles(reduce_sum(cast(i64({2}, {200, 100}), DType::U8), {0})) == std::vector<double>{44});
  CHECK(numbers<int64_t>(reduce_sum(i64({2}, {INT64_MAX, 1}), {0})) == Ints{INT64_MIN});
  CHECK(numbers<float>(cumsum(f32({3}, {16777216, 1, 1}), 0)) == std::vector<float>{16777216, 16777216, 16777216});
}

TEST_CASE("NaN passes through max and min, and argmax finds the first") {
  const HTensor x = f32({2, 3}, {1, NAN, 3, 4, 5, 6});
  CHECK(std::isnan(numbers<float>(reduce_max(x, {1}))[0]));
  CHECK(numbers<float>(reduce_max(x, {1}))[1] == 6);
  CHECK(std::isnan(numbers<float>(reduce_min(x, {1}))[0]));
  CHECK(numbers<int64_t>(argmax(x, 1)) == Ints{1, 2});
  CHECK(numbers<int64_t>(argmin(f32({4}, {0, NAN, -1, NAN}), 0)) == Ints{1});
  CHECK(reduce_max(f32({2}, {-INFINITY, -INFINITY}), {0}).item<float>() == -INFINITY);
}

TEST_CASE("argmax and argmin name the lowest index of a tie") {
  CHECK(numbers<int64_t>(argmax(f32({2, 3}, {2, 2, 1, 0, 3, 3}), 1)) == Ints{0, 1});
  CHECK(numbers<int64_t>(argmin(f32({2, 3}, {2, 2, 1, 0, 3, 0}), 0)) == Ints{1, 0, 1});
  CHECK(numbers<int64_t>(argmax(counting(DType::I64, {2, 3, 2}), 1)) == Ints{2, 2, 2, 2});
}

TEST_CASE("cumsum runs along its axis") {
  CHECK(numbers<int64_t>(cumsum(counting(DType::I64, {2, 3}), 0)) == Ints{0, 1, 2, 3, 5, 7});
  CHECK(cumsum(HTensor(DType::F32, {0, 2}), 0).shape() == Shape{0, 2});
}

TEST_CASE("reductions: empty sum is 0, empty product 1, empty max and min are errors") {
  CHECK(numbers<float>(reduce_sum(HTensor(DType::F32, {2, 0}), {1})) == std::vector<float>{0, 0});
  CHECK(numbers<float>(reduce_prod(HTensor(DType::F32, {2, 0}), {1})) == std::vector<float>{1, 1});
  CHECK(reduce_max(HTensor(DType::F32, {2, 0}), {0}).shape() == Shape{0});
  CHECK(refusal([] {
          reduce_max(HTensor(DType::F32, {2, 0}), {1});
        }) ==
        "shape error: reduce_max: the operand is f32[2, 0]; axis 1 is empty and has no largest or smallest element");
  CHECK(refusal([] { argmin(HTensor(DType::F32, {0}), 0); }) ==
        "shape error: argmin: the operand is f32[0]; axis 0 is empty and has no largest or smallest element");
}

TEST_CASE("reductions: shape and type errors") {
  const HTensor x(DType::F32, {2, 3});
  CHECK(refusal([&] { reduce_sum(x, {2}); }) ==
        "shape error: reduce_sum: the operand is f32[2, 3]; axis 2 does not exist; axes go from 0 to 2 exclusive");
  CHECK(refusal([&] { reduce_prod(x, {-1}); }) ==
        "shape error: reduce_prod: the operand is f32[2, 3]; axis -1 does not exist; axes go from 0 to 2 exclusive");
  CHECK(refusal([&] {
          reduce_min(x, {1, 1});
        }) == "shape error: reduce_min: the operand is f32[2, 3]; axes = [1, 1] names axis 1 twice");
  CHECK(refusal([&] { reduce_sum(cast(x, DType::Bool), {0}); }) ==
        "type error: reduce_sum: the operand is bool[2, 3]; it must be of number type");
  CHECK(refusal([&] { cumsum(x, 5); }) ==
        "shape error: cumsum: the operand is f32[2, 3]; axis 5 does not exist; axes go from 0 to 2 exclusive");
  CHECK(refusal([&] { argmax(f32({}, {1}), 0); }) ==
        "shape error: argmax: the operand is f32[]; axis 0 does not exist; axes go from 0 to 0 exclusive");
}
