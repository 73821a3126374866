#include "kernel_call.hpp"

#include <functional>
#include <limits>

#include "engine/tensor/half.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double ulps(float actual, double expected) {
  if (std::isnan(expected)) return std::isnan(actual) ? 0 : 1e9;
  const float nearest = static_cast<float>(expected);
  if (actual == nearest) return 0;
  if (std::isinf(nearest) || std::isinf(actual)) return 1e9;
  const float size = std::abs(nearest);
  const double unit = std::max<double>(std::nextafter(size, kInf) - size, std::numeric_limits<float>::denorm_min());
  return std::abs(actual - expected) / unit;
}

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

struct Unary {
  const char* name;
  double (*reference)(double);
  float low, high;
  double ulps;
};
double rsqrt(double x) { return 1 / std::sqrt(x); }
double sign(double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }
double negate(double x) { return -x; }

const Unary kUnaries[] = {
    {"neg", negate, -10, 10, 0},
    {"abs", std::fabs, -10, 10, 0},
    {"sign", sign, -1, 1, 0},
    {"floor", std::floor, -9, 9, 0},
    {"ceil", std::ceil, -9, 9, 0},
    {"round", std::nearbyint, -9, 9, 0},
    {"exp", std::exp, -104, 89, 2},
    {"exp", std::exp, -1, 1, 2},
    {"expm1", std::expm1, -20, 89, 3},
    {"expm1", std::expm1, -1e-3f, 1e-3f, 3},
    {"expm1", std::expm1, -1, 1, 3},
    {"log", std::log, 0, 1e6f, 2},
    {"log", std::log, 0, 1e-37f, 2},
    {"log", std::log, 0.5f, 2, 2},
    {"log1p", std::log1p, -0.99f, 10, 3},
    {"log1p", std::log1p, -1e-3f, 1e-3f, 3},
    {"sqrt", std::sqrt, 0, 1e6f, 1},
    {"rsqrt", rsqrt, 1e-3f, 1e6f, 2},
    {"tanh", std::tanh, -10, 10, 4},
    {"tanh", std::tanh, -0.5f, 0.5f, 4},
    {"erf", std::erf, -5, 5, 3},
    {"gelu", gelu, -2, 8, 8},
    {"gelu", gelu, -6, -2, 24},
    {"logistic", logistic, -100, 100, 3},
    {"sin", std::sin, -3, 3, 4},
    {"cos", std::cos, -1.5f, 1.5f, 4},
    {"tan", std::tan, -1.5f, 1.5f, 4},
    {"tan", std::tan, -8000, 8000, 4},
    {"tan", std::tan, -1e7f, 1e7f, 4},
    {"asin", std::asin, -1, 1, 3},
    {"acos", std::acos, -1, 1, 3},
    {"atan", std::atan, -10, 10, 3},
    {"atan", std::atan, -0.5f, 0.5f, 3},
    {"sinh", std::sinh, -89.4f, 89.4f, 3},
    {"sinh", std::sinh, -1.5f, 1.5f, 3},
    {"cosh", std::cosh, -89.4f, 89.4f, 3},
    {"cosh", std::cosh, -1.5f, 1.5f, 3},
    {"asinh", std::asinh, -1e10f, 1e10f, 3},
    {"asinh", std::asinh, -1, 1, 3},
    {"acosh", std::acosh, 0.9f, 3, 3},
    {"acosh", std::acosh, 1, 1e10f, 3},
    {"atanh", std::atanh, -1, 1, 3},
    {"atanh", std::atanh, -0.1f, 0.1f, 3},
};

}  // namespace

TEST_CASE("unary functions agree with the standard library to a few units in the last place") {
  Random random(1);
  for (const Unary& u : kUnaries) {
    const Tensor x = random.floats({4099}, u.low, u.high);
    const Tensor y = KernelCall(u.name).in(x).out({4099}).run_one();
    double worst = 0;
    for (int64_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], u.reference(x[i])));
    INFO(u.name << " on [" << u.low << ", " << u.high << "): " << worst << " units in the last place");
    CHECK(worst <= u.ulps);
  }
}

