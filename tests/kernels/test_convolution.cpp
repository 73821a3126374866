#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct Conv {
  int64_t batch, in, out, height, width, kernel_h, kernel_w, groups;
  Dims strides, low, high, dilation;

  int64_t size(int64_t n, int64_t k, size_t i) const {
    return (n + low[i] + high[i] - (k - 1) * dilation[i] - 1) / strides[i] + 1;
  }
  int64_t out_h() const { return size(height, kernel_h, 0); }
  int64_t out_w() const { return size(width, kernel_w, 1); }
  Dims x() const { return {batch, in, height, width}; }
  Dims weight() const { return {out, in / groups, kernel_h, kernel_w}; }
  Dims y() const { return {batch, out, out_h(), out_w()}; }
  void describe(KernelCall& call) const {
    call.set("strides", strides)
        .set("padding_low", low)
        .set("padding_high", high)
        .set("dilation", dilation)
        .set("groups", groups);
  }
  // Calls f(index in x, index in weight, index in y) for every product.
  template <typename F>
  void each(F f) const {
    const int64_t oh = out_h(), ow = out_w(), per_group = in / groups;
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < oh; ++i)
          for (int64_t j = 0; j < ow; ++j)
            for (int64_t c = 0; c < per_group; ++c)
              for (int64_t a = 0; a < kernel_h; ++a)
                for (int64_t b = 0; b < kernel_w; ++b) {
                  const int64_t r = i * strides[0] - low[0] + a * dilation[0],
                                s = j * strides[1] - low[1] + b * dilation[1];
                  if (r < 0 || r >= height || s < 0 || s >= width) continue;
                  const int64_t channel = o / (out / groups) * per_group + c;
                  f(((n * in + channel) * height + r) * width + s, ((o * per_group + c) * kernel_h + a) * kernel_w + b,
                    ((n * out + o) * oh + i) * ow + j);
                }
  }
};

