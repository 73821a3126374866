// Encoders that weight errors by column.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <harmonics/element_weighted.hpp>

using namespace harmonics;

namespace {

constexpr DType kWeighted[] = {DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1,   DType::Q2_K,  DType::Q3_K,
                               DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_NL, DType::IQ4_XS};

std::vector<float> wave(size_t count) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i)
    x[i] = std::sin(static_cast<float>(i) * 0.7f) + 0.3f * std::cos(static_cast<float>(i * i));
  return x;
}

double error_of(DType dtype, const std::vector<float>& x, const std::vector<float>& weights,
                const std::vector<float>& judged) {
  std::vector<char> blocks(run_bytes(dtype, static_cast<int64_t>(x.size())));
  std::vector<float> y(x.size());
  encode_weighted(dtype, x.data(), weights.data(), blocks.data(), static_cast<int64_t>(x.size()));
  decode_elements(dtype, blocks.data(), y.data(), static_cast<int64_t>(x.size()));
  double error = 0;
  for (size_t i = 0; i < x.size(); ++i)
    error += static_cast<double>(judged[i]) * std::pow(static_cast<double>(y[i]) - static_cast<double>(x[i]), 2);
  return error;
}

}  // namespace

TEST_CASE("weighted encoders: important numbers lose less than with equal weights") {
  const std::vector<float> x = wave(1024);
  std::vector<float> equal(x.size(), 1.0f), few(x.size(), 1.0f);
  for (size_t i = 0; i < x.size(); i += 5) few[i] = 60;
  for (const DType dtype : kWeighted) {
    INFO(element_type(dtype).name);
    CHECK(has_weighted_encoder(dtype));
    CHECK(error_of(dtype, x, few, few) < error_of(dtype, x, equal, few));
    CHECK(error_of(dtype, x, equal, equal) <= error_of(dtype, x, few, equal));
  }
}

TEST_CASE("weighted encoders: blocks without weight are encoded as without importance") {
  const std::vector<float> x = wave(512), none(512, 0.0f);
  for (const DType dtype : kWeighted) {
    INFO(element_type(dtype).name);
    std::vector<char> weighted(run_bytes(dtype, 512)), plain(weighted.size());
    encode_weighted(dtype, x.data(), none.data(), weighted.data(), 512);
    encode_elements(dtype, x.data(), plain.data(), 512);
    CHECK(weighted == plain);
  }
}

TEST_CASE("weighted encoders: zeros, equal numbers, infinities and a single weight are held") {
  std::vector<float> single(256, 0.0f);
  single[3] = 1;
  for (const DType dtype : kWeighted) {
    INFO(element_type(dtype).name);
    const std::vector<float> zeros(256, 0.0f), threes(256, 3.0f), ones(256, 1.0f);
    CHECK(error_of(dtype, zeros, ones, ones) == 0);
    CHECK(error_of(dtype, threes, ones, ones) / 256 < 1e-3);
    const std::vector<float> x = wave(256);
    CHECK(error_of(dtype, x, single, single) < 1e-2);
    // The others are still close: their weights are small but not zero.
    CHECK(error_of(dtype, x, single, ones) / 256 < 0.5);
    std::vector<float> infinite = x;
    infinite[7] = std::numeric_limits<float>::infinity();
    std::vector<char> blocks(run_bytes(dtype, 256));
    std::vector<float> y(256);
    encode_weighted(dtype, infinite.data(), ones.data(), blocks.data(), 256);
    decode_elements(dtype, blocks.data(), y.data(), 256);
    CHECK(std::isnan(y[0]));
  }
}

TEST_CASE("weighted encoders: types whose encoding is a rule ignore the weights") {
  const std::vector<float> x = wave(256);
  std::vector<float> weights(256, 1.0f);
  weights[9] = 1000;
  for (const DType dtype : {DType::F16, DType::BF16, DType::Q8_0, DType::MXFP4}) {
    CHECK_FALSE(has_weighted_encoder(dtype));
    std::vector<char> weighted(run_bytes(dtype, 256)), plain(weighted.size());
    encode_weighted(dtype, x.data(), weights.data(), weighted.data(), 256);
    encode_elements(dtype, x.data(), plain.data(), 256);
    CHECK(weighted == plain);
  }
}
