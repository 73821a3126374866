// Compares elementwise operations with the C++ library, over all types; complete shape errors.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include <harmonics/ops.hpp>

#include "engine/program/ops/dispatch.hpp"
#include "engine/program/tracer.hpp"
#include "tests/conformance/gradcheck.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using testing::random_tensor;

namespace {

std::vector<double> numbers(const HTensor& t) {
  const HTensor d = cast(t, DType::F64);
  return {d.data<double>(), d.data<double>() + d.size()};
}

HTensor of(DType dtype, const std::vector<double>& values) {
  return cast(HTensor::from({static_cast<int64_t>(values.size())}, values), dtype);
}

constexpr double kInf = std::numeric_limits<double>::infinity();

struct UnaryCase {
  const char* op;
  double (*f)(double);
  double low, high;
};
const UnaryCase kUnary[] = {
    {"neg", [](double x) { return -x; }, -3, 3},
    {"abs", [](double x) { return std::abs(x); }, -3, 3},
    {"sign", [](double x) { return x > 0   ? 1.0
                                   : x < 0 ? -1.0
                                           : 0.0; }, -3, 3},
    {"floor", [](double x) { return std::floor(x); }, -3, 3},
    {"ceil", [](double x) { return std::ceil(x); }, -3, 3},
    {"round", [](double x) { return std::rint(x); }, -3, 3},
    {"exp", [](double x) { return std::exp(x); }, -3, 3},
    {"expm1", [](double x) { return std::expm1(x); }, -3, 3},
    {"log", [](double x) { return std::log(x); }, 0.1, 3},
    {"log1p", [](double x) { return std::log1p(x); }, -0.9, 3},
    {"sqrt", [](double x) { return std::sqrt(x); }, 0.1, 3},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1, 3},
    {"sin", [](double x) { return std::sin(x); }, -3, 3},
    {"cos", [](double x) { return std::cos(x); }, -3, 3},
    {"tanh", [](double x) { return std::tanh(x); }, -3, 3},
    {"tan", [](double x) { return std::tan(x); }, -1.4, 1.4},
    {"asin", [](double x) { return std::asin(x); }, -0.9, 0.9},
    {"acos", [](double x) { return std::acos(x); }, -0.9, 0.9},
    {"atan", [](double x) { return std::atan(x); }, -3, 3},
    {"sinh", [](double x) { return std::sinh(x); }, -3, 3},
    {"cosh", [](double x) { return std::cosh(x); }, -3, 3},
    {"asinh", [](double x) { return std::asinh(x); }, -3, 3},
    {"acosh", [](double x) { return std::acosh(x); }, 1.2, 3},
    {"atanh", [](double x) { return std::atanh(x); }, -0.9, 0.9},
    {"erf", [](double x) { return std::erf(x); }, -3, 3},
    {"logistic", [](double x) { return 1 / (1 + std::exp(-x)); }, -3, 3},
};

}  // namespace

TEST_CASE("unary operations compute the function of their name in every float type") {
  const std::pair<DType, double> precisions[] = {
      {DType::F64, 1e-14}, {DType::F32, 1e-6}, {DType::F16, 1e-3}, {DType::BF16, 8e-3}};
  for (const UnaryCase& c : kUnary) {
    for (const auto& [dtype, precision] : precisions) {
      INFO(c.op << " " << dtype_name(dtype));
      const HTensor x = random_tensor({3, 7}, 5, c.low, c.high, dtype);
      const HTensor y = apply(c.op, {}, {x}).at(0);
      REQUIRE(type_of(y) == type_of(x));
      const std::vector<double> in = numbers(x), out = numbers(y);
      for (size_t i = 0; i < in.size(); ++i)
        CHECK(out[i] == Approx(c.f(in[i])).epsilon(precision).margin(precision * 1e-2));
    }
  }
}

TEST_CASE("unary operations: derivatives") {
  for (const UnaryCase& c : kUnary) {
    INFO(c.op);
    if (!find_op(c.op)->gradient) continue;
    testing::check_gradient_of([&](const Values& in) { return apply(c.op, {}, in).at(0); },
                               {random_tensor({3, 5}, 17, c.low, c.high)});
  }
}

