// linear and embedding over weights of 16-bit floats and stored types.
#include "kernel_call.hpp"

#include <algorithm>
#include <cstdlib>

#include <harmonics/element_conversion.hpp>

namespace harmonics::engine::kernel_tests {
namespace {

constexpr DType kTypes[] = {DType::BF16,   DType::F16,   DType::Q8_0, DType::Q4_0, DType::Q4_K,    DType::Q6_K,
                            DType::Q4_1,   DType::Q5_0,  DType::Q5_1, DType::Q2_K, DType::Q3_K,    DType::Q5_K,
                            DType::IQ4_NL, DType::MXFP4, DType::NF4,  DType::I4,   DType::F8_E4M3, DType::F8_E5M2};

// Offsets of the f16 scales of blocks whose scales are searched for.
std::vector<size_t> scales_of(DType type) {
  switch (type) {
    case DType::Q4_K:
    case DType::Q5_K:
      return {0, 2};
    case DType::Q2_K:
      return {80, 82};
    case DType::Q3_K:
      return {108};
    case DType::Q6_K:
      return {208};
    default:
      return {};
  }
}

// Random numbers of the type, or random bytes and small scales, which reach every bit of the block.
Tensor of_type(DType type, Dims dims, Random& random) {
  Tensor t = Tensor::zeros(dims, static_cast<uint32_t>(type));
  const std::vector<size_t> scales = scales_of(type);
  if (scales.empty()) {
    const Tensor x = random.floats(dims);
    encode_elements(type, x.data<float>(), t.bytes.data(), x.size());
    return t;
  }
  for (char& b : t.bytes) b = static_cast<char>(random.below(256));
  const size_t size = element_type(type).block_bytes;
  for (size_t block = 0; block < t.bytes.size(); block += size)
    for (const size_t at : scales) {
      const uint16_t scale = float_to_half(0.01f + 0.001f * static_cast<float>(random.below(10)));
      std::memcpy(t.bytes.data() + block + at, &scale, 2);
    }
  return t;
}

Tensor decoded(const Tensor& t) {
  std::vector<float> numbers(static_cast<size_t>(t.size()));
  decode_elements(static_cast<DType>(t.dtype), t.bytes.data(), numbers.data(), t.size());
  return {t.dims, numbers};
}

KernelCall call(const Tensor& x, const Tensor& weight) {
  KernelCall c("linear");
  c.in(x).in(weight);
  return c;
}

}  // namespace

TEST_CASE("typed weights: linear equals the product with the decoded weight") {
  Random random(811);
  for (const DType type : kTypes) {
    CAPTURE(element_type(type).name);
    const int64_t block = element_type(type).block;
    for (const int64_t m : {1, 2, 3, 8, 40})
      for (const int64_t n : {1, 5, 8, 61})
        for (const int64_t depth : {block, 3 * block, block == 1 ? int64_t{131} : 2 * block, 19 * block}) {
          CAPTURE(m, n, depth);
          const Tensor x = random.floats({m, depth}), w = of_type(type, {n, depth}, random);
          const Tensor plain = decoded(w), y = call(x, w).out({m, n}).run_one();
          std::vector<double> e(static_cast<size_t>(m * n));
          double magnitude = 0;
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (int64_t k = 0; k < depth; ++k) {
                const double term = static_cast<double>(x[i * depth + k]) * static_cast<double>(plain[j * depth + k]);
                sum += term;
                magnitude = std::max(magnitude, std::abs(term));
              }
              e[static_cast<size_t>(i * n + j)] = sum;
            }
          require_close(y, e, 1e-5, 1e-6 * magnitude * static_cast<double>(depth));
        }
  }
}

TEST_CASE("typed weights: a row's bits do not depend on the other rows") {
  Random random(812);
  for (const DType type : kTypes) {
    CAPTURE(element_type(type).name);
    const int64_t depth = std::max<int64_t>(2 * element_type(type).block,
                                            77 / element_type(type).block * element_type(type).block),
                  n = 150;
    const Tensor x = random.floats({33, depth}), w = of_type(type, {n, depth}, random);
    const Tensor all = call(x, w).out({33, n}).run_one();
    for (const int64_t m : {1, 2, 3, 4, 5, 8, 12, 13}) {
      const Tensor some({m, depth}, std::vector<float>(x.data<float>(), x.data<float>() + m * depth));
      const Tensor y = call(some, w).out({m, n}).run_one();
      REQUIRE(std::memcmp(y.bytes.data(), all.bytes.data(), y.bytes.size()) == 0);
    }
  }
}

