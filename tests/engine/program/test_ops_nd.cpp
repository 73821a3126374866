// gather_nd, scatter_nd and reduce_window.
#include <catch2/catch.hpp>

#include <cmath>

#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "numbers.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

using Ints = std::vector<int64_t>;

namespace {

// Computes the gradients of the sum of f's result times `weights`.
std::vector<std::vector<float>> gradients_of(const std::function<HTensor(const Values&)>& f, const Values& inputs,
                                             const HTensor& weights) {
  Tracer tracer("gradients");
  Values traced, wrt;
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    traced.push_back(tracer.input(std::to_string(i), type_of(inputs[i])));
    leaves[std::to_string(i)] = inputs[i];
    if (is_float(inputs[i].dtype())) wrt.push_back(traced.back());
  }
  const HTensor y = f(traced);
  const Values found = gradient(tracer, reduce_sum(y * weights, axes_from(y, 0)), wrt);
  for (size_t i = 0; i < found.size(); ++i) tracer.output(std::to_string(i), found[i]);
  std::vector<std::vector<float>> all;
  for (const HTensor& g : interpret(tracer.take(), leaves)) all.push_back(numbers<float>(g));
  return all;
}

}  // namespace

TEST_CASE("gather_nd takes slices at positions of several axes") {
  const HTensor x = counting(DType::I64, {2, 3, 2});
  CHECK(numbers<int64_t>(gather_nd(x, i64({2, 3}, {1, 2, 0, 0, 0, 1}))) == Ints{10, 1});
  const HTensor rows = gather_nd(x, i64({2, 1, 2}, {1, 0, 0, 2}));
  CHECK(rows.shape() == Shape{2, 1, 2});
  CHECK(numbers<int64_t>(rows) == Ints{6, 7, 4, 5});
  // Selects one number of the second axis for each entry of the first, a batch axis.
  const HTensor chosen = gather_nd(x, i64({2, 1}, {2, 0}), 1);
  CHECK(chosen.shape() == Shape{2, 2});
  CHECK(numbers<int64_t>(chosen) == Ints{4, 5, 6, 7});
  CHECK(gather_nd(x, i64({0, 2}, {})).shape() == Shape{0, 2});
  for (const DType dtype : all_dtypes())
    CHECK(doubles(gather_nd(counting(dtype, {1, 2}), i64({1, 2}, {0, 1}))) == std::vector<double>{1});
}

TEST_CASE("scatter_nd: the last of equal positions remains, sums and extremes take all") {
  const HTensor x = f32({2, 2}, {1, 2, 3, 4}), where = i64({4, 2}, {0, 1, 1, 0, 0, 1, 1, 0});
  const HTensor updates = f32({4}, {10, -20, 5, -30});
  CHECK(numbers<float>(scatter_nd(x, where, updates)) == std::vector<float>{1, 5, -30, 4});
  CHECK(numbers<float>(scatter_nd(x, where, updates, "add")) == std::vector<float>{1, 17, -47, 4});
  CHECK(numbers<float>(scatter_nd(x, where, updates, "max")) == std::vector<float>{1, 10, 3, 4});
  CHECK(numbers<float>(scatter_nd(x, where, updates, "min")) == std::vector<float>{1, 2, -30, 4});
  // With batch axes, each row writes to its own row.
  CHECK(numbers<float>(scatter_nd(x, i64({2, 1}, {1, 0}), f32({2}, {7, 8}), "set", 1)) ==
        std::vector<float>{1, 7, 8, 4});
  for (const DType dtype : number_dtypes())
    for (const auto& [reduction, expected] :
         {std::pair("set", 3.0), std::pair("add", 12.0), std::pair("max", 7.0), std::pair("min", 2.0)})
      CHECK(doubles(scatter_nd(cast(i64({1}, {2}), dtype), i64({2, 1}, {0, 0}), cast(i64({2}, {7, 3}), dtype),
                               reduction)) == std::vector<double>{expected});
  CHECK(doubles(scatter_nd(full(DType::Bool, {2}, 0), i64({1, 1}, {1}), cast(i64({1}, {1}), DType::Bool))) ==
        std::vector<double>{0, 1});
}

