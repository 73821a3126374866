// Compares products in fp16 chunks with exact products.
#include <algorithm>
#include <limits>

#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct HalfSizes {
  int64_t m, n, k;
};

// A [m, k] or, transposed, [k, m]; B [k, n] or [n, k].
struct HalfProductCase {
  HalfSizes s;
  bool ta, tb;
  Tensor a, b;
  int64_t a_at(int64_t i, int64_t k) const { return ta ? k * s.m + i : i * s.k + k; }
  int64_t b_at(int64_t k, int64_t j) const { return tb ? j * s.k + k : k * s.n + j; }
  // Returns the sum, and the sum of magnitudes, to which errors are relative.
  std::pair<double, double> exact(int64_t i, int64_t j) const {
    double sum = 0, size = 0;
    for (int64_t k = 0; k < s.k; ++k) {
      const double x = static_cast<double>(a[a_at(i, k)]) * static_cast<double>(b[b_at(k, j)]);
      sum += x;
      size += std::fabs(x);
    }
    return {sum, size};
  }
};

HalfProductCase random_case(Random& random, HalfSizes s, int layout, float low = -1, float high = 1) {
  const bool ta = layout & 1, tb = layout & 2;
  return {s, ta, tb, random.floats(ta ? Dims{s.k, s.m} : Dims{s.m, s.k}, low, high),
          random.floats(tb ? Dims{s.n, s.k} : Dims{s.k, s.n}, low, high)};
}

KernelCall half_product(const HalfProductCase& c) {
  KernelCall call("dot");
  call.set("lhs_contract", Dims{c.ta ? 0 : 1}).set("rhs_contract", Dims{c.tb ? 1 : 0});
  call.in(c.a).in(c.b).out({c.s.m, c.s.n}).allow_half();
  return call;
}

// Returns the squared error relative to the squared result.
double normalised_error(const HalfProductCase& c, const Tensor& y) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < c.s.m; ++i)
    for (int64_t j = 0; j < c.s.n; ++j) {
      const double e = c.exact(i, j).first, d = static_cast<double>(y[i * c.s.n + j]) - e;
      error += d * d;
      size += e * e;
    }
  return error / size;
}

float& number(Tensor& t, int64_t i) { return reinterpret_cast<float*>(t.bytes.data())[i]; }

}  // namespace

TEST_CASE("fp16 chunks: results are close to exact products") {
  Random random(71);
  for (const HalfSizes& s :
       {HalfSizes{64, 64, 128}, {97, 131, 300}, {33, 1000, 32}, {1000, 33, 35}, {120, 260, 1111}, {300, 70, 90}})
    for (int layout = 0; layout < 4; ++layout) {
      const HalfProductCase c = random_case(random, s, layout);
      KernelCall call = half_product(c);
      const Tensor y = call.run_one();
      INFO(s.m << " x " << s.n << " x " << s.k << " layout " << layout << " by " << call.kernel());
      const double error = normalised_error(c, y);
      REQUIRE(error < 2e-6);
      REQUIRE(error > 1e-9);  // f32: 1e-14
    }
}

TEST_CASE("fp16 chunks: rows and columns of any magnitude keep precision") {
  Random random(72);
  HalfProductCase c = random_case(random, {60, 70, 280}, 0);
  for (int64_t i = 0; i < c.s.m; ++i)
    for (int64_t k = 0; k < c.s.k; ++k) number(c.a, c.a_at(i, k)) *= std::ldexp(1.0f, static_cast<int>(i) * 2 - 60);
  for (int64_t j = 0; j < c.s.n; ++j)
    for (int64_t k = 0; k < c.s.k; ++k) number(c.b, c.b_at(k, j)) *= std::ldexp(1.0f, 60 - static_cast<int>(j) * 2);
  const Tensor y = half_product(c).run_one();
  for (int64_t i = 0; i < c.s.m; ++i)
    for (int64_t j = 0; j < c.s.n; ++j) {
      const auto [sum, size] = c.exact(i, j);
      INFO(i << " " << j);
      REQUIRE(std::fabs(static_cast<double>(y[i * c.s.n + j]) - sum) <= 2e-3 * size);
    }
}

