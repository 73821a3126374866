// Encoders for wider vectors give the bytes of the portable ones.
#include <catch2/catch.hpp>

#include <cmath>
#include <random>
#include <vector>

#include <harmonics/element_conversion.hpp>
#include <harmonics/element_weighted.hpp>

#include "engine/model/block_encoders.hpp"

using namespace harmonics;

TEST_CASE("block encoders: every type has the bytes of the portable encoder, with importance and without") {
  constexpr int64_t kCount = 24 * 256;
  std::mt19937 random(5);
  std::vector<float> numbers, weights;
  for (int64_t i = 0; i < kCount; ++i) {
    const double u = static_cast<double>(random()) / 4294967296.0, v = static_cast<double>(random()) / 4294967296.0;
    const double normal = std::sqrt(-2 * std::log(u + 1e-12)) * std::cos(6.283185307 * v);
    numbers.push_back(static_cast<float>(i % 1024 < 256 ? std::fabs(normal) : normal * std::exp2(i / 1024)));
    weights.push_back(static_cast<float>(i / 256 == 3 ? 0 : std::exp(3 * v)));
  }
  for (size_t i = 512; i < 768; ++i) numbers[i] = i % 2 ? 0.0f : 1.0f;  // ties and zeros
  for (size_t i = 768; i < 1024; ++i) numbers[i] = 0;
  numbers[1300] = INFINITY;
  numbers[1600] = NAN;
  for (const DType dtype : {DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_NL,
                            DType::IQ4_XS, DType::Q8_0, DType::Q4_0, DType::Q5_1, DType::F16}) {
    INFO(element_type(dtype).name);
    std::vector<char> expected(run_bytes(dtype, kCount)), found(expected.size());
    encode_elements(dtype, numbers.data(), expected.data(), kCount);
    engine::encode_blocks(dtype, numbers.data(), nullptr, found.data(), kCount);
    CHECK(found == expected);
    encode_weighted(dtype, numbers.data(), weights.data(), expected.data(), kCount);
    engine::encode_blocks(dtype, numbers.data(), weights.data(), found.data(), kCount);
    CHECK(found == expected);
  }
}
