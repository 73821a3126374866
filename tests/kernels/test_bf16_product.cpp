// Compares products with operands rounded to bf16 with exact products of the rounded operands.
#include <algorithm>
#include <limits>

#include "engine/tensor/half.hpp"
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

// A [m, k] or, transposed, [k, m]; B [k, n] or [n, k].
struct RoundedCase {
  int64_t m, n, k;
  bool ta, tb;
  Tensor a, b;
  double a_at(int64_t i, int64_t x) const { return rounded(a[ta ? x * m + i : i * k + x]); }
  double b_at(int64_t x, int64_t j) const { return rounded(b[tb ? j * k + x : x * n + j]); }
  static double rounded(float x) { return static_cast<double>(bfloat_to_float(float_to_bfloat(x))); }
  KernelCall call() const {
    KernelCall c("dot");
    c.set("lhs_contract", Dims{ta ? 0 : 1}).set("rhs_contract", Dims{tb ? 1 : 0}).in(a).in(b).out({m, n});
    return std::move(c.allow_bf16());
  }
  // Returns the sum, and the sum of magnitudes, to which errors are relative.
  std::pair<double, double> exact(int64_t i, int64_t j) const {
    double sum = 0, size = 0;
    for (int64_t x = 0; x < k; ++x) {
      const double product = a_at(i, x) * b_at(x, j);
      sum += product;
      size += std::fabs(product);
    }
    return {sum, size};
  }
};

RoundedCase rounded_case(Random& random, Dims sizes, int layout) {
  const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
  const bool ta = layout & 1, tb = layout & 2;
  return {m, n, k, ta, tb, random.floats(ta ? Dims{k, m} : Dims{m, k}), random.floats(tb ? Dims{n, k} : Dims{k, n})};
}

constexpr double kOfSums = 4e-7;  // error of f32 sums relative to the magnitudes

}  // namespace

TEST_CASE("bf16 products: sums are those of the rounded operands") {
  Random random(81);
  for (const Dims& sizes : {Dims{64, 64, 128}, Dims{97, 131, 300}, Dims{16, 1000, 32}, Dims{1000, 17, 35},
                            Dims{120, 260, 1111}, Dims{300, 70, 90}, Dims{33, 200, 520}})
    for (int layout = 0; layout < 4; ++layout) {
      const RoundedCase c = rounded_case(random, sizes, layout);
      KernelCall call = c.call();
      const Tensor y = call.run_one();
      INFO(c.m << " x " << c.n << " x " << c.k << " layout " << layout << " by " << call.kernel());
      REQUIRE(call.kernel().find("bf16") != std::string::npos);
      double worst = 0;
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = 0; j < c.n; ++j) {
          const auto [sum, size] = c.exact(i, j);
          worst = std::max(worst, std::fabs(static_cast<double>(y[i * c.n + j]) - sum) / size);
        }
      REQUIRE(worst < kOfSums);
    }
}

TEST_CASE("bf16 products: bias, activation and a sum are applied") {
  Random random(82);
  const RoundedCase c = rounded_case(random, {65, 130, 557}, 2);
  const Tensor bias = random.floats({130}), before = random.floats({65, 130});
  KernelCall linear("linear"), sum("dot_add");
  const Tensor y = linear.set("activation", "relu").in(c.a).in(c.b).in(bias).out({65, 130}).allow_bf16().run_one();
  sum.set("lhs_contract", Dims{1}).set("rhs_contract", Dims{1}).in(before).in(c.a).in(c.b);
  const Tensor z = sum.out({65, 130}).allow_bf16().run_one();
  for (int64_t i = 0; i < 65; ++i)
    for (int64_t j = 0; j < 130; ++j) {
      const auto [exact, size] = c.exact(i, j);
      const int64_t at = i * 130 + j;
      REQUIRE(std::fabs(static_cast<double>(y[at]) - std::max(0.0, exact + static_cast<double>(bias[j]))) <=
              kOfSums * (size + 1));
      REQUIRE(std::fabs(static_cast<double>(z[at]) - exact - static_cast<double>(before[at])) <= kOfSums * (size + 1));
    }
}