TEST_CASE("unary functions: infinities, NaN and extreme values") {
  const std::vector<float> x = {0.0f,     -0.0f, kInf, -kInf, kNan,   1e-45f,  -1e-45f, 1e-40f, 3.4e38f,
                                -3.4e38f, 1,     -1,   88.8f, -88.8f, -103.9f, 20,      -20,    1e-10f};
  const auto n = static_cast<int64_t>(x.size());
  for (const Unary& u : kUnaries) {
    const Tensor y = KernelCall(u.name).in(Tensor({n}, x)).out({n}).run_one();
    for (int64_t i = 0; i < n; ++i) {
      INFO(u.name << "(" << x[static_cast<size_t>(i)] << ") = " << y[i]);
      CHECK(ulps(y[i], u.reference(x[static_cast<size_t>(i)])) <= std::max(u.ulps, 1.0));
    }
  }
}

TEST_CASE("sign: zeros of both signs remain") {
  const Tensor y = KernelCall("sign").in(Tensor({2}, std::vector<float>{-0.0f, 0.0f})).out({2}).run_one();
  CHECK((y[0] == 0 && y[1] == 0));
  CHECK((std::signbit(y[0]) && !std::signbit(y[1])));
}

TEST_CASE("atan2: every quadrant, signed zeros, infinities and NaN") {
  const std::vector<float> ends = {0.0f, -0.0f, kInf, -kInf, kNan, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f, 1, -1, 0.5f};
  std::vector<float> up, along;
  for (float y : ends)
    for (float x : ends) up.push_back(y), along.push_back(x);
  Random random(10);
  const Tensor y = random.floats({4099}, -2, 2), x = random.floats({4099}, -2, 2);
  for (int64_t i = 0; i < y.size(); ++i) up.push_back(y[i]), along.push_back(x[i]);
  const auto n = static_cast<int64_t>(up.size());
  const Tensor angle = KernelCall("atan2").in(Tensor({n}, up)).in(Tensor({n}, along)).out({n}).run_one();
  for (int64_t i = 0; i < n; ++i) {
    const float b = up[static_cast<size_t>(i)], a = along[static_cast<size_t>(i)];
    const double expected = std::atan2(static_cast<double>(b), static_cast<double>(a));
    INFO("atan2(" << b << ", " << a << ") = " << angle[i]);
    CHECK(ulps(angle[i], expected) <= 3);
    if (expected == 0) CHECK(std::signbit(angle[i]) == std::signbit(expected));
  }
}

TEST_CASE("tangent, hyperbolic functions and inverses of doubles are the standard library's") {
  Random random(11);
  std::vector<double> values(77), others(77);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(static_cast<double>(random.below(1 << 20)), -20);
    others[i] = values[i] - 0.5;
  }
  const auto check = [&](const char* name, double (*f)(double), double shift) {
    std::vector<double> x = values;
    for (double& v : x) v += shift;
    const std::vector<double> y = KernelCall(name).in(Tensor({77}, x)).out({77}, HX_F64).run_one().values<double>();
    INFO(name);
    for (size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == f(x[i]));
  };
  check("tan", std::tan, 0);
  check("asin", std::asin, 0);
  check("acos", std::acos, 0);
  check("atan", std::atan, 0);
  check("sinh", std::sinh, 0);
  check("cosh", std::cosh, 0);
  check("asinh", std::asinh, 0);
  check("acosh", std::acosh, 1);
  check("atanh", std::atanh, 0);
  const std::vector<double> angles = KernelCall("atan2")
                                         .in(Tensor({77}, values))
                                         .in(Tensor({77}, others))
                                         .out({77}, HX_F64)
                                         .run_one()
                                         .values<double>();
  for (size_t i = 0; i < angles.size(); ++i) REQUIRE(angles[i] == std::atan2(values[i], others[i]));
}

