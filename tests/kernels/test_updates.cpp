// Compares RMSProp, Lion and LAMB in place, and the global norm, with plain loops in double.
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

using Numbers = std::vector<double>;

Numbers doubles(const Tensor& t) {
  Numbers v;
  for (float x : t.values<float>()) v.push_back(x);
  return v;
}
constexpr int64_t kUpdateSizes[] = {1, 7, 33, 1003, 50021, 400009};

}  // namespace

TEST_CASE("rmsprop with every setting, in place") {
  Random random(61);
  for (int64_t n : kUpdateSizes)
    for (int mode = 0; mode < 8; ++mode) {
      const bool moving = mode & 1, centered = mode & 2;
      const double decay = mode & 4 ? 0.1 : 0, alpha = 0.75, epsilon = 1e-2, lr = 0.0625;
      const Tensor w = random.floats({n}), g = random.floats({n}), v = random.floats({n}, 1, 2),
                   velocity = random.floats({n}), mean = random.floats({n}, -0.5f, 0.5f);
      KernelCall call("rmsprop");
      call.set("alpha", alpha)
          .set("epsilon", epsilon)
          .set("momentum", moving ? 0.5 : 0.0)
          .set("centered", int{centered})
          .set("weight_decay", decay);
      call.in(w).in(g).in(v);
      if (moving) call.in(velocity);
      if (centered) call.in(mean);
      call.in(scalar(static_cast<float>(lr))).out({n}).out({n}).alias(0, 0).alias(1, 2);
      if (moving) call.out({n}).alias(2, 3);
      if (centered) call.out({n}).alias(2u + moving, 3u + moving);
      const auto out = call.run();
      CHECK((call.in_place() & 1) == 1);
      Numbers ew, ev, evelocity, emean;
      for (int64_t i = 0; i < n; ++i) {
        const double d = g[i] + decay * w[i];
        ev.push_back(alpha * v[i] + (1 - alpha) * d * d);
        emean.push_back(mean[i] + (d - mean[i]) * (1 - alpha));
        double step = d / (std::sqrt(ev.back() - (centered ? emean.back() * emean.back() : 0)) + epsilon);
        evelocity.push_back(0.5 * velocity[i] + step);
        ew.push_back(w[i] - lr * (moving ? evelocity.back() : step));
      }
      INFO(n << " elements, mode " << mode << ", " << call.parts() << " parts");
      require_close(out[0], ew, 1e-6, 3e-7);
      require_close(out[1], ev, 1e-6, 3e-7);
      if (moving) require_close(out[2], evelocity, 2e-6, 1e-6);
      if (centered) require_close(out[2u + moving], emean, 1e-6, 3e-7);
    }
}

TEST_CASE("lion: steps by the sign, zero gives no step") {
  Random random(62);
  for (int64_t n : kUpdateSizes)
    for (double decay : {0.0, 0.1}) {
      const Tensor w = random.floats({n});
      std::vector<float> some_g = random.floats({n}).values<float>(), some_m = random.floats({n}).values<float>();
      for (size_t i = 0; i < some_g.size(); i += 5) some_g[i] = some_m[i] = 0;
      const Tensor g({n}, some_g), m({n}, some_m);
      KernelCall call("lion");
      call.set("beta1", 0.75).set("beta2", 0.9).set("weight_decay", decay).in(w).in(g).in(m).in(scalar(0.0625f));
      const auto out = call.out({n}).out({n}).alias(0, 0).alias(1, 2).run();
      Numbers ew, em;
      for (int64_t i = 0; i < n; ++i) {
        const double mixed = 0.75 * m[i] + 0.25 * g[i];
        ew.push_back(w[i] * (1 - 0.0625 * decay) - 0.0625 * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0));
        em.push_back(0.9 * m[i] + 0.1 * g[i]);
      }
      require_close(out[0], ew, 1e-6, 3e-7);
      require_close(out[1], em, 1e-6, 3e-7);
    }
}

TEST_CASE("lamb: step size is proportional to the weight's norm") {
  Random random(63);
  for (int64_t n : kUpdateSizes)
    for (int mode = 0; mode < 8; ++mode) {
      const bool adapt = mode & 1, wide = mode & 2;
      const double decay = mode & 4 ? 0.1 : 0, t = 3, lr = 0.0625;
      const Tensor w = random.floats({n}), g = random.floats({n}), m = random.floats({n}),
                   v = random.floats({n}, 0.5f, 2);
      KernelCall call("lamb");
      call.set("weight_decay", decay)
          .set("adapt", int{adapt})
          .in(w)
          .in(g)
          .in(m)
          .in(v)
          .in(scalar(static_cast<float>(lr)));
      wide ? call.in(Tensor({}, std::vector<int64_t>{3})) : call.in(Tensor({}, std::vector<int32_t>{3}));
      const auto out = call.out({n}).out({n}).out({n}).alias(0, 0).alias(1, 2).alias(2, 3).run();
      Numbers em, ev, direction;
      double length = 0, reach = 0;
      for (int64_t i = 0; i < n; ++i) {
        em.push_back(0.9 * m[i] + 0.1 * g[i]);
        ev.push_back(0.999 * v[i] + 0.001 * g[i] * g[i]);
        direction.push_back(em.back() / (1 - std::pow(0.9, t)) /
                                (std::sqrt(ev.back() / (1 - std::pow(0.999, t))) + 1e-6) +
                            decay * w[i]);
        length += static_cast<double>(w[i]) * w[i];
        reach += direction.back() * direction.back();
      }
      const double rate = lr * (adapt ? std::sqrt(length / reach) : 1);
      Numbers ew;
      for (int64_t i = 0; i < n; ++i) ew.push_back(w[i] - rate * direction[static_cast<size_t>(i)]);
      INFO(n << " elements, mode " << mode << ", " << call.parts() << " parts");
      require_close(out[0], ew, 2e-6, 1e-6);
      require_close(out[1], em, 1e-6, 3e-7);
      require_close(out[2], ev, 1e-6, 3e-7);
    }
}

TEST_CASE("lamb: trust ratio is 1 if a norm is 0") {
  for (const bool still : {true, false}) {  // zero weights; zero direction
    const Tensor some({9}, std::vector<float>(9, 0.5f)), none = Tensor::zeros({9});
    const Tensor &w = still ? none : some, &g = still ? some : none;
    KernelCall call("lamb");
    call.in(w).in(g).in(none).in(none).in(scalar(0.25f)).in(Tensor({}, std::vector<int64_t>{1}));
    const auto out = call.out({9}).out({9}).out({9}).run();
    require_close(out[0], Numbers(9, still ? -0.25 : 0.5), 1e-5, 0);
  }
}

TEST_CASE("global_norm: norm of many tensors") {
  Random random(64);
  for (const Dims& sizes : {Dims{1}, Dims{7}, Dims{3, 8192, 1, 20001}, Dims{400009, 5, 100003}, Dims(40, 17)}) {
    KernelCall call("global_norm");
    double total = 0;
    for (int64_t n : sizes) {
      const Tensor x = random.floats({n}, -3, 3);
      for (double v : doubles(x)) total += v * v;
      call.in(x);
    }
    require_close(call.out({}).run_one(), {std::sqrt(total)}, 1e-6, 0);
  }
}

}  // namespace harmonics::engine::kernel_tests