TEST_CASE("binary operations: gradients") {
  for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "remainder", "pow", "atan2"}) {
    INFO(op);
    testing::check_gradient_of([&](const Values& in) { return apply(op, {}, in).at(0); },
                               {random_tensor({3, 5}, 1, 0.3, 2.5), random_tensor({3, 5}, 2, 0.4, 1.7)});
  }
  testing::check_gradient_of(
      [](const Values& in) { return remainder(in[0], in[1]); },
      {HTensor::from<double>({4}, {-5.3, 5.3, -7.9, 0.4}), HTensor::from<double>({4}, {1.5, -1.5, -2, 3})});
}

TEST_CASE("select, cast: gradients") {
  const HTensor condition = less(random_tensor({4, 3}, 9), 0.0);
  testing::check_gradient_of([&](const Values& in) { return select(condition, in[0] * in[0], in[1] * 3.0); },
                             {random_tensor({4, 3}, 1), random_tensor({4, 3}, 2)});
  testing::check_gradient_of([](const Values& in) { return mul(in[0], cast(cast(in[0], DType::F64), DType::F64)); },
                             {random_tensor({4}, 1)});
  // The difference step must exceed the resolution of f32.
  testing::check_gradient_of([](const Values& in) { return cast(cast(in[0], DType::F32) * 2.0, DType::F64); },
                             {random_tensor({4}, 1)}, {1e-2, 1e-4, 1e-3});
}

TEST_CASE("elementwise gradients: kinks and domain edges as in PyTorch") {
  Tracer tracer("kinks");
  const HTensor x = tracer.input("x", {DType::F64, {3}}), y = tracer.input("y", {DType::F64, {3}});
  const HTensor value = reduce_sum(abs(x) + maximum(x, y) * 10.0 + minimum(x, y) * 100.0 + pow(x, y) * 1000.0, {0});
  const Values g = gradient(tracer, value, {x, y});
  tracer.output("x", g[0]);
  tracer.output("y", g[1]);
  const Program program = tracer.take();
  const Values r =
      interpret(program, {{"x", HTensor::from<double>({3}, {0, 2, 0})}, {"y", HTensor::from<double>({3}, {0, 2, 3})}});
  // torch: |x|' (0) = 0; ties of max and min share; 0^0 has gradient 0 in the base, a base of 0 none in the exponent.
  CHECK(numbers(r[0]) == std::vector<double>{0 + 5 + 50 + 0, 1 + 5 + 50 + 4000, 0 + 0 + 100 + 0});
  CHECK(numbers(r[1])[0] == 55);
  CHECK(numbers(r[1])[1] == Approx(55 + 4000 * std::log(2.0)));
  CHECK(numbers(r[1])[2] == 10);
}

TEST_CASE("elementwise: integers wrap, divide towards zero and never trap") {
  const auto two = [](const char* op, DType d, std::vector<double> a, std::vector<double> b) {
    return numbers(apply(op, {}, {of(d, a), of(d, b)}).at(0));
  };
  CHECK(two("add", DType::I8, {127, -128}, {1, -1}) == std::vector<double>{-128, 127});
  CHECK(two("mul", DType::U8, {200, 3}, {2, 5}) == std::vector<double>{144, 15});
  CHECK(two("sub", DType::U16, {0}, {1}) == std::vector<double>{65535});
  CHECK(two("div", DType::I32, {7, -7, 5, -2147483648.0}, {2, 2, 0, -1}) ==
        std::vector<double>{3, -3, 0, -2147483648.0});
  CHECK(two("remainder", DType::I32, {7, -7, 5, -2147483648.0}, {3, 3, 0, -1}) == std::vector<double>{1, -1, 0, 0});
  CHECK(two("maximum", DType::I64, {3, -4}, {2, 9}) == std::vector<double>{3, 9});
  CHECK(numbers(neg(of(DType::I8, {-128, 5}))) == std::vector<double>{-128, -5});
  CHECK(numbers(abs(of(DType::I16, {-3, 4}))) == std::vector<double>{3, 4});
}

