#include "kernel_call.hpp"

#include <algorithm>

namespace harmonics::engine::kernel_tests {
namespace {

// A row of `n` elements at any offsets, common to all norms.
struct Row {
  std::vector<int64_t> at;
  double mean = 0, rstd = 0;

  Row(const Tensor& x, std::vector<int64_t> places, bool centred) : at(std::move(places)) {
    const auto n = static_cast<double>(at.size());
    for (int64_t i : at) mean += centred ? x[i] / n : 0;
    double square = 0;
    for (int64_t i : at) square += (x[i] - mean) * (x[i] - mean) / n;
    rstd = 1 / std::sqrt(square + 1e-5);
  }
  double unit(const Tensor& x, int64_t i) const { return (x[i] - mean) * rstd; }
  // Returns dx of this row, given each element's gain.
  template <typename Gain>
  void gradient(const Tensor& x, const Tensor& dy, Gain gain, bool centred, std::vector<double>& dx) const {
    const auto n = static_cast<double>(at.size());
    double sum = 0, product = 0;
    for (int64_t i : at) sum += dy[i] * gain(i) / n, product += dy[i] * gain(i) * unit(x, i) / n;
    for (int64_t i : at)
      dx[static_cast<size_t>(i)] = rstd * (dy[i] * gain(i) - (centred ? sum : 0) - unit(x, i) * product);
  }
};

std::vector<double> zeros(int64_t n) { return std::vector<double>(static_cast<size_t>(n)); }

void check_rows(const Dims& dims, int64_t axes, bool centred) {
  Random random(71);
  Tensor x = random.floats(dims, 2, 5);
  int64_t n = 1;
  for (size_t i = dims.size() - static_cast<size_t>(axes); i < dims.size(); ++i) n *= dims[i];
  const int64_t rows = x.size() / n;
  const Dims tail(dims.end() - axes, dims.end()), head(dims.begin(), dims.end() - axes);
  const Tensor gain = random.floats(tail, 0.5f, 2), bias = random.floats(tail), dy = random.floats(dims);
  KernelCall forward(centred ? "layer_norm" : "rms_norm"), backward(centred ? "layer_norm_grad" : "rms_norm_grad");
  forward.set("epsilon", 1e-5).set("norm_axes", axes).in(x).in(gain);
  if (centred) forward.in(bias);
  forward.out(dims).out(head);
  if (centred) forward.out(head);
  const auto out = forward.run();
  backward.set("norm_axes", axes).in(x).in(gain).in(out[1]);
  if (centred) backward.in(out[2]);
  backward.in(dy).out(dims).out(tail);
  if (centred) backward.out(tail);
  const auto back = backward.run();

  std::vector<double> y, mean, rstd, dx = zeros(x.size()), dgain = zeros(n), dbias = zeros(n);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < n; ++i) places.push_back(r * n + i);
    const Row row(x, places, centred);
    mean.push_back(row.mean);
    rstd.push_back(row.rstd);
    row.gradient(
        x, dy, [&](int64_t i) { return gain[i % n]; }, centred, dx);
    for (int64_t i : row.at) {
      y.push_back(row.unit(x, i) * gain[i % n] + (centred ? bias[i % n] : 0));
      dgain[static_cast<size_t>(i % n)] += dy[i] * row.unit(x, i);
      dbias[static_cast<size_t>(i % n)] += dy[i];
    }
  }
  const double many = 1e-6 * static_cast<double>(rows) + 1e-5;
  require_close(out[0], y, 1e-5, 2e-5);
  if (centred) require_close(out[1], mean, 1e-6, 0);
  require_close(out.back(), rstd, 1e-5, 0);
  require_close(back[0], dx, 1e-4, 2e-5);
  require_close(back[1], dgain, 1e-5, many);
  if (centred) require_close(back[2], dbias, 1e-5, many);
}