const Conv kConvs[] = {
    {5, 1, 6, 11, 13, 5, 5, 1, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {3, 16, 24, 9, 7, 3, 3, 1, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {2, 3, 10, 16, 15, 3, 2, 1, {2, 3}, {1, 0}, {0, 2}, {1, 1}},
    {4, 8, 12, 10, 10, 3, 3, 4, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 6, 6, 12, 9, 3, 3, 6, {1, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 5, 7, 14, 14, 3, 3, 1, {1, 1}, {2, 2}, {2, 2}, {2, 2}},
    {40, 8, 16, 14, 14, 5, 5, 1, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {1, 1, 1, 1, 9, 1, 3, 1, {1, 1}, {0, 1}, {0, 1}, {1, 1}},
};

}  // namespace

TEST_CASE("convolution and its two gradients") {
  Random random(61);
  for (const Conv& v : kConvs) {
    const Tensor x = random.floats(v.x()), w = random.floats(v.weight()), bias = random.floats({v.out}),
                 dy = random.floats(v.y());
    KernelCall forward("conv"), to_input("conv_grad_input"), to_weight("conv_grad_weight");
    v.describe(forward), v.describe(to_input), v.describe(to_weight);
    const Tensor y = forward.set("activation", "relu").in(x).in(w).in(bias).out(v.y()).run_one();
    const Tensor dx = to_input.set("input_shape", v.x()).in(w).in(dy).out(v.x()).run_one();
    const Tensor dw = to_weight.set("weight_shape", v.weight()).in(x).in(dy).out(v.weight()).run_one();
    std::vector<double> ey(static_cast<size_t>(y.size())), ex(static_cast<size_t>(x.size())),
        ew(static_cast<size_t>(w.size()));
    const int64_t places = v.out_h() * v.out_w();
    for (int64_t i = 0; i < y.size(); ++i) ey[static_cast<size_t>(i)] = bias[i / places % v.out];
    v.each([&](int64_t i, int64_t j, int64_t k) {
      ey[static_cast<size_t>(k)] += static_cast<double>(x[i]) * w[j];
      ex[static_cast<size_t>(i)] += static_cast<double>(dy[k]) * w[j];
      ew[static_cast<size_t>(j)] += static_cast<double>(dy[k]) * x[i];
    });
    for (double& e : ey) e = std::max(e, 0.0);
    INFO(v.in << " to " << v.out << " channels, kernel " << v.kernel_h << "x" << v.kernel_w << ", " << v.groups
              << " groups");
    require_close(y, ey, 1e-6, 2e-5);
    require_close(dx, ex, 1e-6, 2e-5);
    require_close(dw, ew, 1e-6, 3e-4);
  }
}

TEST_CASE("a convolution over one axis") {
  Random random(62);
  const int64_t n = 3, in = 4, out = 5, width = 20, kernel = 3;
  const Tensor x = random.floats({n, in, width}), w = random.floats({out, in, kernel});
  KernelCall call("conv");
  const Tensor y = call.set("strides", Dims{2})
                       .set("padding_low", Dims{1})
                       .set("padding_high", Dims{1})
                       .in(x)
                       .in(w)
                       .out({n, out, 10})
                       .run_one();
  std::vector<double> e;
  for (int64_t b = 0; b < n; ++b)
    for (int64_t o = 0; o < out; ++o)
      for (int64_t j = 0; j < 10; ++j) {
        double sum = 0;
        for (int64_t c = 0; c < in; ++c)
          for (int64_t k = 0; k < kernel; ++k)
            if (const int64_t s = 2 * j - 1 + k; s >= 0 && s < width)
              sum += static_cast<double>(x[(b * in + c) * width + s]) * w[(o * in + c) * kernel + k];
        e.push_back(sum);
      }
  require_close(y, e, 1e-6, 2e-6);
}

namespace {

struct Pool {
  int64_t planes, height, width;
  Dims kernel, strides, low, high, dilation;
  int64_t out(size_t i) const {
    return ((i ? width : height) + low[i] + high[i] - (kernel[i] - 1) * dilation[i] - 1) / strides[i] + 1;
  }
  Dims x() const { return {planes, 1, height, width}; }
  Dims y() const { return {planes, 1, out(0), out(1)}; }
  KernelCall call(const char* op) const {
    KernelCall c(op);
    c.set("kernel", kernel)
        .set("strides", strides)
        .set("padding_low", low)
        .set("padding_high", high)
        .set("dilation", dilation);
    return c;
  }
  // Returns the positions in the plane of output (i, j)'s window, in order.
  std::vector<int64_t> window(int64_t i, int64_t j) const {
    std::vector<int64_t> at;
    for (int64_t a = 0; a < kernel[0]; ++a)
      for (int64_t b = 0; b < kernel[1]; ++b) {
        const int64_t r = i * strides[0] - low[0] + a * dilation[0], s = j * strides[1] - low[1] + b * dilation[1];
        if (r >= 0 && r < height && s >= 0 && s < width) at.push_back(r * width + s);
      }
    return at;
  }
};
const Pool kPools[] = {{7, 28, 28, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
                       {5, 11, 9, {3, 2}, {2, 1}, {1, 0}, {1, 1}, {1, 1}},
                       {3, 10, 12, {2, 3}, {1, 2}, {1, 2}, {1, 2}, {2, 2}},
                       {700, 14, 14, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}}};

}  // namespace

TEST_CASE("pooling and its gradients") {
  Random random(63);
  for (const Pool& p : kPools) {
    const Tensor x = random.floats(p.x()), dy = random.floats(p.y());
    const auto most = p.call("max_pool").in(x).out(p.y()).out(p.y(), HX_I32).run();
    const Tensor back = KernelCall("max_pool_grad").set("input_shape", p.x()).in(most[1]).in(dy).out(p.x()).run_one();
    const auto n = static_cast<size_t>(x.size());
    std::vector<double> largest, dmax(n), means[2], dmean[2] = {std::vector<double>(n), std::vector<double>(n)};
    for (int64_t plane = 0, k = 0; plane < p.planes; ++plane)
      for (int64_t i = 0; i < p.out(0); ++i)
        for (int64_t j = 0; j < p.out(1); ++j, ++k) {
          const auto window = p.window(i, j);
          const int64_t start = plane * p.height * p.width;
          int64_t best = window.at(0);
          double sum = 0;
          for (int64_t at : window) {
            if (x[start + at] > x[start + best]) best = at;
            sum += x[start + at];
          }
          largest.push_back(x[start + best]);
          REQUIRE(most[1].data<int32_t>()[k] == best);
          dmax[static_cast<size_t>(start + best)] += dy[k];
          for (int include = 0; include < 2; ++include) {
            const double count =
                include ? static_cast<double>(p.kernel[0] * p.kernel[1]) : static_cast<double>(window.size());
            means[include].push_back(sum / count);
            for (int64_t at : window) dmean[include][static_cast<size_t>(start + at)] += dy[k] / count;
          }
        }
    require_close(most[0], largest, 0, 0);
    require_close(back, dmax, 1e-6, 1e-6);
    for (int include = 0; include < 2; ++include) {
      require_close(p.call("avg_pool").set("count_include_pad", include).in(x).out(p.y()).run_one(), means[include],
                    1e-6, 1e-6);
      KernelCall gradient = p.call("avg_pool_grad");
      gradient.set("count_include_pad", include).set("input_shape", p.x()).in(dy).out(p.x());
      require_close(gradient.run_one(), dmean[include], 1e-6, 1e-6);
    }
  }
}

}  // namespace harmonics::engine::kernel_tests
