#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct RecurrentSizes {
  int64_t batch, positions, width;
  bool reverse;

  int64_t at(int64_t step) const { return reverse ? positions - 1 - step : step; }
  Dims states() const { return {batch, width}; }
  Dims all(int64_t n) const { return {batch, positions, n * width}; }
};

const RecurrentSizes kRecurrentSizes[] = {{1, 1, 1, false},   {3, 5, 7, false},   {2, 4, 8, true},
                                          {16, 9, 33, false}, {17, 3, 40, true},  {7, 6, 20, true},
                                          {40, 5, 16, false}, {1, 12, 65, false}, {26, 2, 130, true}};

using Numbers = std::vector<double>;
size_t index(int64_t i) { return static_cast<size_t>(i); }

// Multiplies a row of `weight` [gates * width, width] by a state.
double row_product(const Tensor& weight, int64_t row, const Numbers& state, int64_t from, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += static_cast<double>(weight[row * n + k]) * state[index(from + k)];
  return sum;
}
Numbers zero_numbers(const Dims& dims) { return Numbers(index(elements(dims))); }

// Reference by definition, in double.
struct Lstm {
  Numbers y, c, gates, dx, dh, dc;

  Lstm(const RecurrentSizes& s, const Tensor& x, const Tensor& w, const Tensor& h0, const Tensor& c0)
      : y(zero_numbers(s.all(1))), c(y), gates(zero_numbers(s.all(4))) {
    const int64_t n = s.width;
    for (int64_t b = 0; b < s.batch; ++b) {
      Numbers h, cell;
      for (int64_t u = 0; u < n; ++u) h.push_back(h0[b * n + u]), cell.push_back(c0[b * n + u]);
      for (int64_t step = 0; step < s.positions; ++step) {
        const int64_t place = b * s.positions + s.at(step);
        const Numbers before = h;
        for (int64_t u = 0; u < n; ++u) {
          double gate[4];
          for (int64_t g = 0; g < 4; ++g) {
            const double v = x[place * 4 * n + g * n + u] + row_product(w, g * n + u, before, 0, n);
            gates[index(place * 4 * n + g * n + u)] = gate[g] = g == 2 ? std::tanh(v) : logistic(v);
          }
          cell[index(u)] = gate[1] * cell[index(u)] + gate[0] * gate[2];
          h[index(u)] = gate[3] * std::tanh(cell[index(u)]);
          c[index(place * n + u)] = cell[index(u)];
          y[index(place * n + u)] = h[index(u)];
        }
      }
    }
  }

  void back(const RecurrentSizes& s, const Tensor& w, const Tensor& c0, const Tensor& dy, const Tensor* dcells) {
    const int64_t n = s.width;
    dx = zero_numbers(s.all(4));
    dh = dc = zero_numbers(s.states());
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t step = s.positions - 1; step >= 0; --step) {
        const int64_t place = b * s.positions + s.at(step);
        Numbers carried(index(n));
        for (int64_t u = 0; u < n; ++u) {
          const double* kept = gates.data() + place * 4 * n + u;
          const double i = kept[0], f = kept[n], g = kept[2 * n], o = kept[3 * n];
          const double former = step ? c[index((b * s.positions + s.at(step - 1)) * n + u)] : c0[b * n + u];
          const double here = dy[place * n + u] + dh[index(b * n + u)], t = std::tanh(c[index(place * n + u)]);
          const double d = dc[index(b * n + u)] + here * o * (1 - t * t) + (dcells ? (*dcells)[place * n + u] : 0);
          const double of[4] = {d * g * i * (1 - i), d * former * f * (1 - f), d * i * (1 - g * g),
                                here * t * o * (1 - o)};
          for (int64_t p = 0; p < 4; ++p) {
            dx[index(place * 4 * n + p * n + u)] = of[p];
            for (int64_t k = 0; k < n; ++k) carried[index(k)] += of[p] * w[(p * n + u) * n + k];
          }
          dc[index(b * n + u)] = d * f;
        }
        for (int64_t u = 0; u < n; ++u) dh[index(b * n + u)] = carried[index(u)];
      }
  }
};

struct Gru {
  Numbers y, gates, dx, dpast, dh;

  Gru(const RecurrentSizes& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& h0)
      : y(zero_numbers(s.all(1))), gates(zero_numbers(s.all(4))) {
    const int64_t n = s.width;
    for (int64_t b = 0; b < s.batch; ++b) {
      Numbers h;
      for (int64_t u = 0; u < n; ++u) h.push_back(h0[b * n + u]);
      for (int64_t step = 0; step < s.positions; ++step) {
        const int64_t place = b * s.positions + s.at(step);
        const Numbers before = h;
        for (int64_t u = 0; u < n; ++u) {
          double in[3], past[3];
          for (int64_t g = 0; g < 3; ++g) {
            in[g] = x[place * 3 * n + g * n + u];
            past[g] = row_product(w, g * n + u, before, 0, n) + bias[g * n + u];
          }
          const double r = logistic(in[0] + past[0]), z = logistic(in[1] + past[1]), f = std::tanh(in[2] + r * past[2]);
          h[index(u)] = (1 - z) * f + z * before[index(u)];
          y[index(place * n + u)] = h[index(u)];
          const double kept[4] = {r, z, f, past[2]};
          for (int64_t p = 0; p < 4; ++p) gates[index(place * 4 * n + p * n + u)] = kept[p];
        }
      }
    }
  }