void check_batch(const Dims& dims) {
  Random random(72);
  const Tensor x = random.floats(dims, -3, 1), dy = random.floats(dims);
  const int64_t channels = dims[1], places = x.size() / dims[0] / channels;
  const Tensor gain = random.floats({channels}, 0.5f, 2), bias = random.floats({channels});
  const auto out = KernelCall("batch_norm")
                       .set("epsilon", 1e-5)
                       .in(x)
                       .in(gain)
                       .in(bias)
                       .out(dims)
                       .out({channels})
                       .out({channels})
                       .run();
  const auto back = KernelCall("batch_norm_grad")
                        .in(x)
                        .in(gain)
                        .in(out[1])
                        .in(out[2])
                        .in(dy)
                        .out(dims)
                        .out({channels})
                        .out({channels})
                        .run();
  std::vector<double> y = zeros(x.size()), mean, rstd, dx = zeros(x.size()), dgain = zeros(channels),
                      dbias = zeros(channels);
  for (int64_t c = 0; c < channels; ++c) {
    std::vector<int64_t> at;
    for (int64_t i = 0; i < x.size(); ++i)
      if (i / places % channels == c) at.push_back(i);
    const Row row(x, at, true);
    mean.push_back(row.mean);
    rstd.push_back(row.rstd);
    row.gradient(
        x, dy, [&](int64_t) { return gain[c]; }, true, dx);
    for (int64_t i : at) {
      y[static_cast<size_t>(i)] = row.unit(x, i) * gain[c] + bias[c];
      dgain[static_cast<size_t>(c)] += dy[i] * row.unit(x, i);
      dbias[static_cast<size_t>(c)] += dy[i];
    }
  }
  require_close(out[0], y, 1e-5, 2e-5);
  require_close(out[1], mean, 1e-5, 1e-6);
  require_close(out[2], rstd, 1e-5, 0);
  require_close(back[0], dx, 1e-4, 2e-5);
  require_close(back[1], dgain, 1e-5, 1e-4);
  require_close(back[2], dbias, 1e-5, 1e-4);
}

void check_group(const Dims& dims, int64_t groups) {
  Random random(73);
  const Tensor x = random.floats(dims, -3, 1), dy = random.floats(dims);
  const int64_t channels = dims[1], n = x.size() / dims[0] / groups, places = x.size() / dims[0] / channels;
  const Tensor gain = random.floats({channels}, 0.5f, 2), bias = random.floats({channels});
  const Dims few{dims[0], groups};
  const auto out = KernelCall("group_norm")
                       .set("epsilon", 1e-5)
                       .set("groups", groups)
                       .in(x)
                       .in(gain)
                       .in(bias)
                       .out(dims)
                       .out(few)
                       .out(few)
                       .run();
  const auto back = KernelCall("group_norm_grad")
                        .set("groups", groups)
                        .in(x)
                        .in(gain)
                        .in(out[1])
                        .in(out[2])
                        .in(dy)
                        .out(dims)
                        .out({channels})
                        .out({channels})
                        .run();
  std::vector<double> y = zeros(x.size()), mean, rstd, dx = zeros(x.size()), dgain = zeros(channels),
                      dbias = zeros(channels);
  const auto channel = [&](int64_t i) { return i / places % channels; };
  for (int64_t r = 0; r < dims[0] * groups; ++r) {
    std::vector<int64_t> at;
    for (int64_t i = 0; i < n; ++i) at.push_back(r * n + i);
    const Row row(x, at, true);
    mean.push_back(row.mean);
    rstd.push_back(row.rstd);
    row.gradient(
        x, dy, [&](int64_t i) { return gain[channel(i)]; }, true, dx);
    for (int64_t i : at) {
      y[static_cast<size_t>(i)] = row.unit(x, i) * gain[channel(i)] + bias[channel(i)];
      dgain[static_cast<size_t>(channel(i))] += dy[i] * row.unit(x, i);
      dbias[static_cast<size_t>(channel(i))] += dy[i];
    }
  }
  require_close(out[0], y, 1e-5, 2e-5);
  require_close(out[1], mean, 1e-5, 1e-6);
  require_close(out[2], rstd, 1e-5, 0);
  require_close(back[0], dx, 1e-4, 2e-5);
  require_close(back[1], dgain, 1e-5, 1e-4);
  require_close(back[2], dbias, 1e-5, 1e-4);
}

