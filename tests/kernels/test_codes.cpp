#include "kernel_call.hpp"

#include <algorithm>

namespace harmonics::engine::kernel_tests {
namespace {

void check_codes(int64_t rows, int64_t n) {
  INFO(rows << " rows of " << n);
  Random random(72);
  const Tensor x = random.floats({rows, n}, -3, 5), gain = random.floats({n}, -2, 2);
  const auto out =
      KernelCall("rms_norm_quantize").set("epsilon", 1e-5).in(x).in(gain).out({rows, n}, HX_I8).out({rows}).run();
  const Tensor most = KernelCall("abs_max").set("rows", 1).in(x).out({rows}).run_one();
  for (int64_t r = 0; r < rows; ++r) {
    double square = 0, largest = 0, plain = 0;
    for (int64_t i = 0; i < n; ++i) square += double(x[r * n + i]) * x[r * n + i] / static_cast<double>(n);
    const double rstd = 1 / std::sqrt(square + 1e-5);
    for (int64_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::abs(x[r * n + i] * rstd * gain[i]));
      plain = std::max(plain, std::abs(double(x[r * n + i])));
    }
    CHECK(out[1][r] == Approx(largest / 127).epsilon(1e-5));
    CHECK(most[r] == plain);
    int8_t top = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int8_t code = out[0].data<int8_t>()[r * n + i];
      const double steps = x[r * n + i] * rstd * gain[i] / out[1][r];
      CHECK(std::abs(code - steps) <= 0.5 + 1e-3);
      top = std::max(top, static_cast<int8_t>(std::abs(code)));
    }
    CHECK(top == 127);
  }
}

}  // namespace

TEST_CASE("rms_norm_quantize gives codes and the scale of each row, abs_max its largest magnitude") {
  for (const int64_t n : {1, 3, 8, 16, 17, 33, 100, 1031}) check_codes(5, n);
  check_codes(67, 129);
}

TEST_CASE("rms_norm_quantize: rows of zeros have codes of zero, and NaN stays visible in the scale") {
  std::vector<float> numbers(2 * 19, 0.0f);
  numbers[19 + 4] = std::nanf("");
  const Tensor x({2, 19}, numbers), gain({19}, std::vector<float>(19, 1.0f));
  const auto out = KernelCall("rms_norm_quantize").in(x).in(gain).out({2, 19}, HX_I8).out({2}).run();
  CHECK(std::all_of(out[0].data<int8_t>(), out[0].data<int8_t>() + 19, [](int8_t code) { return code == 0; }));
  CHECK(out[1][0] > 0);
  CHECK(std::isnan(out[1][1]));
  const Tensor most = KernelCall("abs_max").set("rows", 1).in(x).out({2}).run_one();
  CHECK(most[0] == 0);
  CHECK(std::isnan(most[1]));
}

}  // namespace harmonics::engine::kernel_tests
