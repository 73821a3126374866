// Convolution and max pooling in one kernel, and gradients that visit only the maxima.
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct PooledCase {
  int64_t batch, in, out, height, width, kernel_h, kernel_w;
  Dims strides, low, high, pool, step;

  int64_t places(size_t i) const {
    const int64_t size = i ? width : height, k = i ? kernel_w : kernel_h;
    return (size + low[i] + high[i] - k) / strides[i] + 1;
  }
  int64_t pooled(size_t i) const { return (places(i) - pool[i]) / step[i] + 1; }
  Dims x() const { return {batch, in, height, width}; }
  Dims weight() const { return {out, in, kernel_h, kernel_w}; }
  Dims y() const { return {batch, out, pooled(0), pooled(1)}; }
  int64_t planes() const { return batch * out; }

  KernelCall call(const char* op) const {
    KernelCall c(op);
    c.set("strides", strides).set("padding_low", low).set("padding_high", high);
    return c;
  }
  // Calls f(index in x, index in weight) for every product of position (i, j) in plane `plane` of the convolution's
  // result.
  template <typename F>
  void products(int64_t plane, int64_t i, int64_t j, F f) const {
    const int64_t n = plane / out, o = plane % out;
    for (int64_t c = 0; c < in; ++c)
      for (int64_t a = 0; a < kernel_h; ++a)
        for (int64_t b = 0; b < kernel_w; ++b) {
          const int64_t r = i * strides[0] - low[0] + a, s = j * strides[1] - low[1] + b;
          if (r < 0 || r >= height || s < 0 || s >= width) continue;
          f(((n * in + c) * height + r) * width + s, ((o * in + c) * kernel_h + a) * kernel_w + b);
        }
  }
};

