#include <catch2/catch.hpp>

#include <cmath>

#include "engine/program/interpret.hpp"
#include "numbers.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

using Ints = std::vector<int64_t>;

namespace {

// Evaluates by the reference without the checks of immediate operations, as in a compiled program.
HTensor evaluated(Op op, const std::vector<HTensor>& inputs, int64_t axis) {
  AttributeMap attributes;
  attributes.set("axis", axis);
  std::vector<TensorType> types;
  for (const HTensor& t : inputs) types.push_back(type_of(t));
  return evaluate_op(op, attributes, op_row(op).infer(attributes, types), inputs).at(0);
}

}  // namespace

TEST_CASE("gather puts the indices' axes where the axis was") {
  const HTensor x = counting(DType::I64, {2, 3, 2});
  const HTensor y = gather(x, i64({2, 2}, {2, 0, 1, 1}), 1);
  CHECK(y.shape() == Shape{2, 2, 2, 2});
  CHECK(numbers<int64_t>(y) == Ints{4, 5, 0, 1, 2, 3, 2, 3, 10, 11, 6, 7, 8, 9, 8, 9});
  CHECK(numbers<int64_t>(gather(x, i64({}, {1}), 0)) == Ints{6, 7, 8, 9, 10, 11});
  CHECK(gather(x, i64({0}, {}), 2).shape() == Shape{2, 3, 0});
}

TEST_CASE("gather takes every element type and every integer type of index") {
  for (const DType dtype : all_dtypes()) {
    const HTensor x = counting(dtype, {3, 2});
    CHECK(doubles(gather(x, i64({2}, {2, 1}))) == doubles(slice(reverse(x, {0}), {0, 0}, {2, 2})));
  }
  for (const DType dtype :
       {DType::U8, DType::I8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64})
    CHECK(numbers<float>(gather(f32({3}, {5, 6, 7}), cast(i64({2}, {2, 0}), dtype))) == std::vector<float>{7, 5});
}

TEST_CASE("scatter_add adds in order, repeated indices too") {
  const HTensor y =
      scatter_add(f32({3, 2}, {1, 2, 3, 4, 5, 6}), i64({3}, {2, 0, 2}), f32({3, 2}, {10, 20, 30, 40, 50, 60}));
  CHECK(numbers<float>(y) == std::vector<float>{31, 42, 3, 4, 65, 86});
  // 1 is lost if it is added after 2^24, and kept if added before: the order of additions is that of the indices.
  const HTensor big = scatter_add(f32({1}, {0}), i64({3}, {0, 0, 0}), f32({3}, {16777216, 1, 1}));
  CHECK(big.item<float>() == 16777216);
  const HTensor small = scatter_add(f32({1}, {0}), i64({3}, {0, 0, 0}), f32({3}, {1, 1, 16777216}));
  CHECK(small.item<float>() == 16777218);
}

TEST_CASE("scatter_add sums 16-bit floats in f32 and lets integers wrap") {
  const HTensor half =
      scatter_add(cast(f32({1}, {2048}), DType::F16), i64({2}, {0, 0}), cast(f32({2}, {1, 1}), DType::F16));
  CHECK(doubles(half) == std::vector<double>{2050});
  const HTensor bytes = scatter_add(cast(i64({1}, {250}), DType::U8), i64({1}, {0}), cast(i64({1}, {10}), DType::U8));
  CHECK(doubles(bytes) == std::vector<double>{4});
  const HTensor chars =
      scatter_add(cast(i64({1}, {-100}), DType::I8), i64({1}, {0}), cast(i64({1}, {-100}), DType::I8));
  CHECK(doubles(chars) == std::vector<double>{56});
}

TEST_CASE("compiled programs clamp indices") {
  const HTensor x = f32({3}, {5, 6, 7});
  CHECK(numbers<float>(evaluated(Op::gather, {x, i64({4}, {-1, 3, INT64_MAX, INT64_MIN})}, 0)) ==
        std::vector<float>{5, 7, 7, 5});
  CHECK(numbers<float>(evaluated(Op::scatter_add, {x, i64({2}, {-9, 9}), f32({2}, {1, 2})}, 0)) ==
        std::vector<float>{6, 6, 9});
}

TEST_CASE("dynamic slices are clamped so that they fit") {
  const HTensor x = counting(DType::I64, {3, 4});
  CHECK(numbers<int64_t>(dynamic_slice(x, i64({2}, {1, 2}), {2, 2})) == Ints{6, 7, 10, 11});
  CHECK(numbers<int64_t>(dynamic_slice(x, i64({2}, {9, -5}), {2, 2})) == Ints{4, 5, 8, 9});
  const HTensor y = update_slice(x, i64({1, 2}, {70, 71}), i64({2}, {2, 3}));
  CHECK(numbers<int64_t>(y) == Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 70, 71});
  CHECK(dynamic_slice(i64({}, {4}), i64({0}, {}), {}).item<int64_t>() == 4);
  CHECK(dynamic_slice(x, i64({2}, {0, 0}), {0, 2}).shape() == Shape{0, 2});
}