// Bound of docs/numerics.md: 42 roundings of 2^-11, plus underflow relative to the row's or column's maximum.
TEST_CASE("fp16 chunks: any operands stay within the documented bound") {
  Random random(77);
  const double roundings = std::pow(1 + std::ldexp(1.0, -11), 42) - 1;
  REQUIRE(roundings < 0.021);
  std::vector<HalfProductCase> cases;
  for (const float all : {0.1f, 1.0f / 3, 0.7f, 1.0005f, 1023.7f}) {  // rounding errors that do not cancel
    cases.push_back(random_case(random, {64, 64, 128}, 0, all, all));
    cases.push_back(random_case(random, {64, 64, 128}, 3, all, std::nextafter(all, 2 * all)));
  }
  for (int layout = 0; layout < 4; ++layout) {  // a few elements dominate each row
    HalfProductCase c = random_case(random, {64, 64, 512}, layout);
    for (int64_t i = 0; i < c.s.m; ++i)
      for (int64_t k = 0; k < c.s.k; ++k)
        number(c.a, c.a_at(i, k)) *= std::ldexp(1.0f, static_cast<int>((i * 31 + k * 17) % 120) - 60);
    for (int64_t j = 0; j < c.s.n; ++j)
      for (int64_t k = 0; k < c.s.k; ++k)
        number(c.b, c.b_at(k, j)) *= std::ldexp(1.0f, static_cast<int>((j * 13 + k * 29) % 100) - 50);
    cases.push_back(c);
  }
  for (const HalfProductCase& c : cases) {
    KernelCall call = half_product(c);
    const Tensor y = call.run_one();
    double worst = 0;
    for (int64_t i = 0; i < c.s.m; ++i)
      for (int64_t j = 0; j < c.s.n; ++j) {
        double row = 0, column = 0;
        for (int64_t k = 0; k < c.s.k; ++k) {
          row = std::max(row, std::fabs(static_cast<double>(c.a[c.a_at(i, k)])));
          column = std::max(column, std::fabs(static_cast<double>(c.b[c.b_at(k, j)])));
        }
        const auto [sum, size] = c.exact(i, j);
        const double bound =
            roundings * size + static_cast<double>(c.s.k) * std::ldexp(row * column, -26) + 1e-6 * size;
        INFO(i << " " << j << " layout " << (c.ta ? 1 : 0) + (c.tb ? 2 : 0));
        const double error = std::fabs(static_cast<double>(y[i * c.s.n + j]) - sum);
        REQUIRE(error <= bound);
        worst = std::max(worst, error / size);
      }
    REQUIRE(worst > 1e-5);  // f32: 1e-7
  }
}

TEST_CASE("fp16 chunks: no overflow unless the result overflows") {
  HalfProductCase c = random_case(*std::make_unique<Random>(73), {48, 64, 512}, 0, 0.999f, 1);
  for (float scale : {1e-30f, 1.0f, 60000.0f, 1e15f}) {
    HalfProductCase scaled = c;
    for (int64_t i = 0; i < c.a.size(); ++i) number(scaled.a, i) *= scale;
    const Tensor y = half_product(scaled).run_one();
    for (int64_t i = 0; i < y.size(); ++i) REQUIRE(y[i] / scale == Approx(512).epsilon(3e-3));
  }
}

TEST_CASE("fp16 chunks: infinity, NaN and zero are preserved") {
  Random random(74);
  HalfProductCase c = random_case(random, {64, 96, 320}, 0);
  const float infinity = std::numeric_limits<float>::infinity();
  for (int64_t k = 0; k < c.s.k; ++k) number(c.a, c.a_at(5, k)) = 0, number(c.b, c.b_at(k, 7)) = 0;
  number(c.a, c.a_at(9, 300)) = std::numeric_limits<float>::quiet_NaN();
  number(c.a, c.a_at(11, 3)) = infinity;
  const Tensor y = half_product(c).run_one();
  for (int64_t j = 0; j < c.s.n; ++j) {
    REQUIRE(y[5 * c.s.n + j] == 0);
    REQUIRE(std::isnan(y[9 * c.s.n + j]));
    REQUIRE((std::isinf(y[11 * c.s.n + j]) || j == 7));
  }
  REQUIRE(std::isnan(y[11 * c.s.n + 7]));
  REQUIRE(y[3 * c.s.n + 7] == 0);
}

TEST_CASE("fp16 chunks: bias and activation are applied") {
  Random random(75);
  const HalfProductCase c = random_case(random, {65, 130, 257}, 2);
  const Tensor bias = random.floats({130});
  KernelCall call("linear");
  call.set("activation", "relu").in(c.a).in(c.b).in(bias).out({65, 130}).allow_half();
  const Tensor y = call.run_one();
  for (int64_t i = 0; i < 65; ++i)
    for (int64_t j = 0; j < 130; ++j) {
      const auto [sum, size] = c.exact(i, j);
      REQUIRE(std::fabs(static_cast<double>(y[i * 130 + j]) - std::max(0.0, sum + static_cast<double>(bias[j]))) <=
              2e-3 * size);
    }
}

TEST_CASE("fp16 chunks: a constant weight is packed once in both directions, with equal bits") {
  if (is_baseline()) return;
  Random random(82);
  // More columns than rows, which share the packed x, and more rows than columns.
  for (const HalfSizes& s : {HalfSizes{64, 330, 300}, {100, 260, 513}, {300, 70, 512}, {1000, 33, 131}})
    for (const bool transposed : {false, true}) {
      const Tensor x = random.floats({s.m, s.k}), w = random.floats(transposed ? Dims{s.k, s.n} : Dims{s.n, s.k});
      const auto linear = [&] {
        KernelCall call("linear");
        call.in(x).in(w).out({s.m, s.n}).allow_half();
        if (transposed) call.set("transposed", true);
        return call;
      };
      KernelCall plain = linear(), kept = linear();
      const Tensor expected = plain.run_one(), y = kept.constant(1).run_one();
      INFO(s.m << " x " << s.n << " x " << s.k << (transposed ? ", transposed" : "") << " by " << kept.kernel());
      CHECK(plain.packed_bytes() == 0);
      CHECK(kept.packed_bytes() > 0);
      CHECK(y.bytes == expected.bytes);
      CHECK(kept.kernel() == plain.kernel());
    }
}