TEST_CASE("gelu: derivative") {
  Random random(3);
  const Tensor x = random.floats({1031}, -9, 9), dy = random.floats({1031});
  const Tensor dx = KernelCall("gelu_grad").in(x).in(dy).out({1031}).run_one();
  std::vector<double> expected;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double v = x[i], density = std::exp(-0.5 * v * v) / std::sqrt(2 * M_PI);
    expected.push_back(dy[i] * (0.5 * std::erfc(-v / std::sqrt(2.0)) + v * density));
  }
  require_close(dx, expected, 1e-6, 1e-7);
  const Tensor far({4}, std::vector<float>{-1e30f, 1e30f, -14, NAN}), one({4}, std::vector<float>{1, 1, 1, 1});
  require_close(KernelCall("gelu_grad").in(far).in(one).out({4}).run_one(), {0, 1, 0, NAN}, 0, 0);
  KernelCall by_tanh("gelu");
  CHECK_FALSE(by_tanh.set("approximate", "tanh").in(x).out({1031}).served());
}

TEST_CASE("sine and cosine of large angles") {
  Random random(2);
  for (float range : {100.0f, 8000.0f, 1e7f}) {
    const Tensor x = random.floats({515}, -range, range);
    const Tensor s = KernelCall("sin").in(x).out({515}).run_one(), c = KernelCall("cos").in(x).out({515}).run_one();
    for (int64_t i = 0; i < x.size(); ++i) {
      CHECK(std::abs(s[i] - std::sin(static_cast<double>(x[i]))) < 2e-7);
      CHECK(std::abs(c[i] - std::cos(static_cast<double>(x[i]))) < 2e-7);
    }
  }
}

TEST_CASE("binary functions, comparisons and selection") {
  Random random(3);
  const Dims d{7, 211};
  const Tensor a = random.floats(d, -3, 3), b = random.floats(d, 0.5f, 3);
  const auto check = [&](const char* name, std::function<double(double, double)> f) {
    const Tensor y = KernelCall(name).in(a).in(b).out(d).run_one();
    std::vector<double> e;
    for (int64_t i = 0; i < a.size(); ++i) e.push_back(f(a[i], b[i]));
    INFO(name);
    require_close(y, e, 2e-7, 1e-7);
  };
  check("add", [](double x, double y) { return x + y; });
  check("sub", [](double x, double y) { return x - y; });
  check("mul", [](double x, double y) { return x * y; });
  check("div", [](double x, double y) { return x / y; });
  check("maximum", [](double x, double y) { return std::max(x, y); });
  check("minimum", [](double x, double y) { return std::min(x, y); });
  check("remainder", [](double x, double y) { return std::fmod(x, y); });
  check("pow", [](double x, double y) { return std::pow(x, y); });

  const Tensor less = KernelCall("less").in(a).in(b).out(d, HX_BOOL).run_one();
  const Tensor chosen = KernelCall("select").in(less).in(a).in(b).out(d).run_one();
  for (int64_t i = 0; i < a.size(); ++i) {
    REQUIRE(less.data<uint8_t>()[i] == (a[i] < b[i] ? 1 : 0));
    REQUIRE(chosen[i] == (a[i] < b[i] ? a[i] : b[i]));
  }
}

TEST_CASE("maximum, minimum: NaN in either operand gives NaN") {
  const Tensor a({3}, std::vector<float>{kNan, 1, 2}), b({3}, std::vector<float>{1, kNan, 3});
  for (const char* name : {"maximum", "minimum"}) {
    const Tensor y = KernelCall(name).in(a).in(b).out({3}).run_one();
    CHECK(std::isnan(y[0]));
    CHECK(std::isnan(y[1]));
    CHECK(y[2] == (name[1] == 'a' ? 3 : 2));
  }
}