TEST_CASE("typed weights: bias, activation, several parts") {
  Random random(813);
  for (const DType type : {DType::BF16, DType::Q8_0}) {
    const Tensor x = random.floats({2, 3, 256}), w = of_type(type, {1000, 256}, random), bias = random.floats({1000});
    KernelCall with("linear"), without("linear");
    const Tensor y = with.set("activation", "relu").in(x).in(w).in(bias).out({2, 3, 1000}).run_one(),
                 plain = without.in(x).in(w).out({2, 3, 1000}).run_one();
    CHECK(with.parts() > 1);
    CHECK(with.kernel() == std::string(element_type(type).name) + " weights");
    for (int64_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == std::max(0.0f, plain[i] + bias[i % 1000]));
  }
}

TEST_CASE("typed weights: other calls are left to the body") {
  const Tensor x = Tensor::zeros({2, 64}), w = Tensor::zeros({64, 64}, HX_Q8_0);
  CHECK(call(x, w).out({2, 64}).served());
  CHECK_FALSE(call(x, w).set("transposed", 1).out({2, 64}).served());
  CHECK_FALSE(call(x, w).set("scale", 0.5).out({2, 64}).served());
  CHECK_FALSE(call(Tensor::zeros({2, 64}, HX_BF16), w).out({2, 64}, HX_BF16).served());
  CHECK_FALSE(call(x, Tensor::zeros({64, 64}, HX_F64)).out({2, 64}).served());
  CHECK_FALSE(KernelCall("cast").set("dtype", HX_F32).in(w).out({64, 64}).served());
  CHECK_FALSE(KernelCall("gather").set("axis", 0).in(w).in(Tensor::zeros({3}, HX_I64)).out({3, 64}, HX_Q8_0).served());
  CHECK_FALSE(KernelCall("dot").in(w).in(w).out({64, 64}).served());
  CHECK_FALSE(call(x, w).set("accumulate", "f64").out({2, 64}).served());
  CHECK_FALSE(call(x, w).set("out_dtype", "bf16").out({2, 64}, HX_BF16).served());
  const Tensor f32 = Tensor::zeros({64, 64}), ids = Tensor::zeros({3}, HX_I64);
  CHECK(call(x, f32).set("accumulate", "f32").out({2, 64}).served());
  CHECK_FALSE(call(x, f32).set("accumulate", "f64").out({2, 64}).served());
  CHECK_FALSE(call(x, f32).set("out_dtype", "f16").out({2, 64}, HX_F16).served());
  CHECK_FALSE(KernelCall("embedding").in(f32).in(ids).out({3, 64}, HX_BF16).served());
  CHECK(KernelCall("embedding").in(f32).in(ids).out({3, 64}).served());
  for (const char* sums : {"f32", "f64"})
    CHECK(KernelCall("dot")
              .set("lhs_contract", Dims{1})
              .set("rhs_contract", Dims{0})
              .set("accumulate", sums)
              .in(f32)
              .in(f32)
              .out({64, 64})
              .served() == (std::string(sums) == "f32"));
}

TEST_CASE("typed weights: embedding decodes rows, out-of-range indices are clamped") {
  Random random(814);
  for (const DType type : kTypes) {
    if (!is_stored(type)) continue;
    CAPTURE(element_type(type).name);
    const int64_t width = 3 * element_type(type).block;
    const Tensor table = of_type(type, {9, width}, random), ids = random.integers<int32_t>({4, 30}, -2, 11);
    const Tensor plain = decoded(table), y = KernelCall("embedding").in(table).in(ids).out({4, 30, width}).run_one();
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t id = std::clamp<int64_t>(ids.data<int32_t>()[i / width], 0, 8);
      REQUIRE(y[i] == plain[id * width + i % width]);
    }
  }
}

}  // namespace harmonics::engine::kernel_tests
