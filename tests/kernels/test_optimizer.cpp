#include <limits>

#include "kernel_call.hpp"
#include "tests/variable.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

// Steps are tested in both orders, whichever this processor prefers.
constexpr char kUpdates[] = "HARMONICS_UPDATES";

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
  const testing::Variable when(kUpdates, GENERATE("between", "after"));
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

TEST_CASE("update_outer: the bits of the update from a stored gradient, in place and with the input's gradient") {
  const testing::Variable when(kUpdates, GENERATE("between", "after"));
  Random random(53);
  const Tensor rate = scalar(0.01f), step({}, std::vector<int64_t>{7});
  struct Case {
    const char* update;
    int moments;
    double momentum;
    int nesterov;
    bool counts;
  };
  for (const Case& k : {Case{"sgd", 0, 0.0, 0, false}, Case{"sgd", 1, 0.9, 0, false}, Case{"sgd", 1, 0.9, 1, false},
                        Case{"lion", 1, 0.0, 0, false}, Case{"adam", 2, 0.0, 0, true}, Case{"adamw", 2, 0.0, 0, true}})
    for (const std::string mode : {"", "all", "active"})
      for (const Dims& size :
           {Dims{1, 1}, Dims{7, 5}, Dims{33, 47}, Dims{10, 196}, Dims{301, 130}, Dims{20, 64}, Dims{3, 401}}) {
        const int64_t m = size[0], n = size[1];
        const Tensor w = random.floats({m, n}), a = random.floats({1, m}), b = random.floats({1, n});
        std::vector<Tensor> moments;
        for (int i = 0; i < k.moments; ++i) moments.push_back(random.floats({m, n}, i == 0 ? -1.0f : 0.0f, 1));
        std::vector<float> product;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) product.push_back(a[i] * b[j]);
        KernelCall plain(k.update), outer("update_outer");
        for (KernelCall* call : {&plain, &outer})
          call->set("weight_decay", 0.1).set("momentum", k.momentum).set("nesterov", k.nesterov).in(w);
        plain.in(Tensor({m, n}, product));
        outer.set("update", k.update).set("input_gradient", mode.c_str()).in(a).in(b);
        for (KernelCall* call : {&plain, &outer}) {
          for (const Tensor& moment : moments) call->in(moment);
          call->in(rate);
          if (k.counts) call->in(step);
          for (int i = 0; i <= k.moments; ++i) call->out({m, n});
        }
        for (int i = 0; i <= k.moments; ++i)
          outer.alias(static_cast<uint32_t>(i), static_cast<uint32_t>(i == 0 ? 0 : i + 2));
        const bool with_gradient = !mode.empty();
        if (with_gradient) outer.out({1, m});
        const std::vector<Tensor> expected = plain.run(), found = outer.run();
        INFO(k.update << ", " << k.moments << " moments, input gradient '" << mode << "', " << m << " x " << n);
        for (size_t i = 0; i < expected.size(); ++i) CHECK(found[i].bytes == expected[i].bytes);
        if (!with_gradient) continue;
        std::vector<double> gradient;
        for (int64_t i = 0; i < m; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(w[i * n + j]) * b[j];
          gradient.push_back(mode == "all" || a[i] > 0 ? sum : 0);
        }
        require_close(found.back(), gradient, 1e-6, 2e-5);
      }
}

TEST_CASE("update_outer: a batch gives the bits of the product and the update, dense and sparse") {
  const testing::Variable when(kUpdates, GENERATE("between", "after"));
  Random random(55);
  const Tensor rate = scalar(0.01f), step({}, std::vector<int64_t>{7});
  struct Case {
    const char* update;
    int moments;
    double momentum;
    bool counts;
  };
  struct Size {
    int64_t m, n, samples;
    double zeros;
  };
  for (const Case& k : {Case{"sgd", 1, 0.9, false}, Case{"sgd", 0, 0.0, false}, Case{"lion", 1, 0.0, false},
                        Case{"adam", 2, 0.0, true}, Case{"adamw", 2, 0.0, true}})
    for (const Size& size :
         {Size{48, 64, 2, 0}, Size{53, 71, 5, 0}, Size{60, 97, 33, 0}, Size{301, 130, 64, 0}, Size{131, 392, 256, 0},
          Size{77, 530, 31, 0}, Size{200, 333, 40, 0.8}, Size{301, 130, 256, 0.7},
          Size{400, 700, 20, 0.9}}) {  // the last one takes several blocks of rows in a part
      const int64_t m = size.m, n = size.n, samples = size.samples;
      const Tensor w = random.floats({m, n}), b = random.floats({samples, n});
      std::vector<float> numbers = random.floats({samples, m}).values<float>();
      const std::vector<float> chance = random.floats({samples, m}, 0, 1).values<float>();
      for (size_t i = 0; i < numbers.size(); ++i)
        if (chance[i] < size.zeros) numbers[i] = 0;
      const Tensor a({samples, m}, numbers);
      std::vector<Tensor> moments;
      for (int i = 0; i < k.moments; ++i) moments.push_back(random.floats({m, n}, i == 0 ? -1.0f : 0.0f, 1));
      KernelCall product("dot"), plain(k.update), outer("update_outer");
      product.set("lhs_contract", Dims{0}).set("rhs_contract", Dims{0}).in(a).in(b);
      const Tensor gradient = product.out({m, n}).run()[0];
      for (KernelCall* call : {&plain, &outer}) call->set("weight_decay", 0.1).set("momentum", k.momentum).in(w);
      plain.in(gradient);
      outer.set("update", k.update).set("input_gradient", "").in(a).in(b);
      for (KernelCall* call : {&plain, &outer}) {
        for (const Tensor& moment : moments) call->in(moment);
        call->in(rate);
        if (k.counts) call->in(step);
        for (int i = 0; i <= k.moments; ++i) call->out({m, n});
      }
      for (int i = 0; i <= k.moments; ++i)
        outer.alias(static_cast<uint32_t>(i), static_cast<uint32_t>(i == 0 ? 0 : i + 2));
      REQUIRE(outer.served() == !is_baseline());
      if (is_baseline()) continue;  // these products are done by another library
      const std::vector<Tensor> expected = plain.run(), found = outer.run();
      INFO(k.update << ", " << k.moments << " moments, " << samples << " samples, " << m << " x " << n);
      for (size_t i = 0; i < expected.size(); ++i) CHECK(found[i].bytes == expected[i].bytes);
    }
}