TEST_CASE("scatter_nd: NaN wins, 16-bit sums are rounded once, integers wrap") {
  const HTensor y = scatter_nd(f32({2}, {NAN, 1}), i64({3, 1}, {0, 1, 1}), f32({3}, {5, NAN, 6}), "max");
  CHECK(std::isnan(numbers<float>(y)[0]));
  CHECK(std::isnan(numbers<float>(y)[1]));
  const HTensor where = i64({2, 1}, {0, 0});
  CHECK(doubles(scatter_nd(cast(f32({1}, {2048}), DType::F16), where, cast(f32({2}, {1, 1}), DType::F16), "add")) ==
        std::vector<double>{2050});
  CHECK(doubles(scatter_nd(cast(i64({1}, {250}), DType::U8), where, cast(i64({2}, {5, 5}), DType::U8), "add")) ==
        std::vector<double>{4});
}

TEST_CASE("compiled programs clamp positions, immediate calls refuse them") {
  const HTensor x = f32({2, 2}, {1, 2, 3, 4}), where = i64({2, 2}, {-5, 9, 1, 0});
  AttributeMap none;
  CHECK(numbers<float>(evaluate_op(Op::gather_nd, none, {{DType::F32, {2}}}, {x, where})[0]) ==
        std::vector<float>{2, 3});
  CHECK(refusal([&] { gather_nd(x, where); }) ==
        "shape error: gather_nd: index -5 is out of range for axis 0 of f32[2, 2]");
  CHECK(refusal([&] {
          scatter_nd(x, i64({1, 1}, {2}), f32({1, 2}, {0, 0}));
        }) == "shape error: scatter_nd: index 2 is out of range for axis 0 of f32[2, 2]");
}

TEST_CASE("gather_nd and scatter_nd: shape and type errors") {
  const HTensor x(DType::F32, {2, 3}), where(DType::I64, {4, 2});
  CHECK(refusal([&] { gather_nd(x, x); }) ==
        "type error: gather_nd: operands are f32[2, 3] and f32[2, 3]; operand 2 must be of integer type");
  CHECK(refusal([&] {
          gather_nd(x, i64({1, 3}, {0, 0, 0}));
        }) ==
        "shape error: gather_nd: operands are f32[2, 3] and i64[1, 3]; the last axis of the indices holds 3 numbers "
        "for each position; give 1 to 2");
  CHECK(refusal([&] { gather_nd(x, where, 2); }).find("batch_axes = 2") != std::string::npos);
  CHECK(refusal([&] { gather_nd(x, where, 1); }).find("must be equal") != std::string::npos);
  CHECK(refusal([&] {
          gather_nd(HTensor(DType::F32, {0, 3}), i64({1, 1}, {0}));
        }).find("an indexed axis is empty") != std::string::npos);
  CHECK(refusal([&] {
          scatter_nd(x, where, f32({3}, {1, 2, 3}));
        }) == "shape error: scatter_nd: operands are f32[2, 3], i64[4, 2] and f32[3]; the updates must be f32[4]");
  CHECK(refusal([&] { scatter_nd(x, where, HTensor(DType::F64, {4})); }).find("type error: scatter_nd: ") == 0);
  CHECK(refusal([&] { scatter_nd(x, where, HTensor(DType::F32, {4}), "mean"); }).find("use set, add, max or min") !=
        std::string::npos);
}

TEST_CASE("scatter_nd: gradients of equal positions and of ties") {
  const HTensor x = f32({2}, {1, 2}), where = i64({3, 1}, {0, 0, 1}), u = f32({3}, {5, 5, 2}), dy = f32({2}, {10, 20});
  const auto found = [&](const char* reduction) {
    return gradients_of([&](const Values& in) { return scatter_nd(in[0], where, in[1], reduction); }, {x, u}, dy);
  };
  CHECK(found("set") == std::vector<std::vector<float>>{{0, 0}, {0, 10, 20}});
  CHECK(found("add") == std::vector<std::vector<float>>{{10, 20}, {10, 10, 20}});
  CHECK(found("max") == std::vector<std::vector<float>>{{0, 10}, {5, 5, 10}});
}

