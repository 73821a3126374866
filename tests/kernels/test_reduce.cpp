#include "kernel_call.hpp"

#include "engine/tensor/half.hpp"

#include <algorithm>
#include <limits>

namespace harmonics::engine::kernel_tests {
namespace {

// Reference by definition: the initial result of each element, and the combining function.
template <typename T, typename Join>
std::vector<double> reduce(const Tensor& x, const Dims& axes, double start, Join join) {
  Dims kept = x.dims;
  for (int64_t a : axes) kept[static_cast<size_t>(a)] = 1;
  std::vector<double> y(static_cast<size_t>(elements(kept)), start);
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (size_t k = kept.size(); k-- > 0; rest /= x.dims[k]) {
      at += (kept[k] == 1 ? 0 : rest % x.dims[k]) * step;
      step *= kept[k];
    }
    double& total = y[static_cast<size_t>(at)];
    total = join(total, static_cast<double>(x.data<T>()[i]));
  }
  return y;
}
Dims left(const Tensor& x, const Dims& axes) {
  Dims d;
  for (size_t i = 0; i < x.dims.size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) d.push_back(x.dims[i]);
  return d;
}

struct ReduceCase {
  Dims dims, axes;
};
const ReduceCase kReduceCases[] = {{{64, 392}, {0}},
                                   {{64, 392}, {1}},
                                   {{5, 7, 11}, {1}},
                                   {{5, 7, 11}, {0, 2}},
                                   {{5, 7, 11}, {0, 1, 2}},
                                   {{100003}, {0}},
                                   {{1000, 33}, {0}},
                                   {{8, 6, 28, 28}, {0, 2, 3}},
                                   {{3, 4, 5, 6}, {0, 2}},
                                   {{1, 9, 1}, {0}},
                                   {{20000, 3}, {0}},
                                   {{16, 4096}, {0, 1}},
                                   {{2, 3}, {}},
                                   {{700, 1, 513}, {2}},
                                   {{40, 3, 2000}, {0, 2}}};

}  // namespace

TEST_CASE("sums, products and extremes over any axes") {
  Random random(21);
  for (const ReduceCase& c : kReduceCases) {
    const Tensor x = random.floats(c.dims), near_one = random.floats(c.dims, 0.99f, 1.01f);
    const auto run = [&](const char* name, const Tensor& t) {
      return KernelCall(name).set("axes", c.axes).in(t).out(left(t, c.axes)).run_one();
    };
    INFO("rank " << c.dims.size() << ", " << x.size() << " elements, " << c.axes.size() << " axes");
    const auto size = reduce<float>(x, c.axes, 0, [](double a, double b) { return a + std::abs(b); });
    const auto sum = reduce<float>(x, c.axes, 0, [](double a, double b) { return a + b; });
    require_close(run("reduce_sum", x), sum, 1e-6, 3e-7 * *std::max_element(size.begin(), size.end()));
    require_close(run("reduce_max", x),
                  reduce<float>(x, c.axes, -1e9, [](double a, double b) { return std::max(a, b); }), 0, 0);
    require_close(run("reduce_min", x),
                  reduce<float>(x, c.axes, 1e9, [](double a, double b) { return std::min(a, b); }), 0, 0);
    require_close(run("reduce_prod", near_one),
                  reduce<float>(near_one, c.axes, 1, [](double a, double b) { return a * b; }), 2e-5, 0);
  }
}

TEST_CASE("reduce_sum: long sums keep precision") {
  const Tensor x({1 << 20}, std::vector<float>(1 << 20, 0.1f));
  const Tensor y = KernelCall("reduce_sum").set("axes", Dims{0}).in(x).out({}).run_one();
  require_close(y, {(1 << 20) * static_cast<double>(0.1f)}, 1e-6, 0);
}

TEST_CASE("reductions: integer sums are exact, NaN wins max and min") {
  Random random(22);
  const Tensor x = random.integers<int64_t>({37, 19}, -1000000000, 1000000000);
  const Tensor y = KernelCall("reduce_sum").set("axes", Dims{0}).in(x).out({19}, HX_I64).run_one();
  for (int64_t c = 0; c < 19; ++c) {
    int64_t sum = 0;
    for (int64_t r = 0; r < 37; ++r) sum += x.data<int64_t>()[r * 19 + c];
    REQUIRE(y.data<int64_t>()[c] == sum);
  }
  for (int64_t place : {0, 5, 99}) {
    std::vector<float> v(100, 1);
    v[static_cast<size_t>(place)] = std::numeric_limits<float>::quiet_NaN();
    for (const char* name : {"reduce_max", "reduce_min", "reduce_sum"})
      CHECK(std::isnan(KernelCall(name).set("axes", Dims{0}).in(Tensor({100}, v)).out({}).run_one()[0]));
    CHECK(KernelCall("argmax").set("axis", 0).in(Tensor({100}, v)).out({}, HX_I64).run_one().data<int64_t>()[0] ==
          place);
  }
}

