// linear over weights in integer blocks, with x rounded to q8_0.
#include "stored_tensors.hpp"

#include <algorithm>
#include <cstdlib>

namespace harmonics::engine::kernel_tests {
namespace {

constexpr DType kIntegerTypes[] = {DType::Q8_0,   DType::Q4_0,   DType::Q4_1, DType::Q5_0, DType::Q5_1,
                                   DType::Q2_K,   DType::Q3_K,   DType::Q4_K, DType::Q5_K, DType::Q6_K,
                                   DType::IQ4_NL, DType::IQ4_XS, DType::MXFP4};

KernelCall rounded_call(const Tensor& x, const Tensor& weight) {
  KernelCall c("linear");
  c.set("activation_type", "q8_0").in(x).in(weight);
  return c;
}

Tensor first_rows(const Tensor& x, int64_t rows) {
  const int64_t depth = x.dims.back();
  return {{rows, depth}, std::vector<float>(x.data<float>(), x.data<float>() + rows * depth)};
}

// Multiplies x, with every row rounded, by the decoded weight, in double.
void check_product(const Tensor& x, const Tensor& w) {
  const int64_t m = x.dims[0], n = w.dims[0], depth = x.dims[1];
  CAPTURE(m, n, depth);
  const Tensor rounded = from_eight_bits(as_eight_bits(x)), plain = decoded(w),
               y = rounded_call(x, w).out({m, n}).run_one();
  std::vector<double> sums(static_cast<size_t>(m * n));
  double magnitude = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t k = 0; k < depth; ++k) {
        const double term = static_cast<double>(rounded[i * depth + k]) * static_cast<double>(plain[j * depth + k]);
        sums[static_cast<size_t>(i * n + j)] += term;
        magnitude = std::max(magnitude, std::abs(term));
      }
  require_close(y, sums, 1e-5, 1e-6 * magnitude * static_cast<double>(depth));
}

}  // namespace

TEST_CASE("integer products: linear equals the product of the rounded rows with the decoded weight") {
  Random random(821);
  for (const DType type : kIntegerTypes) {
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block;
    for (int64_t m = 1; m <= 17; m += m < 9 ? 1 : 4)
      for (const int64_t n : {1, 5, 16, 37})
        check_product(random.floats({m, 3 * block}), of_type(type, {n, 3 * block}, random));
    for (const int64_t depth : {block, 9 * block, 19 * block})
      check_product(random.floats({2, depth}), of_type(type, {33, depth}, random));
    check_product(random.floats({131, 2 * block}), of_type(type, {65, 2 * block}, random));
  }
}

TEST_CASE("integer products: other types are multiplied in f32 by the rounded rows") {
  Random random(825);
  for (const DType type : {DType::BF16, DType::F16, DType::F8_E4M3, DType::F8_E5M2, DType::NF4, DType::I4}) {
    CAPTURE(element_type(type).name);
    for (const int64_t m : {1, 3, 40}) check_product(random.floats({m, 96}), of_type(type, {37, 96}, random));
  }
}

TEST_CASE("integer products: the largest indices and steps do not overflow") {
  for (const DType type : kIntegerTypes) {
    CAPTURE(element_type(type).name);
    for (const int byte : {0, 0x7f, 0x80, 0xff}) {
      Tensor w = Tensor::zeros({3, 512}, static_cast<uint32_t>(type));
      std::fill(w.bytes.begin(), w.bytes.end(), static_cast<char>(byte));
      set_scales(w, [] { return 0.5f; });
      for (const float value : {1.0f, -1.0f}) {
        const Tensor x({2, 512}, std::vector<float>(1024, value));
        check_product(x, w);
      }
    }
  }
}