TEST_CASE("questions: NaN and infinity of both widths") {
  std::vector<float> narrow;
  std::vector<double> wide;
  for (int i = 0; i < 77; ++i) {
    const float x = i % 5 == 0 ? kNan : i % 5 == 1 ? kInf : i % 5 == 2 ? -kInf : i % 5 == 3 ? -3e38f : 0;
    narrow.push_back(x);
    wide.push_back(x);
  }
  for (const Tensor& x : {Tensor({77}, narrow), Tensor({77}, wide)}) {
    const Tensor nan = KernelCall("is_nan").in(x).out({77}, HX_BOOL).run_one();
    const Tensor inf = KernelCall("is_inf").in(x).out({77}, HX_BOOL).run_one();
    for (int i = 0; i < 77; ++i) {
      REQUIRE(nan.data<uint8_t>()[i] == (i % 5 == 0));
      REQUIRE(inf.data<uint8_t>()[i] == (i % 5 == 1 || i % 5 == 2));
    }
  }
}

namespace {

// Computes every bit operation by its definition, on bit patterns in 64 bits. Shift amounts may be negative or too
// large.
template <typename T>
void check_bits(uint32_t seed) {
  Random random(seed);
  const int width = 8 * static_cast<int>(sizeof(T));
  Tensor a = random.integers<T>({301}, std::is_signed_v<T> ? -120 : 0, 120),
         b = random.integers<T>({301}, std::is_signed_v<T> ? -3 : 0, width + 3);
  if (std::is_same_v<T, uint16_t>) a.dtype = b.dtype = HX_U16;
  const auto check = [&](const char* name, std::function<T(T, T)> f) {
    INFO(name);
    const Tensor y = KernelCall(name).in(a).in(b).out({301}, a.dtype).run_one();
    for (int64_t i = 0; i < 301; ++i) REQUIRE(y.data<T>()[i] == f(a.data<T>()[i], b.data<T>()[i]));
  };
  using U = std::make_unsigned_t<T>;
  const auto fits = [&](T by) { return static_cast<uint64_t>(static_cast<U>(by)) < static_cast<uint64_t>(width); };
  check("bit_and", [](T x, T y) { return static_cast<T>(x & y); });
  check("bit_or", [](T x, T y) { return static_cast<T>(x | y); });
  check("bit_xor", [](T x, T y) { return static_cast<T>(x ^ y); });
  check("shift_left", [&](T x, T by) { return fits(by) ? static_cast<T>(static_cast<uint64_t>(x) << by) : T(0); });
  check("shift_right_logical", [&](T x, T by) { return fits(by) ? static_cast<T>(static_cast<U>(x) >> by) : T(0); });
  check("shift_right_arithmetic", [&](T x, T by) {
    const T sign = std::is_signed_v<T> && x < T(0) ? static_cast<T>(-1) : T(0);
    return fits(by) ? static_cast<T>(x >> by) : sign;
  });
}

}  // namespace

TEST_CASE("bits and shifts of every width, amounts outside the width too") {
  check_bits<uint8_t>(301);
  check_bits<int8_t>(302);
  check_bits<int16_t>(303);
  check_bits<uint16_t>(304);
  check_bits<int32_t>(305);
  check_bits<uint32_t>(306);
  check_bits<int64_t>(307);
  check_bits<uint64_t>(308);
}

TEST_CASE("integers and casts") {
  Random random(4);
  const Tensor a = random.integers<int64_t>({333}, -1000, 1000), b = random.integers<int64_t>({333}, -1000, 1000);
  const Tensor sum = KernelCall("add").in(a).in(b).out({333}, HX_I64).run_one();
  const Tensor equal = KernelCall("equal").in(a).in(a).out({333}, HX_BOOL).run_one();
  const Tensor bytes = random.integers<uint8_t>({1025}, 0, 256);
  const Tensor floats = KernelCall("cast").in(bytes).out({1025}).run_one();
  const Tensor back = KernelCall("cast").in(floats).out({1025}, HX_U8).run_one();
  const Tensor truth = KernelCall("cast").in(bytes).out({1025}, HX_BOOL).run_one();
  for (int64_t i = 0; i < 333; ++i) {
    REQUIRE(sum.data<int64_t>()[i] == a.data<int64_t>()[i] + b.data<int64_t>()[i]);
    REQUIRE(equal.data<uint8_t>()[i] == 1);
  }
  REQUIRE(back.bytes == bytes.bytes);
  for (int64_t i = 0; i < 1025; ++i) {
    REQUIRE(floats[i] == bytes.data<uint8_t>()[i]);
    REQUIRE(truth.data<uint8_t>()[i] == (bytes.data<uint8_t>()[i] != 0));
  }
}