// Returns the error of `op` compared with double, for values of deviation 1 around `offset`. PyTorch's float32, whose
// mean is rounded at the scale of the offset, has 5e-4 at 10,000.
double norm_error(const char* op, const Dims& dims, int64_t groups, float offset) {
  Random random(76);
  std::vector<float> v = random.floats(dims, -1.7f, 1.7f).values<float>();
  for (float& x : v) x += offset;
  const Tensor x(dims, v);
  const bool layer = std::string(op) == "layer_norm";
  const Dims own{layer ? dims.back() : dims[1]};
  const Tensor gain(own, std::vector<float>(static_cast<size_t>(own[0]), 1)), bias = Tensor::zeros(own);
  const int64_t places = x.size() / dims[0] / dims[1];
  const auto set_of = [&](int64_t i) {
    if (layer) return i / dims.back();
    if (groups == 0) return i / places % dims[1];
    return i / (x.size() / dims[0] / groups);
  };
  const int64_t sets = layer ? x.size() / dims.back() : groups == 0 ? dims[1] : dims[0] * groups;
  KernelCall call(op);
  call.set("epsilon", 1e-5).in(x).in(gain).in(bias).out(dims);
  if (groups > 0) call.set("groups", groups);
  const Dims statistics = layer ? Dims(dims.begin(), dims.end() - 1) : groups == 0 ? own : Dims{dims[0], groups};
  const auto out = call.out(statistics).out(statistics).run();
  double worst = 0;
  for (int64_t set = 0; set < sets; ++set) {
    std::vector<int64_t> at;
    for (int64_t i = 0; i < x.size(); ++i)
      if (set_of(i) == set) at.push_back(i);
    const Row row(x, at, true);
    for (int64_t i : at) worst = std::max(worst, std::abs(out[0][i] - row.unit(x, i)));
    CHECK(out[1][set] == Approx(row.mean).epsilon(1e-7).margin(1e-6));
    CHECK(out[2][set] == Approx(row.rstd).epsilon(3e-6));
  }
  return worst;
}

}  // namespace

TEST_CASE("norms: a large offset keeps precision") {
  for (const float offset : {0.0f, 1e4f, -3e5f}) {
    INFO("offset " << offset);
    CHECK(norm_error("batch_norm", {8, 5, 6, 7}, 0, offset) < 3e-6);
    CHECK(norm_error("batch_norm", {64, 33}, 0, offset) < 3e-6);
    CHECK(norm_error("batch_norm", {1000, 5}, 0, offset) < 3e-6);
    CHECK(norm_error("group_norm", {3, 6, 5, 7}, 2, offset) < 3e-6);
    CHECK(norm_error("group_norm", {33, 24}, 3, offset) < 3e-6);
    CHECK(norm_error("layer_norm", {37, 65}, 0, offset) < 3e-6);
    CHECK(norm_error("layer_norm", {12, 1000}, 0, offset) < 3e-6);
  }
}

TEST_CASE("norms: equal elements or an overflowing variance give the bias") {
  for (const float all : {0.1f, 1e4f, -3e8f, 1e30f})
    for (const bool spread : {false, true}) {
      if (spread && all < 1e29f) continue;
      std::vector<float> v(7 * 5, all);
      if (spread)
        for (size_t i = 0; i < v.size(); ++i) v[i] = i % 2 ? all : -all;
      const Tensor x({7, 5}, v), gain({5}, std::vector<float>(5, 2)), bias({5}, std::vector<float>{1, 2, 3, 4, 5});
      for (const char* op : {"batch_norm", "layer_norm"}) {
        INFO(op << " of " << all);
        const Dims statistics{std::string(op) == "batch_norm" ? 5 : 7};
        const Tensor y = KernelCall(op)
                             .set("epsilon", 1e-5)
                             .in(x)
                             .in(gain)
                             .in(bias)
                             .out({7, 5})
                             .out(statistics)
                             .out(statistics)
                             .run()[0];
        for (int64_t i = 0; i < y.size(); ++i) CHECK(y[i] == Approx(bias[i % 5]).margin(1e-3));
      }
    }
}

TEST_CASE("layer norm and rms norm with their gradients") {
  for (bool centred : {true, false}) {
    check_rows({37, 65}, 1, centred);
    check_rows({4, 1}, 1, centred);
    check_rows({12, 100, 128}, 1, centred);
  }
  check_rows({9, 5, 7}, 2, true);
}

TEST_CASE("batch norm and its gradient") {
  check_batch({8, 5, 6, 7});
  check_batch({3, 2, 1000});
  check_batch({64, 33});
  check_batch({32, 600});
  check_batch({16, 40, 14, 14});
}

TEST_CASE("group norm and its gradient") {
  check_group({3, 6, 5, 7}, 2);
  check_group({2, 15, 1000}, 5);
  check_group({33, 24}, 3);
  check_group({5, 7}, 1);
  check_group({4, 9, 3, 3}, 9);
  check_group({16, 32, 14, 14}, 8);
}

}  // namespace harmonics::engine::kernel_tests