TEST_CASE("integer products: a row's bits do not depend on the other rows") {
  Random random(822);
  for (const DType type : kIntegerTypes) {
    CAPTURE(element_type(type).name);
    const int64_t depth = element_type(type).block == 256 ? 512 : 288, n = 150;  // a whole chunk and a partial one
    const Tensor x = random.floats({140, depth}), w = of_type(type, {n, depth}, random);
    const Tensor all = rounded_call(x, w).out({140, n}).run_one();
    for (int64_t m = 1; m <= 33; ++m) {
      CAPTURE(m);
      const Tensor y = rounded_call(first_rows(x, m), w).out({m, n}).run_one();
      REQUIRE(std::memcmp(y.bytes.data(), all.bytes.data(), y.bytes.size()) == 0);
    }
  }
}

TEST_CASE("integer products: a constant weight is packed, with equal bits") {
  Random random(826);
  for (const DType type : kIntegerTypes) {
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block;
    for (const int64_t depth : {block, 8 * block, 19 * block})
      for (const int64_t n : {1, 37, 150}) {
        const Tensor x = random.floats({140, depth}), w = of_type(type, {n, depth}, random);
        for (const int64_t m : {1, 2, 3, 8, 9, 33, 140}) {
          CAPTURE(m, n, depth);
          KernelCall plain = rounded_call(first_rows(x, m), w), kept = plain;
          const Tensor expected = plain.out({m, n}).run_one(), y = kept.out({m, n}).constant(1).run_one();
          CHECK(plain.packed_bytes() == 0);
          CHECK(kept.packed_bytes() > 0);
          REQUIRE(y.bytes == expected.bytes);
        }
      }
  }
}

TEST_CASE("integer products: bias, activation, several parts") {
  Random random(823);
  for (const int64_t m : {1, 300}) {
    const Tensor x = random.floats({m, 512}), w = of_type(DType::Q8_0, {1000, 512}, random),
                 bias = random.floats({1000});
    KernelCall with("linear");
    const Tensor
        y = with.set("activation", "relu").set("activation_type", "q8_0").in(x).in(w).in(bias).out({m, 1000}).run_one(),
        plain = rounded_call(x, w).out({m, 1000}).run_one();
    CHECK(with.parts() > 1);
    CHECK(with.kernel() == "q8_0 times q8_0");
    for (int64_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == std::max(0.0f, plain[i] + bias[i % 1000]));
  }
}

TEST_CASE("integer products: zeros, and rows with infinities or NaN") {
  Random random(824);
  const Tensor w = of_type(DType::Q4_K, {20, 512}, random);
  const Tensor zeros = rounded_call(Tensor::zeros({3, 512}), w).out({3, 20}).run_one();
  for (int64_t i = 0; i < zeros.size(); ++i) REQUIRE(zeros[i] == 0);
  std::vector<float> numbers = random.floats({3, 512}).values<float>();
  numbers[512 + 7] = std::nanf("");
  numbers[1024 + 300] = HUGE_VALF;
  const Tensor y = rounded_call(Tensor({3, 512}, numbers), w).out({3, 20}).run_one();
  for (int64_t i = 0; i < y.size(); ++i) REQUIRE(std::isnan(y[i]) == (i >= 20));
}

TEST_CASE("integer products: other calls are left to the body") {
  const Tensor x = Tensor::zeros({2, 256}), w = Tensor::zeros({64, 256}, HX_Q8_0);
  CHECK(rounded_call(x, w).out({2, 64}).served());
  CHECK_FALSE(rounded_call(x, w).set("transposed", 1).out({2, 64}).served());
  CHECK_FALSE(rounded_call(x, w).set("accumulate", "f64").out({2, 64}).served());
  CHECK_FALSE(rounded_call(Tensor::zeros({2, 256}, HX_BF16), w).out({2, 64}, HX_BF16).served());
  CHECK_FALSE(rounded_call(x, Tensor::zeros({64, 256})).out({2, 64}).served());
  CHECK_FALSE(rounded_call(Tensor::zeros({2, 48}), Tensor::zeros({64, 48}, HX_BF16)).out({2, 64}).served());
  KernelCall unknown("linear");
  CHECK_FALSE(unknown.set("activation_type", "q4_0").in(x).in(w).out({2, 64}).served());
}

}  // namespace harmonics::engine::kernel_tests