TEST_CASE("NaN passes through maximum and minimum, NaN and -0 through sign, logistic does not overflow") {
  const double nan = std::nan("");
  const HTensor a = of(DType::F32, {nan, 1}), b = of(DType::F32, {1, nan});
  for (double v : numbers(maximum(a, b))) CHECK(std::isnan(v));
  for (double v : numbers(minimum(a, b))) CHECK(std::isnan(v));
  CHECK(std::isnan(numbers(sign(a))[0]));
  CHECK(std::signbit(numbers(sign(of(DType::F32, {-0.0})))[0]));
  CHECK(numbers(logistic(of(DType::F64, {-1000, 1000, -kInf, kInf}))) == std::vector<double>{0, 1, 0, 1});
}

TEST_CASE("comparisons and logic give bool") {
  const HTensor a = of(DType::F32, {1, 2, 3}), b = of(DType::F32, {2, 2, 2});
  CHECK(type_of(less(a, b)) == TensorType{DType::Bool, {3}});
  CHECK(numbers(less(a, b)) == std::vector<double>{1, 0, 0});
  CHECK(numbers(less_equal(a, b)) == std::vector<double>{1, 1, 0});
  CHECK(numbers(equal(a, b)) == std::vector<double>{0, 1, 0});
  const HTensor p = of(DType::Bool, {0, 0, 1, 1}), q = of(DType::Bool, {0, 1, 0, 1});
  CHECK(numbers(logical_and(p, q)) == std::vector<double>{0, 0, 0, 1});
  CHECK(numbers(logical_or(p, q)) == std::vector<double>{0, 1, 1, 1});
  CHECK(numbers(logical_xor(p, q)) == std::vector<double>{0, 1, 1, 0});
  CHECK(numbers(logical_not(p)) == std::vector<double>{1, 1, 0, 0});
  CHECK(numbers(equal(p, q)) == std::vector<double>{1, 0, 0, 1});
}

TEST_CASE("is_nan and is_inf, in every float type") {
  for (const DType dtype : {DType::F64, DType::F32, DType::F16, DType::BF16}) {
    const HTensor x = of(dtype, {1, std::nan(""), kInf, -kInf, 0});
    CHECK(type_of(is_nan(x)) == TensorType{DType::Bool, {5}});
    CHECK(numbers(is_nan(x)) == std::vector<double>{0, 1, 0, 0, 0});
    CHECK(numbers(is_inf(x)) == std::vector<double>{0, 0, 1, 1, 0});
  }
}

TEST_CASE("atan2: quadrants, and no gradient at the origin") {
  const HTensor y = of(DType::F64, {0, 1, 0, -1, 0}), x = of(DType::F64, {1, 0, -1, 0, 0});
  const double pi = 3.14159265358979323846;
  CHECK(numbers(atan2(y, x)) == std::vector<double>{0, pi / 2, pi, -pi / 2, 0});
  Tracer tracer("angle");
  const HTensor a = tracer.input("a", {DType::F64, {1}}), b = tracer.input("b", {DType::F64, {1}});
  const Values g = gradient(tracer, reduce_sum(atan2(a, b), {0}), {a, b});
  tracer.output("a", g[0]);
  tracer.output("b", g[1]);
  const HTensor zero = of(DType::F64, {0});
  for (const HTensor& d : interpret(tracer.take(), {{"a", zero}, {"b", zero}}))
    CHECK(numbers(d) == std::vector<double>{0});
}

TEST_CASE("bits: every integer type, and shifts by the width or more leave nothing") {
  const auto two = [](const char* op, DType d, std::vector<double> a, std::vector<double> b) {
    return numbers(apply(op, {}, {of(d, a), of(d, b)}).at(0));
  };
  for (const DType d : {DType::U8, DType::I8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64}) {
    INFO(dtype_name(d));
    CHECK(two("bit_and", d, {12, 127}, {10, 1}) == std::vector<double>{8, 1});
    CHECK(two("bit_or", d, {12, 64}, {10, 1}) == std::vector<double>{14, 65});
    CHECK(two("bit_xor", d, {12, 127}, {10, 1}) == std::vector<double>{6, 126});
    CHECK(two("shift_left", d, {3, 5, 5}, {2, 0, 64}) == std::vector<double>{12, 5, 0});
    CHECK(two("shift_right_logical", d, {100, 5, 5}, {2, 0, 64}) == std::vector<double>{25, 5, 0});
    CHECK(two("shift_right_arithmetic", d, {100, 5, 5}, {2, 0, 64}) == std::vector<double>{25, 5, 0});
  }
  CHECK(two("shift_left", DType::U8, {255, 3}, {4, 8}) == std::vector<double>{240, 0});
  CHECK(two("shift_left", DType::I8, {127, -1}, {1, 7}) == std::vector<double>{-2, -128});
  CHECK(two("shift_right_logical", DType::I8, {-1, -128}, {4, 7}) == std::vector<double>{15, 1});
  CHECK(two("shift_right_logical", DType::I32, {-1, 8}, {28, -1}) == std::vector<double>{15, 0});
  CHECK(two("shift_right_arithmetic", DType::I16, {-256, -1, -256, 256}, {4, 15, 16, -1}) ==
        std::vector<double>{-16, -1, -1, 0});
  CHECK(two("shift_right_arithmetic", DType::U8, {255, 255}, {4, 8}) == std::vector<double>{15, 0});
}