TEST_CASE("casts from and to 16-bit floats have the bits of the reference") {
  std::vector<uint16_t> all;
  for (uint32_t h = 0; h < 0x10000; ++h)
    if (!std::isnan(half_to_float(static_cast<uint16_t>(h)))) all.push_back(static_cast<uint16_t>(h));
  all.push_back(0x7e00);
  const auto n = static_cast<int64_t>(all.size());
  Tensor halves = Tensor::zeros({n}, HX_F16);
  std::memcpy(halves.bytes.data(), all.data(), halves.bytes.size());
  const Tensor wide = KernelCall("cast").in(halves).out({n}).run_one();
  for (int64_t i = 0; i < n; ++i) {
    const float expected = half_to_float(all[static_cast<size_t>(i)]);
    REQUIRE(std::memcmp(wide.data<float>() + i, &expected, sizeof expected) == 0);
  }
  CHECK(KernelCall("cast").in(wide).out({n}, HX_F16).run_one().bytes == halves.bytes);
  Random random(18);
  std::vector<float> values{0.0f, -0.0f, 1e-8f, 5.96e-8f, 2.9e-8f, 65519.0f, 65520.0f, -1e30f, kInf, -kInf};
  for (int i = 0; i < 3001; ++i)
    values.push_back(random.floats({1})[0] * std::pow(2.0f, static_cast<float>(random.below(45)) - 28));
  const Tensor x({static_cast<int64_t>(values.size())}, values);
  CHECK(KernelCall("cast").in(x).out(x.dims, HX_F16).run_one().bytes == as_half(x).bytes);
  KernelCall chain("fused_elementwise");
  chain.in(as_half(x)).in(x).step("cast", {0}).step("add", {2, 1}).step("cast", {3}, HX_F16).stores({4});
  const Tensor y = chain.out(x.dims, HX_F16).run_one();
  for (int64_t i = 0; i < x.size(); ++i) {
    const float sum = half_to_float(float_to_half(x[i])) + x[i];
    if (!std::isnan(sum)) REQUIRE(y.data<uint16_t>()[i] == float_to_half(sum));
  }
}