const PooledCase kPooledCases[] = {
    {3, 1, 6, 12, 13, 5, 5, {1, 1}, {2, 2}, {2, 2}, {2, 2}, {2, 2}},
    {2, 6, 16, 14, 14, 5, 5, {1, 1}, {0, 0}, {0, 0}, {2, 2}, {2, 2}},
    {5, 3, 33, 9, 11, 3, 2, {1, 1}, {1, 0}, {0, 1}, {3, 2}, {3, 3}},
    {2, 20, 7, 17, 16, 3, 3, {2, 2}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {1, 32, 64, 14, 14, 3, 3, {1, 1}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {1, 40, 24, 8, 31, 1, 7, {1, 3}, {0, 3}, {0, 3}, {1, 2}, {1, 2}},
    {17, 2, 9, 7, 6, 4, 3, {1, 1}, {3, 0}, {0, 2}, {4, 1}, {5, 1}},
    {40, 16, 40, 13, 12, 5, 5, {1, 1}, {2, 2}, {2, 2}, {2, 3}, {2, 3}},
};

void describe(const PooledCase& v) {
  UNSCOPED_INFO(v.in << " to " << v.out << " channels, kernel " << v.kernel_h << "x" << v.kernel_w << ", pooled "
                     << v.pool[0] << "x" << v.pool[1]);
}

}  // namespace

TEST_CASE("conv_max_pool: f32 only") {
  const PooledCase& v = kPooledCases[0];
  for (const uint32_t dtype : {HX_F32, HX_F64, HX_F16, HX_BF16}) {
    KernelCall call = v.call("conv_max_pool");
    call.set("pool_kernel", v.pool).set("pool_strides", v.step);
    call.in(Tensor::zeros(v.x(), dtype)).in(Tensor::zeros(v.weight(), dtype)).out(v.y(), dtype).out(v.y(), HX_I32);
    CHECK(call.served() == (dtype == HX_F32));
  }
}

TEST_CASE("conv_max_pool: maximum and index of each window") {
  Random random(161);
  for (const PooledCase& v : kPooledCases)
    for (const bool relu : {false, true}) {
      const Tensor x = random.floats(v.x()), w = random.floats(v.weight()), bias = random.floats({v.out});
      KernelCall call = v.call("conv_max_pool");
      call.set("pool_kernel", v.pool).set("pool_strides", v.step).in(x).in(w);
      if (relu) call.set("activation", "relu").in(bias);
      const auto result = call.out(v.y()).out(v.y(), HX_I32).run();
      std::vector<double> largest, at_index;
      std::vector<double> plane(static_cast<size_t>(v.places(0) * v.places(1)));
      const int32_t* index = result[1].data<int32_t>();
      for (int64_t p = 0; p < v.planes(); ++p) {
        for (int64_t i = 0, k = 0; i < v.places(0); ++i)
          for (int64_t j = 0; j < v.places(1); ++j, ++k) {
            double sum = relu ? bias[p % v.out] : 0;
            v.products(p, i, j, [&](int64_t a, int64_t b) { sum += static_cast<double>(x[a]) * w[b]; });
            plane[static_cast<size_t>(k)] = relu ? std::max(sum, 0.0) : sum;
          }
        for (int64_t i = 0; i < v.pooled(0); ++i)
          for (int64_t j = 0; j < v.pooled(1); ++j, ++index) {
            const int64_t row = *index / v.places(1) - i * v.step[0], column = *index % v.places(1) - j * v.step[1];
            REQUIRE((row >= 0 && row < v.pool[0] && column >= 0 && column < v.pool[1]));
            double most = -1e30;
            for (int64_t a = 0; a < v.pool[0]; ++a)
              for (int64_t b = 0; b < v.pool[1]; ++b)
                most =
                    std::max(most, plane[static_cast<size_t>((i * v.step[0] + a) * v.places(1) + j * v.step[1] + b)]);
            largest.push_back(most);
            at_index.push_back(plane[static_cast<size_t>(*index)]);
            if (most == 0) REQUIRE((row == 0 && column == 0));  // relu set all to 0: ties select the first
          }
      }
      describe(v);
      require_close(result[0], largest, 1e-6, 4e-5);
      require_close(result[0], at_index, 1e-6, 4e-5);
    }
}

TEST_CASE("conv_max_pool gradients: only maxima contribute") {
  Random random(162);
  for (const PooledCase& v : kPooledCases) {
    if (2 * v.pooled(0) * v.pooled(1) > v.places(0) * v.places(1)) continue;
    const Tensor x = random.floats(v.x()), w = random.floats(v.weight());
    std::vector<int32_t> indices;
    std::vector<float> gradients;
    for (int64_t k = 0; k < v.planes() * v.pooled(0) * v.pooled(1); ++k) {
      const int64_t i = k / v.pooled(1) % v.pooled(0), j = k % v.pooled(1);
      indices.push_back(static_cast<int32_t>((i * v.step[0] + random.below(v.pool[0])) * v.places(1) + j * v.step[1] +
                                             random.below(v.pool[1])));
      gradients.push_back(random.below(3) ? random.floats({1})[0] : 0.0f);
    }
    const Tensor at(v.y(), indices), dy(v.y(), gradients);
    const Tensor dx =
        v.call("conv_max_pool_grad_input").set("input_shape", v.x()).in(w).in(at).in(dy).out(v.x()).run_one();
    const Tensor dw = v.call("conv_max_pool_grad_weight")
                          .set("weight_shape", v.weight())
                          .in(x)
                          .in(at)
                          .in(dy)
                          .out(v.weight())
                          .run_one();
    std::vector<double> ex(static_cast<size_t>(x.size())), ew(static_cast<size_t>(w.size()));
    const int64_t pooled = v.pooled(0) * v.pooled(1);
    for (size_t k = 0; k < indices.size(); ++k)
      v.products(static_cast<int64_t>(k) / pooled, indices[k] / v.places(1), indices[k] % v.places(1),
                 [&](int64_t a, int64_t b) {
                   ex[static_cast<size_t>(a)] += static_cast<double>(gradients[k]) * w[b];
                   ew[static_cast<size_t>(b)] += static_cast<double>(gradients[k]) * x[a];
                 });
    describe(v);
    require_close(dx, ex, 1e-6, 4e-5);
    require_close(dw, ew, 1e-6, 3e-4);
  }
}

TEST_CASE("conv_max_pool: NaN wins, else the first of equals") {
  Tensor x({1, 1, 2, 8}, std::vector<float>{1, 1, 0, NAN, NAN, 5, -3, -2,  //
                                            1, 1, 7, 2, 3, NAN, -2, -4});
  const Tensor w({1, 1, 1, 1}, std::vector<float>{1});
  KernelCall call("conv_max_pool");
  call.set("pool_kernel", Dims{2, 2}).set("pool_strides", Dims{2, 2}).in(x).in(w);
  const auto y = call.out({1, 1, 1, 4}).out({1, 1, 1, 4}, HX_I32).run();
  require_close(y[0], {1, NAN, NAN, -2}, 0, 0);
  CHECK(y[1].values<int32_t>() == std::vector<int32_t>{0, 3, 4, 7});
}

TEST_CASE("conv_max_pool gradients: dense cases are declined") {
  KernelCall overlapping("conv_max_pool");
  overlapping.set("pool_kernel", Dims{3, 3}).set("pool_strides", Dims{2, 2});
  overlapping.in(Tensor::zeros({1, 1, 9, 9}))
      .in(Tensor::zeros({2, 1, 1, 1}))
      .out({1, 2, 4, 4})
      .out({1, 2, 4, 4}, HX_I32);
  CHECK_FALSE(overlapping.served());
  KernelCall wide("conv_max_pool_grad_input");
  wide.set("input_shape", Dims{1, 1, 4, 4}).in(Tensor::zeros({2, 1, 1, 1}));
  wide.in(Tensor::zeros({1, 2, 4, 3}, HX_I32)).in(Tensor::zeros({1, 2, 4, 3})).out({1, 1, 4, 4});
  CHECK_FALSE(wide.served());
}

}  // namespace harmonics::engine::kernel_tests
