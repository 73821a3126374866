// Rows stored as codes: values of the reference in both types.
#include <catch2/catch.hpp>

#include <cmath>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

TEST_CASE("codes: rms_norm_quantize times its scale is rms_norm, within half a step") {
  // 4 and 3 have the mean square 12.5.
  const HTensor x = HTensor::from(Shape{2, 2}, std::vector<float>{4, 3, -1, 0.5f});
  const HTensor gain = HTensor::from(Shape{2}, std::vector<float>{1, 2});
  const auto exact = apply("rms_norm", AttributeMap().set("epsilon", 0.0), {x, gain});
  for (const char* type : {"i8", "f8_e4m3"}) {
    INFO(type);
    const auto found =
        apply("rms_norm_quantize", AttributeMap().set("epsilon", 0.0).set("out_dtype", std::string(type)), {x, gain});
    REQUIRE(found.size() == 2);
    CHECK(found[1].shape() == Shape{2});
    const HTensor codes = cast(found[0], DType::F32);
    const bool whole = std::string_view(type) == "i8";
    CHECK(found[1].data<float>()[0] == Approx(6 / std::sqrt(12.5) / (whole ? 127 : 448)));
    for (int64_t i = 0; i < 4; ++i) {
      const double value = double(codes.data<float>()[i]) * found[1].data<float>()[i / 2];
      const double step = whole ? found[1].data<float>()[i / 2] : std::abs(exact[0].data<float>()[i]) / 8;
      CHECK(std::abs(value - exact[0].data<float>()[i]) <= step / 2 + 1e-6);
    }
    CHECK(codes.data<float>()[1] == (whole ? 127 : 448));
  }
}

TEST_CASE("codes: abs_max is of all numbers, or of each row") {
  const HTensor x = HTensor::from(Shape{2, 3}, std::vector<float>{1, -7, 2, 3, 0, -4});
  const HTensor all = apply("abs_max", {}, {x}).at(0);
  CHECK(all.shape() == Shape{});
  CHECK(all.data<float>()[0] == 7);
  const HTensor rows = apply("abs_max", AttributeMap().set("rows", true), {x}).at(0);
  CHECK(rows.shape() == Shape{2});
  CHECK(rows.data<float>()[1] == 4);
  CHECK(message_of([] { apply("abs_max", AttributeMap().set("rows", true), {HTensor(DType::F32, {})}); }) ==
        "abs_max: a scalar has no rows");
  CHECK(message_of([&] { apply("rms_norm_quantize", {}, {x, x}); }).find("does not fit x") != std::string::npos);
}