  void back(const RecurrentSizes& s, const Tensor& w, const Tensor& h0, const Tensor& dy) {
    const int64_t n = s.width;
    dx = dpast = zero_numbers(s.all(3));
    dh = zero_numbers(s.states());
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t step = s.positions - 1; step >= 0; --step) {
        const int64_t place = b * s.positions + s.at(step);
        Numbers carried(index(n));
        for (int64_t u = 0; u < n; ++u) {
          const double* kept = gates.data() + place * 4 * n + u;
          const double r = kept[0], z = kept[n], f = kept[2 * n], q = kept[3 * n];
          const double former = step ? y[index((b * s.positions + s.at(step - 1)) * n + u)] : h0[b * n + u];
          const double here = dy[place * n + u] + dh[index(b * n + u)], df = here * (1 - z) * (1 - f * f);
          const double of_x[3] = {df * q * r * (1 - r), here * (former - f) * z * (1 - z), df};
          for (int64_t p = 0; p < 3; ++p) {
            const double of_past = p == 2 ? df * r : of_x[p];
            dx[index(place * 3 * n + p * n + u)] = of_x[p];
            dpast[index(place * 3 * n + p * n + u)] = of_past;
            for (int64_t k = 0; k < n; ++k) carried[index(k)] += of_past * w[(p * n + u) * n + k];
          }
          carried[index(u)] += here * z;
        }
        for (int64_t u = 0; u < n; ++u) dh[index(b * n + u)] = carried[index(u)];
      }
  }
};

Tensor single(const Dims& dims, const Numbers& values) {
  return {dims, std::vector<float>(values.begin(), values.end())};
}

}  // namespace

TEST_CASE("lstm: scan and gradient") {
  Random random(91);
  for (const RecurrentSizes& s : kRecurrentSizes) {
    INFO(s.batch << " samples, " << s.positions << " positions, width " << s.width << (s.reverse ? ", reverse" : ""));
    const float size = 1 / std::sqrt(static_cast<float>(s.width));
    const Tensor x = random.floats(s.all(4), -2, 2), w = random.floats({4 * s.width, s.width}, -size, size),
                 h0 = random.floats(s.states()), c0 = random.floats(s.states()), dy = random.floats(s.all(1)),
                 dc = random.floats(s.all(1));
    Lstm e(s, x, w, h0, c0);
    const auto y = KernelCall("lstm_scan")
                       .set("reverse", s.reverse ? 1 : 0)
                       .in(x)
                       .in(w)
                       .in(h0)
                       .in(c0)
                       .out(s.all(1))
                       .out(s.all(1))
                       .out(s.all(4))
                       .run();
    require_close(y[0], e.y, 1e-5, 2e-6);
    require_close(y[1], e.c, 1e-5, 2e-6);
    require_close(y[2], e.gates, 1e-5, 2e-6);
    const Tensor c = single(s.all(1), e.c), gates = single(s.all(4), e.gates);
    for (bool with_dc : {false, true}) {
      KernelCall backward("lstm_scan_grad");
      backward.set("reverse", s.reverse ? 1 : 0).in(w).in(c).in(gates).in(c0).in(dy);
      if (with_dc) backward.in(dc);
      const auto d = backward.out(s.all(4)).out(s.states()).out(s.states()).run();
      e.back(s, w, c0, dy, with_dc ? &dc : nullptr);
      require_close(d[0], e.dx, 1e-4, 1e-5);
      require_close(d[1], e.dh, 1e-4, 1e-5);
      require_close(d[2], e.dc, 1e-4, 1e-5);
    }
  }
}

TEST_CASE("gru: scan and gradient") {
  Random random(92);
  for (const RecurrentSizes& s : kRecurrentSizes) {
    INFO(s.batch << " samples, " << s.positions << " positions, width " << s.width << (s.reverse ? ", reverse" : ""));
    const float size = 1 / std::sqrt(static_cast<float>(s.width));
    const Tensor x = random.floats(s.all(3), -2, 2), w = random.floats({3 * s.width, s.width}, -size, size),
                 bias = random.floats({3 * s.width}), h0 = random.floats(s.states()), dy = random.floats(s.all(1));
    Gru e(s, x, w, bias, h0);
    const auto y = KernelCall("gru_scan")
                       .set("reverse", s.reverse ? 1 : 0)
                       .in(x)
                       .in(w)
                       .in(bias)
                       .in(h0)
                       .out(s.all(1))
                       .out(s.all(4))
                       .run();
    require_close(y[0], e.y, 1e-5, 2e-6);
    require_close(y[1], e.gates, 1e-5, 2e-6);
    const auto d = KernelCall("gru_scan_grad")
                       .set("reverse", s.reverse ? 1 : 0)
                       .in(w)
                       .in(single(s.all(1), e.y))
                       .in(single(s.all(4), e.gates))
                       .in(h0)
                       .in(dy)
                       .out(s.all(3))
                       .out(s.all(3))
                       .out(s.states())
                       .run();
    e.back(s, w, h0, dy);
    require_close(d[0], e.dx, 1e-4, 1e-5);
    require_close(d[1], e.dpast, 1e-4, 1e-5);
    require_close(d[2], e.dh, 1e-4, 1e-5);
  }
}

TEST_CASE("lstm, gru: saturated gates stay finite") {
  const RecurrentSizes s{2, 3, 5, false};
  Random random(93);
  Tensor x = random.floats(s.all(4), -1000, 1000);
  const Tensor w = random.floats({20, 5}), zero = Tensor::zeros(s.states());
  const auto y = KernelCall("lstm_scan").in(x).in(w).in(zero).in(zero).out(s.all(1)).out(s.all(1)).out(s.all(4)).run();
  const Lstm e(s, x, w, zero, zero);
  require_close(y[0], e.y, 1e-5, 1e-6);
}

}  // namespace harmonics::engine::kernel_tests