TEST_CASE("adam: roots and quotients of small, large and overflowing squares") {
  const testing::Variable when(kUpdates, GENERATE("between", "after"));
  const std::vector<float> g{0, 1e-3f, 1e-15f, 1e-25f, 1, 1e18f, 1e25f, -2};
  const int64_t n = static_cast<int64_t>(g.size());
  const Tensor zeros({n}, std::vector<float>(g.size(), 0));
  struct Case {
    double beta1, beta2;
    float rate;
  };
  // After one step the corrected moments are the gradient and its square, whatever the factors.
  for (const Case& k : {Case{0, 0, 1}, Case{0.9, 0.999, 1}, Case{0.9, 0.5, 1e-3f}, Case{0.9, 0.999, 1e-14f},
                        Case{0.9, 0.999, 0}, Case{0.9, 0.999, -1}}) {
    KernelCall call("adam");
    call.set("beta1", k.beta1).set("beta2", k.beta2).set("epsilon", 1e-8);
    call.in(zeros).in(Tensor({n}, g)).in(zeros).in(zeros).in(scalar(k.rate)).in(Tensor({}, std::vector<int64_t>{1}));
    const Tensor w = call.out({n}).out({n}).out({n}).run()[0];
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[static_cast<size_t>(i)], square = gradient * gradient;
      INFO("g = " << gradient << ", beta2 = " << k.beta2 << ", rate = " << k.rate);
      if (std::isinf(square)) {  // the moment is infinite, so the step is undone
        CHECK((w[i] == 0 || std::isnan(w[i])));
        continue;
      }
      const double quotient = static_cast<double>(gradient) / (std::sqrt(static_cast<double>(square)) + 1e-8),
                   expected = -static_cast<double>(k.rate) * quotient;
      CHECK(static_cast<double>(w[i]) == Approx(expected).epsilon(1e-6).margin(std::abs(k.rate) * 1e-15));
    }
  }
}

TEST_CASE("adam: a mean square follows the reference for every share that is kept, and never becomes negative") {
  Random random(56);
  constexpr int64_t n = 1000;
  const Tensor w = random.floats({n}), m = random.floats({n});
  std::vector<float> squares, gradients;
  for (int64_t i = 0; i < n; ++i) {  // from 1e-20 to 1e20, in all combinations
    squares.push_back(std::pow(10.0f, static_cast<float>(i % 41 - 20)));
    gradients.push_back(std::pow(10.0f, static_cast<float>(i * 7 % 21 - 10)));
  }
  const Tensor v({n}, squares), g({n}, gradients);
  for (double beta2 : {0.0, 0.3, 0.5, 0.9, 0.999, 1 - 1e-7}) {
    KernelCall call("adamw");
    call.set("beta2", beta2).in(w).in(g).in(m).in(v).in(scalar(0.01f)).in(Tensor({}, std::vector<int64_t>{3}));
    const Tensor square = call.out({n}).out({n}).out({n}).run()[2];
    const double keep = static_cast<float>(beta2), rest = static_cast<float>(1 - beta2);
    for (int64_t i = 0; i < n; ++i) {
      const double old = squares[static_cast<size_t>(i)], gradient = gradients[static_cast<size_t>(i)];
      INFO("beta2 = " << beta2 << ", v = " << old << ", g = " << gradient);
      CHECK(static_cast<double>(square[i]) == Approx(keep * old + rest * gradient * gradient).epsilon(4e-7));
    }
  }
}

TEST_CASE("update_outer: declines small batches, other optimizers and operands that do not fit") {
  Random random(54);
  const Tensor w = random.floats({7, 5}), rate = scalar(0.01f), step({}, std::vector<int64_t>{7});
  const auto served = [&](const char* update, int64_t samples, int moments, bool counts) {
    KernelCall call("update_outer");
    call.set("update", update).in(w).in(random.floats({samples, 7})).in(random.floats({samples, 5}));
    for (int i = 0; i < moments; ++i) call.in(w);
    call.in(rate);
    if (counts) call.in(step);
    for (int i = 0; i <= moments; ++i) call.out({7, 5});
    return call.served();
  };
  CHECK(served("adamw", 1, 2, true));
  CHECK_FALSE(served("adamw", 2, 2, true));
  CHECK_FALSE(served("adamw", 1, 1, true));
  CHECK_FALSE(served("lamb", 1, 2, true));
  CHECK_FALSE(served("sgd", 1, 2, false));
}

}  // namespace harmonics::engine::kernel_tests