TEST_CASE("top_k gives the largest in falling order, the lowest index first among equals") {
  const auto [values, indices] = top_k(f32({2, 4}, {3, 7, 7, 1, -1, -1, -2, -1}), 3);
  CHECK(numbers<float>(values) == std::vector<float>{7, 7, 3, -1, -1, -1});
  CHECK(numbers<int64_t>(indices) == Ints{1, 2, 0, 0, 1, 3});
  const auto [with_nan, where] = top_k(f32({4}, {1, NAN, INFINITY, NAN}), 3);
  CHECK(numbers<int64_t>(where) == Ints{1, 3, 2});
  CHECK(std::isnan(numbers<float>(with_nan)[0]));
  CHECK(top_k(f32({2}, {1, 2}), 0).first.shape() == Shape{0});
  for (const DType dtype : number_dtypes())
    CHECK(doubles(top_k(cast(i64({3}, {2, 9, 4}), dtype), 2).first) == std::vector<double>{9, 4});
}

TEST_CASE("sort is stable in both directions and takes NaN as the largest") {
  const HTensor x = f32({2, 4}, {3, NAN, 1, 3, -INFINITY, 0, INFINITY, NAN});
  CHECK(numbers<int64_t>(argsort(x, 1)) == Ints{2, 0, 3, 1, 0, 1, 2, 3});
  CHECK(numbers<int64_t>(argsort(x, 1, true)) == Ints{1, 0, 3, 2, 3, 2, 1, 0});
  CHECK(numbers<float>(sort(f32({3, 2}, {5, 1, 4, 3, 6, 2}), 0).first) == std::vector<float>{4, 1, 5, 2, 6, 3});
  CHECK(sort(HTensor(DType::F32, {0, 3}), 0).second.shape() == Shape{0, 3});
  for (const DType dtype : number_dtypes()) {
    const auto [values, indices] = sort(cast(i64({4}, {2, 9, 4, 2}), dtype), 0);
    CHECK(doubles(values) == std::vector<double>{2, 2, 4, 9});
    CHECK(numbers<int64_t>(indices) == Ints{0, 3, 2, 1});
  }
  CHECK(refusal([&] { sort(x, 2); }).find("shape error: sort: ") == 0);
  CHECK(refusal([&] { sort(HTensor(DType::Bool, {2}), 0); }).find("type error: sort: ") == 0);
}

TEST_CASE("index operations: shape and type errors") {
  const HTensor x(DType::F32, {2, 3}), indices(DType::I64, {4});
  CHECK(refusal([&] { gather(x, x, 0); }) ==
        "type error: gather: operands are f32[2, 3] and f32[2, 3]; operand 2 must be of integer type");
  CHECK(refusal([&] { gather(x, indices, 2); }) ==
        "shape error: gather: operands are f32[2, 3] and i64[4]; axis 2 does not exist; axes go from 0 to 2 exclusive");
  CHECK(refusal([&] {
          gather(HTensor(DType::F32, {0, 3}), indices, 0);
        }) == "shape error: gather: operands are f32[0, 3] and i64[4]; axis 0 is empty and no index fits");
  CHECK(refusal([&] { gather(x, i64({2}, {0, 2}), 0); }).find("shape error: gather: index 2 ") == 0);
  CHECK(refusal([&] { gather(x, i64({1}, {-1}), 0); }).find("shape error: gather: index -1 ") == 0);
  CHECK(refusal([&] { scatter_add(x, indices, x, 0); }) ==
        "shape error: scatter_add: operands are f32[2, 3], i64[4] and f32[2, 3]; the updates must be f32[4, 3]");
  CHECK(refusal([&] {
          scatter_add(HTensor(DType::Bool, {2}), indices, HTensor(DType::Bool, {4}), 0);
        }).find("type error: scatter_add: ") == 0);
  CHECK(
      refusal([&] {
        dynamic_slice(x, indices, {1, 1});
      }) ==
      "shape error: dynamic_slice: operands are f32[2, 3] and i64[4]; the starts must be a vector of 2, one per axis");
  CHECK(refusal([&] {
          dynamic_slice(x, i64({2}, {0, 0}), {3, 3});
        }) ==
        "shape error: dynamic_slice: operands are f32[2, 3] and i64[2]; a block of [3, 3] must have the rank of f32[2, "
        "3] and "
        "fit inside it");
  CHECK(refusal([&] {
          update_slice(x, HTensor(DType::F64, {1, 1}), i64({2}, {0, 0}));
        }).find("type error: update_slice: ") == 0);
  CHECK(refusal([&] { top_k(x, 4); }) ==
        "shape error: top_k: the operand is f32[2, 3]; the 4 largest need a last axis of at least that length");
}