TEST_CASE("argmax, argmin and running sums") {
  Random random(23);
  for (int64_t axis : {0, 1, 2}) {
    const Tensor x = random.integers<int32_t>({13, 17, 9}, -4, 5);  // many ties
    Dims out = x.dims;
    out.erase(out.begin() + axis);
    const int64_t inner = axis == 0 ? 153 : axis == 1 ? 9 : 1, size = x.dims[static_cast<size_t>(axis)];
    const Tensor high = KernelCall("argmax").set("axis", axis).in(x).out(out, HX_I64).run_one();
    const Tensor low = KernelCall("argmin").set("axis", axis).in(x).out(out, HX_I64).run_one();
    const Tensor sums = KernelCall("cumsum").set("axis", axis).in(x).out(x.dims, HX_I32).run_one();
    for (int64_t l = 0; l < high.size(); ++l) {
      const int32_t* lane = x.data<int32_t>() + l / inner * size * inner + l % inner;
      int64_t best = 0, worst = 0;
      int32_t sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        if (lane[k * inner] > lane[best * inner]) best = k;
        if (lane[k * inner] < lane[worst * inner]) worst = k;
        sum += lane[k * inner];
        REQUIRE(sums.data<int32_t>()[l / inner * size * inner + l % inner + k * inner] == sum);
      }
      REQUIRE(high.data<int64_t>()[l] == best);
      REQUIRE(low.data<int64_t>()[l] == worst);
    }
  }
}

TEST_CASE("argmax, argmin: first of equals, first NaN") {
  Random random(24);
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t size : {1, 3, 10, 16, 17, 64, 100}) {
    std::vector<float> v;
    for (int64_t i = 0; i < 60 * size; ++i) v.push_back(static_cast<float>(random.below(5)) - 2);
    for (int64_t i = 0; i < size; ++i)
      v[static_cast<size_t>(i)] = -infinity, v[static_cast<size_t>(size + i)] = infinity;
    for (int64_t r = 2; r < 20; ++r)
      v[static_cast<size_t>(r * size + random.below(size))] = r % 3 == 0 ? nan : r % 3 == 1 ? infinity : -infinity;
    for (int64_t r = 2; r < 10; ++r) v[static_cast<size_t>(r * size + random.below(size))] = nan;
    const Tensor x({60, size}, v);
    for (const char* name : {"argmax", "argmin"}) {
      const Tensor y = KernelCall(name).set("axis", 1).in(x).out({60}, HX_I64).run_one();
      for (int64_t r = 0; r < 60; ++r) {
        int64_t best = 0;
        for (int64_t k = 1; k < size; ++k) {
          const float a = v[static_cast<size_t>(r * size + best)], b = v[static_cast<size_t>(r * size + k)];
          if (!std::isnan(a) && (std::isnan(b) || (name[3] == 'm' && name[4] == 'a' ? b > a : b < a))) best = k;
        }
        INFO(name << ", row " << r << " of " << size);
        REQUIRE(y.data<int64_t>()[r] == best);
      }
    }
  }
}