TEST_CASE("fp16 chunks: no packed form of a large constant weight is kept") {
  Random random(84);
  for (const bool transposed : {false, true}) {
    const Tensor x = random.floats({64, 1024}), w = random.floats(transposed ? Dims{1024, 512} : Dims{512, 1024});
    KernelCall call("linear");
    call.in(x).in(w).out({64, 512}).allow_half().constant(1);
    if (transposed) call.set("transposed", true);
    call.run();
    CHECK(call.packed_bytes() == 0);
  }
}

TEST_CASE("fp16 chunks: a constant operand of dot and dot_add is packed once, with equal bits") {
  if (is_baseline()) return;
  Random random(83);
  for (const int64_t along : {0, 1})
    for (const HalfSizes& s : {HalfSizes{64, 330, 300}, {300, 70, 512}}) {
      const Tensor x = random.floats({s.m, s.k}), w = random.floats(along ? Dims{s.n, s.k} : Dims{s.k, s.n}),
                   sum = random.floats({s.m, s.n});
      for (const bool adds : {false, true}) {
        const auto product = [&] {
          KernelCall call(adds ? "dot_add" : "dot");
          call.set("lhs_contract", Dims{1}).set("rhs_contract", Dims{along});
          if (adds) call.in(sum);
          call.in(x).in(w).out({s.m, s.n}).allow_half();
          return call;
        };
        KernelCall plain = product(), kept = product();
        const Tensor expected = plain.run_one(), y = kept.constant(adds ? 2 : 1).run_one();
        INFO(s.m << " x " << s.n << " x " << s.k << (adds ? ", added" : "") << " by " << kept.kernel());
        CHECK(plain.packed_bytes() == 0);
        CHECK(kept.packed_bytes() > 0);
        CHECK(y.bytes == expected.bytes);
      }
    }
}

TEST_CASE("fp16 chunks: a product is finished like a separate one") {
  if (is_baseline()) return;
  Random random(79);
  const HalfProductCase c = random_case(random, {1031, 261, 131}, 0);
  const Tensor bias = random.floats({261});
  KernelCall fused("fused_dot"), sum("add");
  fused.set("lhs_contract", Dims{1}).set("rhs_contract", Dims{0}).set("steps", "add(0,1)").set("stored", Dims{2});
  fused.in(c.a).in(c.b).in(bias).out({c.s.m, c.s.n}).allow_half();
  const Tensor found = fused.run_one(), product = half_product(c).run_one();
  for (int64_t i = 0; i < found.size(); ++i) REQUIRE(found[i] == product[i] + bias[i % c.s.n]);
}

TEST_CASE("fp16 chunks: the bits of a row depend neither on the number of rows nor on their place") {
  Random random(80);
  const HalfProductCase c = random_case(random, {300, 130, 700}, 2);
  const Tensor all = half_product(c).run_one();
  for (const int64_t rows : {32, 45, 97}) {
    HalfProductCase some = c;
    some.s.m = rows, some.a = Tensor::zeros({rows, c.s.k}, HX_F32);
    std::memcpy(some.a.bytes.data(), c.a.bytes.data() + 7 * c.s.k * 4, some.a.bytes.size());
    const Tensor y = half_product(some).run_one();
    INFO(rows << " rows");
    CHECK(std::memcmp(y.bytes.data(), all.bytes.data() + 7 * c.s.n * 4, y.bytes.size()) == 0);
  }
}

TEST_CASE("fp16 chunks: few zeros are multiplied in fp16, many are skipped in fp32") {
  if (is_baseline()) return;
  Random random(81);
  for (const int64_t percent : {20, 40, 90}) {  // non-zeros
    HalfProductCase c = random_case(random, {64, 128, 256}, 0);
    for (int64_t i = 0; i < c.a.size(); ++i)
      if (random.below(100) >= percent) number(c.a, i) = 0;
    const double error = normalised_error(c, half_product(c).run_one());
    INFO(percent << " % non-zeros, error " << error);
    CHECK(error < 2e-6);
    CHECK((error > 1e-9) == (percent > 30));  // f32: 1e-14
  }
}

TEST_CASE("small and batched products stay in fp32") {
  Random random(76);
  for (const HalfSizes& s : {HalfSizes{8, 300, 300}, {300, 300, 16}}) {
    KernelCall call = half_product(random_case(random, s, 0));
    call.run();
    REQUIRE(call.kernel().find("fp16") == std::string::npos);
  }
}

}  // namespace harmonics::engine::kernel_tests