TEST_CASE("primitives on 16-bit floats are computed in f32 and rounded after each") {
  Random random(19);
  const Tensor a = random.floats({2, 333}, 0.1f, 0.9f), b = random.floats({2, 333}, 0.2f, 3);
  const Tensor x = as_half(a), y = as_half(b);
  const auto number = [](const Tensor& t, int64_t i) { return half_to_float(t.data<uint16_t>()[i]); };
  for (const char* op : {"tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh", "exp", "sqrt", "neg"}) {
    const Tensor found = KernelCall(op).in(x).out(x.dims, HX_F16).run_one();
    Tensor wide({2, 333}, std::vector<float>(666));
    for (int64_t i = 0; i < x.size(); ++i) reinterpret_cast<float*>(wide.bytes.data())[i] = number(x, i);
    const Tensor expected = as_half(KernelCall(op).in(wide).out(x.dims).run_one());
    INFO(op);
    CHECK(found.bytes == expected.bytes);
  }
  const Tensor angle = KernelCall("atan2").in(x).in(y).out(x.dims, HX_F16).run_one(),
               less = KernelCall("less").in(x).in(y).out(x.dims, HX_BOOL).run_one();
  for (int64_t i = 0; i < x.size(); ++i) {
    CHECK(number(angle, i) == Approx(std::atan2(number(x, i), number(y, i))).epsilon(1e-3));
    CHECK(static_cast<bool>(less.data<uint8_t>()[i]) == (number(x, i) < number(y, i)));
  }
  // Registers of a chain keep their indices, and every step rounds.
  KernelCall chain("fused_elementwise");
  chain.in(x).in(y).step("mul", {0, 1}, HX_F16).step("add", {2, 0}, HX_F16).step("less", {3, 1}, HX_BOOL);
  const std::vector<Tensor> results = chain.stores({3, 4}).out(x.dims, HX_F16).out(x.dims, HX_BOOL).run();
  for (int64_t i = 0; i < x.size(); ++i) {
    const float product = half_to_float(float_to_half(number(x, i) * number(y, i))),
                sum = half_to_float(float_to_half(product + number(x, i)));
    REQUIRE(number(results[0], i) == sum);
    REQUIRE(static_cast<bool>(results[1].data<uint8_t>()[i]) == (sum < number(y, i)));
  }
  Tensor special = Tensor::zeros({4}, HX_F16);
  const uint16_t bits[] = {0x7e00, 0x7c00, 0xfc00, 0x3c00};
  std::memcpy(special.bytes.data(), bits, sizeof bits);
  CHECK(KernelCall("is_nan").in(special).out({4}, HX_BOOL).run_one().values<uint8_t>() ==
        std::vector<uint8_t>{1, 0, 0, 0});
  CHECK(KernelCall("is_inf").in(special).out({4}, HX_BOOL).run_one().values<uint8_t>() ==
        std::vector<uint8_t>{0, 1, 1, 0});
}

TEST_CASE("casts to integers truncate, saturate and map NaN to 0") {
  const Tensor x({9}, std::vector<float>{2.9f, -2.9f, 300, -5, kNan, kInf, -kInf, 1e30f, 254.5f});
  const auto cast = [&](uint32_t to) { return KernelCall("cast").in(x).out({9}, to).run_one(); };
  CHECK(cast(HX_U8).values<uint8_t>() == std::vector<uint8_t>{2, 0, 255, 0, 0, 255, 0, 255, 254});
  CHECK(cast(HX_I32).values<int32_t>() ==
        std::vector<int32_t>{2, -2, 300, -5, 0, INT32_MAX, INT32_MIN, INT32_MAX, 254});
  CHECK(cast(HX_I64).values<int64_t>() ==
        std::vector<int64_t>{2, -2, 300, -5, 0, INT64_MAX, INT64_MIN, INT64_MAX, 254});
}

namespace {
// y = (x * scale + shift > 0) ? x * scale + shift : 0.25, and the product itself.
KernelCall chain_of(const Tensor& x, const Tensor& scale, const Tensor& shift) {
  KernelCall call("fused_elementwise");
  call.in(x).in(scale).in(shift).in(Tensor({}, std::vector<float>{0.25f}));
  call.step("mul", {0, 1}).step("add", {4, 2}).step("less", {3, 5}, HX_BOOL).step("select", {6, 5, 3});
  return call.stores({7, 4}).out(x.dims).out(x.dims);
}
}  // namespace

TEST_CASE("fused chains broadcast rows, columns, scalars and anything between") {
  Random random(5);
  const std::pair<Dims, Dims> shapes[] = {{{10}, {64, 1}}, {{64, 10}, {1}}, {{1, 10}, {64, 10}}, {{64, 1}, {10}}};
  for (const auto& [scale_dims, shift_dims] : shapes) {
    const Tensor x = random.floats({64, 10}), scale = random.floats(scale_dims), shift = random.floats(shift_dims);
    const auto y = chain_of(x, scale, shift).run();
    const auto at = [](const Tensor& t, int64_t r, int64_t c) {
      const bool rows = t.dims.size() == 2 && t.dims[0] == 64, columns = t.dims.back() == 10;
      return t[(rows ? r * (columns ? 10 : 1) : 0) + (columns ? c : 0)];
    };
    std::vector<double> selected, product;
    for (int64_t i = 0; i < x.size(); ++i) {
      const float p = x[i] * at(scale, i / 10, i % 10), s = p + at(shift, i / 10, i % 10);
      product.push_back(p);
      selected.push_back(0.25f < s ? s : 0.25f);
    }
    require_close(y[0], selected, 0, 0);
    require_close(y[1], product, 0, 0);
  }
}