namespace {

struct Windows {
  Dims dims, window, strides, low, high, dilation;
};
const Windows kWindows[] = {{{37}, {5}, {1}, {0}, {0}, {1}},
                            {{37}, {5}, {2}, {3}, {1}, {3}},
                            {{9, 130}, {1, 7}, {1, 1}, {0, 3}, {0, 3}, {1, 1}},
                            {{30, 41}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
                            {{2, 3, 28, 28}, {1, 1, 3, 3}, {1, 1, 2, 2}, {0, 0, 1, 1}, {0, 0, 1, 1}, {1, 1, 1, 1}},
                            {{6, 5, 7, 4}, {2, 3, 2, 2}, {2, 1, 3, 1}, {1, 0, 2, 1}, {0, 2, 1, 4}, {1, 2, 1, 3}},
                            {{3, 5, 11}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}},
                            {{4, 6}, {1, 1}, {3, 2}, {2, 1}, {3, 0}, {1, 1}},  // some windows contain padding only
                            {{64, 3000}, {4, 1}, {1, 1}, {3, 0}, {0, 0}, {1, 1}}};

// Computes every window by its definition.
template <typename T, typename Join>
std::vector<double> reduce_windows(const Windows& w, const Tensor& x, const Dims& places, double start, Join join) {
  std::vector<double> y(static_cast<size_t>(elements(places)), start);
  for (int64_t i = 0; i < elements(places); ++i)
    for (int64_t k = 0; k < elements(w.window); ++k) {
      int64_t place = i, tap = k, at = 0, step = 1;
      bool inside = true;
      for (size_t a = w.dims.size(); a-- > 0; place /= places[a], tap /= w.window[a], step *= w.dims[a]) {
        const int64_t here = place % places[a] * w.strides[a] - w.low[a] + tap % w.window[a] * w.dilation[a];
        inside = inside && here >= 0 && here < w.dims[a];
        at += here * step;
      }
      double& total = y[static_cast<size_t>(i)];
      if (inside) total = join(total, static_cast<double>(x.data<T>()[at]));
    }
  return y;
}

Dims places_of(const Windows& w) {
  Dims places;
  for (size_t a = 0; a < w.dims.size(); ++a)
    places.push_back((w.dims[a] + w.low[a] + w.high[a] - (w.window[a] - 1) * w.dilation[a] - 1) / w.strides[a] + 1);
  return places;
}
// A call refers to its own lists, so it must not be copied.
struct WindowsCall : KernelCall {
  WindowsCall(const char* op, const Windows& w) : KernelCall(op) {
    set("window", w.window).set("strides", w.strides).set("dilation", w.dilation);
    set("padding_low", w.low).set("padding_high", w.high);
  }
};

template <typename T>
void check_windows(const Windows& w, const Tensor& x, double tolerance) {
  const Dims places = places_of(w);
  using Limits = std::numeric_limits<T>;
  const double least = Limits::has_infinity ? -Limits::infinity() : static_cast<double>(Limits::lowest()),
               most = Limits::has_infinity ? Limits::infinity() : static_cast<double>(Limits::max());
  const auto check = [&](const char* reduction, double start, double (*join)(double, double)) {
    WindowsCall call("reduce_window", w);
    call.set("reduction", reduction);
    const std::vector<T> y = call.in(x).out(places, x.dtype).run_one().template values<T>();
    const std::vector<double> expected = reduce_windows<T>(w, x, places, start, join);
    INFO(reduction << " over rank " << w.dims.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const double actual = static_cast<double>(y[i]),
                   e = Limits::is_integer ? expected[i] : static_cast<double>(static_cast<T>(expected[i]));
      REQUIRE((actual == e || (std::isnan(actual) && std::isnan(e)) || std::abs(actual - e) <= tolerance));
    }
  };
  check("sum", 0, [](double a, double b) { return a + b; });
  check("max", least, [](double a, double b) { return std::isnan(a) || a >= b ? a : b; });
  check("min", most, [](double a, double b) { return std::isnan(a) || a <= b ? a : b; });
}

}  // namespace

TEST_CASE("windows: sums and extremes over any axes, strides, paddings and dilations") {
  Random random(24);
  for (const Windows& w : kWindows) {
    check_windows<float>(w, random.floats(w.dims), 5e-6);
    check_windows<double>(w,
                          Tensor(w.dims,
                                 [&] {
                                   const std::vector<float> x = random.floats(w.dims).values<float>();
                                   return std::vector<double>(x.begin(), x.end());
                                 }()),
                          1e-14);
    check_windows<int32_t>(w, random.integers<int32_t>(w.dims, -1000, 1000), 0);
    check_windows<int64_t>(w, random.integers<int64_t>(w.dims, -1000, 1000), 0);
    check_windows<uint8_t>(w, random.integers<uint8_t>(w.dims, 0, 3), 0);
    check_windows<int8_t>(w, random.integers<int8_t>(w.dims, -2, 3), 0);
    check_windows<int16_t>(w, random.integers<int16_t>(w.dims, -300, 300), 0);
    check_windows<uint32_t>(w, random.integers<uint32_t>(w.dims, 0, 1000), 0);
    check_windows<uint64_t>(w, random.integers<uint64_t>(w.dims, 0, 1000), 0);
  }
}

