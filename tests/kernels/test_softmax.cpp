#include "kernel_call.hpp"

#include <algorithm>
#include <limits>

namespace harmonics::engine::kernel_tests {
namespace {

double log_sum(const Tensor& x, int64_t row, int64_t n) {
  double most = -1e300, sum = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max<double>(most, x[row * n + i]);
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[row * n + i] - most);
  return most + std::log(sum);
}

}  // namespace

TEST_CASE("softmax, its logarithm and their gradients") {
  Random random(41);
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{64, 10}, {7, 1}, {3, 1000}, {500, 65}, {1, 33}}) {
    const Tensor x = random.floats({rows, n}, -20, 20), dy = random.floats({rows, n});
    const Tensor y = KernelCall("softmax").in(x).out(x.dims).alias(0, 0).run_one();
    const Tensor ly = KernelCall("log_softmax").in(x).out(x.dims).run_one();
    const Tensor dx = KernelCall("softmax_grad").in(y).in(dy).out(x.dims).run_one();
    const Tensor ldx = KernelCall("log_softmax_grad").in(ly).in(dy).out(x.dims).run_one();
    std::vector<double> e, le, g, lg;
    for (int64_t r = 0; r < rows; ++r) {
      const double lse = log_sum(x, r, n);
      double inner = 0, total = 0;
      for (int64_t i = r * n; i < r * n + n; ++i) {
        inner += static_cast<double>(y[i]) * dy[i];
        total += dy[i];
      }
      for (int64_t i = r * n; i < r * n + n; ++i) {
        e.push_back(std::exp(x[i] - lse));
        le.push_back(x[i] - lse);
        g.push_back(y[i] * (dy[i] - inner));
        lg.push_back(dy[i] - std::exp(static_cast<double>(ly[i])) * total);
      }
    }
    require_close(y, e, 3e-6, 1e-12);
    require_close(ly, le, 1e-6, 3e-6);
    require_close(dx, g, 1e-5, 1e-6);
    require_close(ldx, lg, 1e-5, 2e-6);
  }
}

TEST_CASE("softmax of huge and infinite values") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor x({2, 3}, std::vector<float>{3e38f, 3e38f, -3e38f, -kInf, 0, -kInf});
  require_close(KernelCall("softmax").in(x).out({2, 3}).run_one(), {0.5, 0.5, 0, 0, 1, 0}, 1e-6, 0);
}

TEST_CASE("softmax cross entropy and its gradient for every label type") {
  Random random(42);
  const int64_t rows = 301, n = 10;
  const Tensor x = random.floats({rows, n}, -9, 9), dloss = random.floats({rows});
  const Tensor wide = random.integers<int64_t>({rows}, 0, n);
  std::vector<int32_t> middle;
  std::vector<uint8_t> narrow;
  for (int64_t v : wide.values<int64_t>())
    middle.push_back(static_cast<int32_t>(v)), narrow.push_back(static_cast<uint8_t>(v));
  for (const Tensor& labels : {wide, Tensor({rows}, middle), Tensor({rows}, narrow)}) {
    const auto out = KernelCall("softmax_cross_entropy").in(x).in(labels).out({rows}).out({rows}).run();
    const Tensor dx =
        KernelCall("softmax_cross_entropy_grad").in(x).in(labels).in(out[1]).in(dloss).out({rows, n}).run_one();
    std::vector<double> loss, lse, g;
    for (int64_t r = 0; r < rows; ++r) {
      lse.push_back(log_sum(x, r, n));
      const int64_t label = wide.data<int64_t>()[r];
      loss.push_back(lse.back() - x[r * n + label]);
      for (int64_t i = 0; i < n; ++i) g.push_back((std::exp(x[r * n + i] - lse.back()) - (i == label)) * dloss[r]);
    }
    require_close(out[0], loss, 1e-6, 2e-6);
    require_close(out[1], lse, 1e-6, 1e-6);
    require_close(dx, g, 2e-6, 2e-6);
  }
}

