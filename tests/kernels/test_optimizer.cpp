#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct State {
  std::vector<double> w, m, v;
};

}  // namespace

TEST_CASE("sgd with and without velocity, in place") {
  Random random(51);
  for (int64_t n : {1, 7, 100, 50001})
    for (int mode = 0; mode < 3; ++mode) {
      const Tensor w = random.floats({n}), g = random.floats({n}), velocity = random.floats({n});
      const bool moving = mode > 0, nesterov = mode == 2;
      KernelCall call("sgd");
      call.set("momentum", moving ? 0.9 : 0.0).set("nesterov", nesterov ? 1 : 0).set("weight_decay", 0.01).in(w).in(g);
      if (moving) call.in(velocity);
      call.in(scalar(0.1f)).out({n}).alias(0, 0);
      if (moving) call.out({n}).alias(1, 2);
      const auto out = call.run();
      CHECK((call.in_place() & 1) == 1);
      std::vector<double> ew, ev;
      for (int64_t i = 0; i < n; ++i) {
        double step = g[i] + 0.01 * w[i];
        ev.push_back(0.9 * velocity[i] + step);
        if (moving) step = nesterov ? step + 0.9 * ev.back() : ev.back();
        ew.push_back(w[i] - 0.1 * step);
      }
      require_close(out[0], ew, 1e-6, 3e-7);
      if (moving) require_close(out[1], ev, 1e-6, 3e-7);
    }
}

TEST_CASE("ten steps of adam and adamw") {
  Random random(52);
  for (const char* name : {"adam", "adamw"})
    for (int64_t n : {3, 20011}) {
      Tensor w = random.floats({n}), m = Tensor::zeros({n}), v = m;
      State s{{}, std::vector<double>(static_cast<size_t>(n)), std::vector<double>(static_cast<size_t>(n))};
      for (float x : w.values<float>()) s.w.push_back(x);
      for (int64_t step = 1; step <= 10; ++step) {
        const Tensor g = random.floats({n});
        KernelCall call(name);
        call.set("weight_decay", 0.1)
            .in(w)
            .in(g)
            .in(m)
            .in(v)
            .in(scalar(0.01f))
            .in(Tensor({}, std::vector<int64_t>{step}));
        const auto out = call.out({n}).out({n}).out({n}).alias(0, 0).alias(1, 2).alias(2, 3).run();
        w = out[0], m = out[1], v = out[2];
        for (size_t i = 0; i < s.w.size(); ++i) {
          double d = g[static_cast<int64_t>(i)];
          if (name == std::string("adam"))
            d += 0.1 * s.w[i];
          else
            s.w[i] *= 1 - 0.01 * 0.1;
          s.m[i] += (d - s.m[i]) * 0.1;
          s.v[i] = 0.999 * s.v[i] + 0.001 * d * d;
          const double t = static_cast<double>(step);
          s.w[i] -=
              0.01 / (1 - std::pow(0.9, t)) * s.m[i] / (std::sqrt(s.v[i]) / std::sqrt(1 - std::pow(0.999, t)) + 1e-8);
        }
      }
      require_close(w, s.w, 1e-5, 2e-6);
      require_close(m, s.m, 1e-5, 1e-6);
      require_close(v, s.v, 1e-5, 1e-7);
    }
}

}  // namespace harmonics::engine::kernel_tests