TEST_CASE("fused chains: broadcast middle axes and long rows in several parts") {
  Random random(6);
  const Tensor x = random.floats({6, 5, 7, 1301}), scale = random.floats({5, 1, 1301}), shift = random.floats({1301});
  KernelCall call = chain_of(x, scale, shift);
  const auto y = call.run();
  CHECK(call.parts() > 1);
  std::vector<double> product;
  for (int64_t i = 0; i < x.size(); ++i) product.push_back(x[i] * scale[i / (7 * 1301) % 5 * 1301 + i % 1301]);
  require_close(y[1], product, 0, 0);
}

TEST_CASE("fused chains: in place where declared, and long chains") {
  Random random(7);
  const Tensor x = random.floats({3000}), y = random.floats({3000});
  KernelCall call("fused_elementwise");
  call.in(x).in(y).step("sub", {0, 1}).step("mul", {2, 0}).stores({3}).out({3000}).alias(0, 0);
  const Tensor z = call.run_one();
  CHECK(call.in_place() == 3);
  for (int64_t i = 0; i < 3000; ++i) REQUIRE(z[i] == (x[i] - y[i]) * x[i]);

  KernelCall early("fused_elementwise");  // writes the first output before the input's last read
  early.in(x).step("neg", {0}).step("mul", {1, 0}).stores({1, 2}).out({3000}).out({3000});
  early.run();
  CHECK(early.in_place() == 0);

  KernelCall lengthy("fused_elementwise");
  lengthy.in(x);
  for (uint32_t i = 0; i < 60; ++i) lengthy.step("add", {i, 0});
  const Tensor sum = lengthy.stores({60}).out({3000}).run_one();
  std::vector<double> e;
  for (int64_t i = 0; i < 3000; ++i) e.push_back(61.0 * x[i]);
  require_close(sum, e, 1e-5, 0);
}

TEST_CASE("dropout keeps, drops and scales") {
  Random random(8);
  const Tensor x = random.floats({37, 41}), r = random.floats({37, 41}, 0, 1);
  const Tensor y = KernelCall("dropout").set("rate", 0.3).in(x).in(r).out(x.dims).run_one();
  const Tensor dx = KernelCall("dropout_grad").set("rate", 0.3).in(r).in(x).out(x.dims).run_one();
  std::vector<double> e;
  for (int64_t i = 0; i < x.size(); ++i) e.push_back(r[i] < 0.3f ? 0 : x[i] / 0.7);
  require_close(y, e, 1e-6, 0);
  require_close(dx, e, 1e-6, 0);
}

TEST_CASE("sigmoid cross entropy and its gradient") {
  Random random(9);
  const Tensor x = random.floats({31, 17}, -30, 30), t = random.floats({31, 17}, 0, 1), d = random.floats({31, 17});
  const Tensor loss = KernelCall("sigmoid_cross_entropy").in(x).in(t).out(x.dims).run_one();
  const Tensor dx = KernelCall("sigmoid_cross_entropy_grad").in(x).in(t).in(d).out(x.dims).run_one();
  std::vector<double> e, g;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    e.push_back(std::max(v, 0.0) - v * t[i] + std::log1p(std::exp(-std::abs(v))));
    g.push_back((logistic(v) - t[i]) * d[i]);
  }
  require_close(loss, e, 1e-5, 2e-6);
  require_close(dx, g, 1e-5, 1e-7);
}

}  // namespace harmonics::engine::kernel_tests