TEST_CASE("softmax cross entropy: large logits keep precision") {
  Random random(43);
  for (const int64_t n : {2, 10, 16, 70})
    for (const float offset : {1e3f, -1e4f, 1e6f, 1e8f, -1e30f}) {
      INFO(n << " classes at " << offset);
      const Tensor small = random.integers<int64_t>({9, n}, 0, 5);
      std::vector<float> far;
      for (int64_t v : small.values<int64_t>()) far.push_back(offset + static_cast<float>(v));
      const Tensor x({9, n}, far), labels = random.integers<int64_t>({9}, 0, n), dloss = random.floats({9});
      const auto out = KernelCall("softmax_cross_entropy").in(x).in(labels).out({9}).out({9}).run();
      const Tensor dx =
          KernelCall("softmax_cross_entropy_grad").in(x).in(labels).in(out[1]).in(dloss).out({9, n}).run_one();
      std::vector<double> loss, g;
      for (int64_t r = 0; r < 9; ++r) {
        const int64_t label = labels.data<int64_t>()[r];
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; ++i) most = std::max<double>(most, x[r * n + i]);
        for (int64_t i = 0; i < n; ++i) sum += std::exp(x[r * n + i] - most);
        loss.push_back(std::log(sum) + (most - x[r * n + label]));
        for (int64_t i = 0; i < n; ++i) g.push_back((std::exp(x[r * n + i] - most) / sum - (i == label)) * dloss[r]);
      }
      require_close(out[0], loss, 1e-6, 1e-6);
      require_close(dx, g, 2e-6, 1e-6);
    }
}

TEST_CASE("the loss of a narrow row does not depend on its neighbours") {
  Random random(75);
  for (const int64_t columns : {1, 2, 3, 4, 7, 10, 16, 17}) {
    std::vector<float> v = random.floats({11, columns}).values<float>();
    for (int64_t i = 0; i < columns; ++i)
      v[static_cast<size_t>(2 * columns + i)] = -std::numeric_limits<float>::infinity();
    v[static_cast<size_t>(5 * columns)] = std::numeric_limits<float>::quiet_NaN();
    v[static_cast<size_t>(7 * columns - 1)] = 200;
    const Tensor labels = Tensor::zeros({11}, HX_I64);
    const Tensor x({11, columns}, v);
    const auto out = KernelCall("softmax_cross_entropy").in(x).in(labels).out({11}).out({11}).run();
    for (int64_t r = 0; r < 11; ++r) {
      INFO("row " << r << " of " << columns << " columns");
      if (r == 2 || r == 5) {
        CHECK(std::isnan(out[1][r]));
        continue;
      }
      CHECK(std::abs(out[1][r] - log_sum(x, r, columns)) <= 1e-6 * (1 + std::abs(out[1][r])));
      CHECK(std::abs(out[0][r] - (log_sum(x, r, columns) - x[r * columns])) <= 2e-6 * (1 + std::abs(out[1][r])));
    }
  }
}

TEST_CASE("softmax cross entropy: a label outside the classes gives an infinite loss") {
  const Tensor x({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}), labels({3}, std::vector<int64_t>{-1, 1, 2});
  const auto out = KernelCall("softmax_cross_entropy").in(x).in(labels).out({3}).out({3}).run();
  CHECK(std::isinf(out[0][0]));
  CHECK(std::isfinite(out[0][1]));
  CHECK(std::isinf(out[0][2]));
}

TEST_CASE("softmax: NaN affects its own row only") {
  Random random(74);
  for (const int64_t columns : {3, 17, 100}) {
    std::vector<float> v = random.floats({2, columns}).values<float>();
    v[static_cast<size_t>(columns / 2)] = std::numeric_limits<float>::quiet_NaN();
    for (const char* op : {"softmax", "log_softmax"}) {
      const Tensor y = KernelCall(op).in(Tensor({2, columns}, v)).out({2, columns}).run_one();
      for (int64_t i = 0; i < columns; ++i) {
        CHECK(std::isnan(y[i]));
        CHECK(std::isfinite(y[columns + i]));
      }
    }
  }
}

}  // namespace harmonics::engine::kernel_tests