TEST_CASE("cast: truncates, saturates and rounds to even") {
  const HTensor x = of(DType::F64, {1.9, -1.9, 300, -300, std::nan(""), kInf, 0.25});
  CHECK(numbers(cast(x, DType::I8)) == std::vector<double>{1, -1, 127, -128, 0, 127, 0});
  CHECK(numbers(cast(x, DType::U8)) == std::vector<double>{1, 0, 255, 0, 0, 255, 0});
  CHECK(numbers(cast(x, DType::Bool)) == std::vector<double>{1, 1, 1, 1, 1, 1, 1});
  CHECK(cast(HTensor::from<double>({2}, {1e30, -1e30}), DType::I64).data<int64_t>()[0] ==
        std::numeric_limits<int64_t>::max());
  CHECK(cast(HTensor::from<double>({2}, {1e30, -1e30}), DType::I64).data<int64_t>()[1] ==
        std::numeric_limits<int64_t>::min());
  CHECK(numbers(cast(HTensor::from<int64_t>({2}, {300, -1}), DType::U8)) == std::vector<double>{44, 255});
  CHECK(numbers(round(of(DType::F32, {0.5, 1.5, 2.5, -0.5}))) == std::vector<double>{0, 2, 2, -0.0});
}

TEST_CASE("elementwise: shape and type errors") {
  const HTensor a(DType::F32, {64, 10}), b(DType::F32, {64, 12}), i(DType::I64, {64, 10}), p(DType::Bool, {64, 10});
  const auto text = [](const char* op, const std::vector<HTensor>& in) {
    try {
      apply(op, {}, in);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(text("add", {a, b}) == "add: operands are f32[64, 10] and f32[64, 12]; shapes must be equal");
  CHECK(text("mul", {a, i}) == "mul: operands are f32[64, 10] and i64[64, 10]; element types must be equal; cast one");
  CHECK(text("add", {p, p}) == "add: operands are bool[64, 10] and bool[64, 10]; operand 1 must be of number type");
  CHECK(text("exp", {i}) == "exp: the operand is i64[64, 10]; it must be of floating-point type");
  CHECK(text("pow", {i, i}) ==
        "pow: operands are i64[64, 10] and i64[64, 10]; operand 1 must be of floating-point type");
  CHECK(text("logical_and", {a, a}) ==
        "logical_and: operands are f32[64, 10] and f32[64, 10]; operand 1 must be of bool type");
  CHECK(text("bit_and", {p, p}) ==
        "bit_and: operands are bool[64, 10] and bool[64, 10]; operand 1 must be of integer type");
  CHECK(text("is_nan", {i}) == "is_nan: the operand is i64[64, 10]; it must be of floating-point type");
  CHECK(text("select", {a, a, a}) ==
        "select: operands are f32[64, 10], f32[64, 10] and f32[64, 10]; operand 1 must be of bool type");
  CHECK(text("sub", {a}) == "sub takes 2 operands, not 1 (f32[64, 10])");
  CHECK(text("cast", {a}) == "cast: attribute 'dtype' is missing; given are none");
  CHECK(text("addd", {a, a}) == "there is no operation 'addd'");
  CHECK(text("neg", {HTensor()}) == "neg: operand 1 is an empty tensor");
}