TEST_CASE("reduce_window slides over any axes") {
  const HTensor x = counting(DType::I64, {3, 4});
  CHECK(numbers<int64_t>(reduce_window(x, "max", {{2, 2}})) == Ints{5, 6, 7, 9, 10, 11});
  CHECK(numbers<int64_t>(reduce_window(x, "sum", {{1, 2}, {2, 2}})) == Ints{1, 5, 17, 21});
  CHECK(numbers<int64_t>(reduce_window(x, "min", {{3, 1}})) == Ints{0, 1, 2, 3});
  CHECK(numbers<int64_t>(reduce_window(x, "sum", {{1, 2}, {}, {0, 1}, {0, 0}, {1, 3}})) == Ints{2, 3, 6, 11, 10, 19});
  CHECK(reduce_window(i64({}, {7}), "sum", {}).item<int64_t>() == 7);
}

TEST_CASE("reduce_window: padding takes no part, NaN wins, every number type") {
  const HTensor x = f32({3}, {-1, NAN, -3});
  const std::vector<float> y = numbers<float>(reduce_window(x, "max", {{1}, {1}, {1}, {0}}));
  CHECK(y[0] == -INFINITY);
  CHECK(y[1] == -1);
  CHECK(std::isnan(y[2]));
  CHECK(y[3] == -3);
  CHECK(numbers<float>(reduce_window(f32({2}, {-1, -2}), "max", {{2}, {}, {1}, {1}})) ==
        std::vector<float>{-1, -1, -2});
  CHECK(numbers<float>(reduce_window(HTensor(DType::F32, {0}), "sum", {{2}, {}, {1}, {1}})) == std::vector<float>{0});
  for (const DType dtype : number_dtypes())
    CHECK(doubles(reduce_window(counting(dtype, {4}), "sum", {{3}})) == std::vector<double>{3, 6});
}

TEST_CASE("reduce_window: the gradient of a maximum is distributed evenly over ties") {
  const auto found = [&](const char* reduction, const Window& window, const HTensor& dy) {
    return gradients_of([&](const Values& in) { return reduce_window(in[0], reduction, window); },
                        {f32({4}, {3, 3, 1, -2})}, dy)[0];
  };
  CHECK(found("max", {{2}}, f32({3}, {10, 20, 30})) == std::vector<float>{5, 25, 30, 0});
  CHECK(found("max", {{2}, {3}, {1}, {1}}, f32({2}, {10, 20})) == std::vector<float>{10, 0, 20, 0});
  CHECK(found("sum", {{2}, {2}, {3}, {0}}, f32({3}, {10, 20, 30})) == std::vector<float>{20, 30, 30, 0});
}

TEST_CASE("reduce_window: shape and type errors") {
  const HTensor x(DType::F32, {2, 3});
  CHECK(refusal([&] {
          reduce_window(x, "max", {{3, 1}});
        }) ==
        "shape error: reduce_window: the operand is f32[2, 3]; along axis 0 a window of 3 with dilation 1 is larger "
        "than the 2 elements padded by 0 and 0");
  CHECK(refusal([&] { reduce_window(x, "max", {{1}}); }).find("shape error: reduce_window: ") == 0);
  CHECK(refusal([&] {
          reduce_window(x, "max", {{1, INT64_MAX}, {}, {}, {0, INT64_MAX}});
        }).find("shape error: reduce_window: ") == 0);
  CHECK(refusal([&] { reduce_window(x, "mean", {{1, 1}}); }).find("use sum, max or min") != std::string::npos);
  CHECK(refusal([&] { reduce_window(HTensor(DType::Bool, {2}), "max", {{1}}); }).find("type error: reduce_window: ") ==
        0);
}