TEST_CASE("windows: 16-bit floats are reduced in f32 and rounded once") {
  Random random(26);
  for (const Windows& w : kWindows) {
    if (w.dims.size() > 3 && w.window[0] > 1) continue;  // windows over four axes leave no phase to widen
    const Dims places = places_of(w);
    const Tensor numbers = random.floats(w.dims);
    for (const bool brain : {false, true}) {
      Tensor x = as_half(numbers);
      std::vector<float> wide(static_cast<size_t>(x.size()));
      if (brain) x.dtype = HX_BF16;
      for (int64_t i = 0; i < x.size(); ++i) {
        auto* at = reinterpret_cast<uint16_t*>(x.bytes.data()) + i;
        if (brain) *at = float_to_bfloat(numbers[i]);
        wide[static_cast<size_t>(i)] = brain ? bfloat_to_float(*at) : half_to_float(*at);
      }
      const double unit = brain ? 1.0 / 128 : 1.0 / 1024;
      for (const char* reduction : {"sum", "max"}) {
        const bool sums = reduction[0] == 's';
        const std::vector<double> expected =
            reduce_windows<float>(w, Tensor(w.dims, wide), places, sums ? 0 : -INFINITY,
                                  [&](double a, double b) { return sums ? a + b : std::max(a, b); });
        WindowsCall call("reduce_window", w);
        const Tensor y = call.set("reduction", reduction).in(x).out(places, x.dtype).run_one();
        for (size_t i = 0; i < expected.size(); ++i) {
          const uint16_t bits = y.data<uint16_t>()[i];
          const double actual = static_cast<double>(brain ? bfloat_to_float(bits) : half_to_float(bits));
          INFO(reduction << " over rank " << w.dims.size() << ", " << actual << " instead of " << expected[i]);
          REQUIRE((actual == expected[i] ||
                   (sums && std::abs(actual - expected[i]) <= unit * std::max(1.0, std::abs(expected[i])))));
        }
      }
    }
  }
}

TEST_CASE("windows: the gradient of an extreme goes in equal shares to the elements that equal it") {
  Random random(27);
  for (const Windows& w : kWindows) {
    const Dims places = places_of(w);
    std::vector<float> levels;  // with ties
    for (const int32_t v : random.integers<int32_t>(w.dims, 0, 4).values<int32_t>())
      levels.push_back(static_cast<float>(v));
    if (levels.size() > 40) levels[17] = NAN;
    const Tensor x(w.dims, levels), dy = random.floats(places);
    WindowsCall forward("reduce_window", w);
    const Tensor y = forward.set("reduction", "max").in(x).out(places).run_one();
    std::vector<double> expected(levels.size());
    for (int64_t i = 0; i < elements(places); ++i) {
      std::vector<int64_t> hits;
      for (int64_t k = 0; k < elements(w.window); ++k) {
        int64_t place = i, tap = k, at = 0, step = 1;
        bool inside = true;
        for (size_t a = w.dims.size(); a-- > 0; place /= places[a], tap /= w.window[a], step *= w.dims[a]) {
          const int64_t here = place % places[a] * w.strides[a] - w.low[a] + tap % w.window[a] * w.dilation[a];
          inside = inside && here >= 0 && here < w.dims[a];
          at += here * step;
        }
        if (inside && x[at] == y[i]) hits.push_back(at);
      }
      for (const int64_t at : hits)
        expected[static_cast<size_t>(at)] += static_cast<double>(dy[i]) / static_cast<double>(hits.size());
    }
    const Tensor dx = WindowsCall("reduce_window_grad", w).in(x).in(y).in(dy).out(w.dims).run_one();
    for (int64_t i = 0; i < x.size(); ++i)
      REQUIRE(std::abs(static_cast<double>(dx[i]) - expected[static_cast<size_t>(i)]) < 1e-5);
  }
  // Channels last, so columns are divided, too.
  const Windows pool{{1, 9, 9, 640}, {1, 3, 3, 1}, {1, 2, 2, 1}, {0, 1, 1, 0}, {0, 1, 1, 0}, {1, 1, 1, 1}};
  const Tensor x = random.floats(pool.dims), dy = random.floats(places_of(pool));
  WindowsCall forward("reduce_window", pool);
  const Tensor y = forward.set("reduction", "max").in(x).out(places_of(pool)).run_one();
  const Tensor dx = WindowsCall("reduce_window_grad", pool).in(x).in(y).in(dy).out(pool.dims).run_one();
  double given = 0, taken = 0;
  for (int64_t i = 0; i < dy.size(); ++i) given += static_cast<double>(dy[i]);
  for (int64_t i = 0; i < dx.size(); ++i) taken += static_cast<double>(dx[i]);
  CHECK(taken == Approx(given).margin(1e-3));
}

TEST_CASE("windows: NaN wins") {
  Random random(25);
  for (const Windows& w : kWindows) {
    std::vector<float> x = random.floats(w.dims).values<float>();
    for (size_t i = 0; i < x.size(); i += 7) x[i] = i % 2 ? NAN : INFINITY;
    check_windows<float>(w, Tensor(w.dims, x), 5e-6);
  }
}

}  // namespace harmonics::engine::kernel_tests
