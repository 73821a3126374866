#include <catch2/catch.hpp>

#include <harmonics/ops.hpp>
#include <harmonics/philox.hpp>

#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {
HTensor random(int64_t seed, int64_t step, int64_t stream, const Shape& shape) {
  AttributeMap a;
  a.set("stream", stream).set("shape", shape.vector());
  return apply("random_uniform", a, {HTensor::from<int64_t>({2}, {seed, step})}).at(0);
}
}  // namespace

TEST_CASE("full and iota fill every element type") {
  for (DType d : {DType::Bool, DType::U8, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64}) {
    const HTensor ones = cast(full(d, {2, 3}, 1), DType::F64);
    for (int i = 0; i < 6; ++i) CHECK(ones.data<double>()[i] == 1);
    if (d == DType::Bool) continue;
    const HTensor rows = cast(iota(d, {2, 3}, 0), DType::F64), columns = cast(iota(d, {2, 3}, 1), DType::F64);
    for (int i = 0; i < 6; ++i) {
      CHECK(rows.data<double>()[i] == i / 3);
      CHECK(columns.data<double>()[i] == i % 3);
    }
  }
  CHECK(full(DType::F32, {0, 4}, 2).size() == 0);
}

TEST_CASE("sources refuse types that do not exist") {
  CHECK_THROWS_WITH(full(DType::F32, {-1}, 0), "full: negative dimension in [-1]");
  CHECK_THROWS_WITH(full(DType::F64, {int64_t{1} << 60, 4}, 0),
                    Catch::Matchers::Contains("full: the size of a tensor"));
  CHECK_THROWS_WITH(iota(DType::F32, {3}, 1), "iota: axis 1 does not exist in f32[3]");
  CHECK_THROWS_WITH(iota(DType::Bool, {3}, 0), "iota: the element type must be a number, not bool");
  AttributeMap a;
  a.set("stream", int64_t{1}).set("shape", std::vector<int64_t>{3});
  CHECK_THROWS_WITH(apply("random_uniform", a, {HTensor(DType::F32, {2})}),
                    "random_uniform: the operand is f32[2]; it must be the counter i64[2] of seed and step");
}

TEST_CASE("random numbers are Philox words in the documented order") {
  const int64_t seed = 7, step = (int64_t{1} << 33) + 5, stream = -3;
  const HTensor t = random(seed, step, stream, {3, 3});
  const auto key = philox_key(7, static_cast<uint64_t>(stream));
  for (uint32_t i = 0; i < 9; ++i) {
    const auto words = philox({5, 2, i / 4, 0}, key);
    CHECK(t.data<float>()[i] == unit_float(words[i % 4]));
  }
}

TEST_CASE("random numbers are uniform and differ by seed, step and stream") {
  const int64_t n = 20000;
  const HTensor t = random(1, 1, 1, {n});
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float v = t.data<float>()[i];
    REQUIRE((v >= 0 && v < 1));
    sum += v;
    squares += v * v;
  }
  CHECK(sum / n == Approx(0.5).margin(0.01));
  CHECK(squares / n == Approx(1.0 / 3).margin(0.01));
  for (const HTensor& other : {random(2, 1, 1, {n}), random(1, 2, 1, {n}), random(1, 1, 2, {n})}) {
    int equal = 0;
    for (int64_t i = 0; i < n; ++i) equal += other.data<float>()[i] == t.data<float>()[i];
    CHECK(equal < 10);
  }
  CHECK(std::memcmp(random(1, 1, 1, {n}).bytes(), t.bytes(), n * 4) == 0);
}