TEST_CASE("bf16 products: infinity, NaN and zero are preserved") {
  Random random(83);
  RoundedCase c = rounded_case(random, {64, 96, 320}, 0);
  const auto number = [](Tensor& t, int64_t i) -> float& { return reinterpret_cast<float*>(t.bytes.data())[i]; };
  for (int64_t k = 0; k < c.k; ++k) number(c.a, 5 * c.k + k) = 0, number(c.b, k * c.n + 7) = 0;
  number(c.a, 9 * c.k + 300) = std::numeric_limits<float>::quiet_NaN();
  number(c.a, 11 * c.k + 3) = std::numeric_limits<float>::infinity();
  const Tensor y = c.call().run_one();
  for (int64_t j = 0; j < c.n; ++j) {
    REQUIRE(y[5 * c.n + j] == 0);
    REQUIRE(std::isnan(y[9 * c.n + j]));
    REQUIRE((std::isinf(y[11 * c.n + j]) || j == 7));
  }
  REQUIRE(std::isnan(y[11 * c.n + 7]));
  REQUIRE(y[3 * c.n + 7] == 0);
}

TEST_CASE("bf16 products: few zeros are multiplied in bf16, many are skipped in fp32") {
  if (is_baseline()) return;
  Random random(86);
  const auto number = [](const Tensor& t, int64_t i) { return static_cast<double>(t[i]); };
  for (const int64_t percent : {10, 40, 90}) {  // non-zeros
    RoundedCase c = rounded_case(random, {64, 128, 256}, 0);
    for (int64_t i = 0; i < c.a.size(); ++i)
      if (random.below(100) >= percent) reinterpret_cast<float*>(c.a.bytes.data())[i] = 0;
    KernelCall call = c.call();
    const Tensor y = call.run_one();
    if (call.kernel().find("sparse") == std::string::npos) return;  // tile registers multiply zeros
    double worst = 0;                                               // relative to the products that are not rounded
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t x = 0; x < c.k; ++x) {
          const double product = number(c.a, i * c.k + x) * number(c.b, x * c.n + j);
          sum += product, size += std::fabs(product);
        }
        worst = std::max(worst, std::fabs(number(y, i * c.n + j) - sum) / size);
      }
    INFO(percent << " % non-zeros, error " << worst);
    CHECK((worst > kOfSums) == (percent > 10));
  }
}

TEST_CASE("bf16 products: a small constant weight is packed once in both directions, with equal bits") {
  Random random(87);
  // More columns than rows, which share the packed x, and more rows than columns; large weights keep no packed form.
  for (const Dims& sizes : {Dims{64, 330, 300}, Dims{100, 260, 513}, Dims{300, 70, 512}, Dims{64, 512, 1024}})
    for (const bool transposed : {false, true}) {
      const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
      const Tensor x = random.floats({m, k}), w = random.floats(transposed ? Dims{k, n} : Dims{n, k});
      const auto linear = [&] {
        KernelCall call("linear");
        call.in(x).in(w).out({m, n}).allow_bf16();
        if (transposed) call.set("transposed", true);
        return call;
      };
      KernelCall plain = linear(), kept = linear();
      const Tensor expected = plain.run_one(), y = kept.constant(1).run_one();
      INFO(m << " x " << n << " x " << k << (transposed ? ", transposed" : "") << " by " << kept.kernel());
      CHECK(plain.packed_bytes() == 0);
      CHECK((kept.packed_bytes() > 0) == (k < 1024));
      CHECK(y.bytes == expected.bytes);
    }
}

TEST_CASE("bf16 products: small and batched products stay in fp32") {
  Random random(85);
  for (const Dims& sizes : {Dims{8, 300, 300}, Dims{300, 15, 300}, Dims{64, 64, 31}}) {
    KernelCall call = rounded_case(random, sizes, 0).call();
    call.run();
    CHECK(call.kernel().find("bf16") == std::string::npos);
  }
  KernelCall batched("dot");
  batched.set("lhs_contract", Dims{2}).set("rhs_contract", Dims{1}).set("lhs_batch", Dims{0}).set("rhs_batch", Dims{0});
  batched.in(random.floats({2, 64, 64})).in(random.floats({2, 64, 256})).out({2, 64, 256}).allow_bf16().run();
  CHECK(batched.kernel().find("bf16") == std::string::npos);
}

}  // namespace harmonics::engine::kernel_tests
