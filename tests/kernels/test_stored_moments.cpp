// Moments in 16 and 8 bits: compares the kernel with the functional's body, and tests stochastic rounding.
#include <cmath>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"
#include "engine/tensor/moment_scales.hpp"
#include "kernel_call.hpp"
#include "tests/variable.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

enum class Stored { bf16, coded };

HTensor handle(const Tensor& t) {
  HTensor h = full(static_cast<DType>(t.dtype), Shape(t.dims), 0);
  std::memcpy(h.mutable_bytes(), t.bytes.data(), t.bytes.size());
  return h;
}

// An optimizer's step: its functional, its attributes and the number of its moments.
struct Step {
  const char* name;
  std::vector<std::pair<const char*, double>> numbers;
  size_t moments;
  AttributeMap attributes() const {
    AttributeMap a;
    for (const auto& [key, value] : numbers) a.set(key, value);
    return a;
  }
  KernelCall& give(KernelCall& call) const {
    for (const auto& [key, value] : numbers) call.set(key, value);
    return call;
  }
};
const Step kAdamW{"adamw", {{"weight_decay", 0.1}}, 2};
const std::vector<Step>& steps() {
  static const std::vector<Step> all = {kAdamW,
                                        {"adam", {{"weight_decay", 0.1}}, 2},
                                        {"lion", {{"weight_decay", 0.1}}, 1},
                                        {"sgd", {{"weight_decay", 0.1}, {"momentum", 0.9}}, 1}};
  return all;
}

// Returns a parameter's moments, initially zero, with their scales.
std::vector<Tensor> zero_moments(const Step& step, const Dims& dims, Stored stored) {
  const uint32_t type = stored == Stored::bf16 ? HX_BF16 : HX_U8;
  std::vector<Tensor> all(step.moments, Tensor::zeros(dims, type));
  if (stored == Stored::coded) all.resize(2 * step.moments, Tensor::zeros(moment_scales(Shape(dims)).vector(), type));
  return all;
}

void add_moments(KernelCall& call, const std::vector<Tensor>& moments) {
  for (const Tensor& m : moments) call.in(m);
}
void add_results(KernelCall& call, const Dims& dims, const std::vector<Tensor>& moments) {
  call.out(dims);
  for (const Tensor& m : moments) call.out(m.dims, m.dtype);
}
Tensor step_tensor(int64_t step) { return {{}, std::vector<int64_t>{step}}; }

// Returns w' and the moments' next values.
std::vector<Tensor> stepped(const Step& step, const Tensor& w, const Tensor& g, const std::vector<Tensor>& moments,
                            int64_t number) {
  KernelCall call(step.name);
  step.give(call).in(w).in(g);
  add_moments(call, moments);
  call.in(scalar(0.01f)).in(step_tensor(number));
  add_results(call, w.dims, moments);
  for (uint32_t i = 0; i <= moments.size(); ++i) call.alias(i, i == 0 ? 0 : i + 1);
  return call.run();
}

// Requires equal codes; codes may be adjacent if the sums before rounding differ in the last bit.
void require_same_codes(const Tensor& found, const HTensor& expected) {
  const bool wide = found.dtype == HX_BF16;
  size_t other = 0;
  for (int64_t i = 0; i < found.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const int a = wide ? found.values<uint16_t>()[at] : found.values<uint8_t>()[at];
    int b = 0;
    std::memcpy(&b, static_cast<const char*>(expected.bytes()) + at * (wide ? 2 : 1), wide ? 2 : 1);
    REQUIRE(std::abs(a - b) <= 1);
    other += a != b;
  }
  CHECK(static_cast<double>(other) <= 1 + 0.002 * static_cast<double>(found.size()));
}

}  // namespace

TEST_CASE("optimizers: moments of 16 and 8 bits are those of the body") {
  Random random(61);
  for (const Step& step : steps())
    for (const Stored stored : {Stored::bf16, Stored::coded})
      for (const Dims& dims : {Dims{16, 16}, Dims{1, 1}, Dims{33, 47}, Dims{20, 64}, Dims{7, 5, 9}, Dims{100, 130}}) {
        Tensor w = random.floats(dims);
        std::vector<Tensor> moments = zero_moments(step, dims, stored);
        for (int64_t number = 1; number <= 3; ++number) {
          const Tensor g = random.floats(dims, -0.1f, 0.1f);
          std::vector<HTensor> in{handle(w), handle(g)};
          for (const Tensor& m : moments) in.push_back(handle(m));
          in.push_back(handle(scalar(0.01f)));
          in.push_back(handle(step_tensor(number)));
          const Values expected = apply(step.name, step.attributes(), in);
          const std::vector<Tensor> found = stepped(step, w, g, moments, number);
          INFO(step.name << ", step " << number << ", " << w.size() << " elements");
          REQUIRE(expected.size() == found.size());
          std::vector<double> weights;
          for (int64_t i = 0; i < w.size(); ++i) weights.push_back(expected[0].data<float>()[i]);
          require_close(found[0], weights, 1e-6, 0.01 / 1024);  // a fraction of the rate
          for (size_t i = 1; i < found.size(); ++i) require_same_codes(found[i], expected[i]);
          w = found[0];
          moments.assign(found.begin() + 1, found.end());
        }
      }
}

// Adding random bits to this NaN wraps around to zero.
TEST_CASE("optimizers: NaN stays NaN in moments of 16 bits") {
  const auto are_nan = [](const void* words, int64_t count) {
    const auto* all = static_cast<const uint16_t*>(words);
    return std::all_of(all, all + count, [](uint16_t word) { return (word & 0x7fff) > 0x7f80; });
  };
  float largest = 0, smallest = 0;
  const uint32_t bits[] = {0x7fffffff, 0x7f800001};
  std::memcpy(&largest, &bits[0], sizeof largest);
  std::memcpy(&smallest, &bits[1], sizeof smallest);
  for (const Step& step : steps())
    for (const float nan : {largest, smallest}) {
      const Dims dims{5, 21};
      const Tensor w = Tensor::zeros(dims), g(dims, std::vector<float>(5 * 21, nan));
      const std::vector<Tensor> moments = zero_moments(step, dims, Stored::bf16);
      std::vector<HTensor> in{handle(w), handle(g)};
      for (const Tensor& m : moments) in.push_back(handle(m));
      in.push_back(handle(scalar(0.01f)));
      in.push_back(handle(step_tensor(1)));
      const Values body = apply(step.name, step.attributes(), in);
      const std::vector<Tensor> kernel = stepped(step, w, g, moments, 1);
      INFO(step.name);
      for (size_t i = 1; i < kernel.size(); ++i) {
        CHECK(are_nan(body[i].bytes(), w.size()));
        CHECK(are_nan(kernel[i].bytes.data(), w.size()));
      }
    }
}

// The largest NaN is that of CUDA, the negative one that of x86.
TEST_CASE("optimizers: NaN stays NaN in moments of 8 bits, and other blocks keep their moments") {
  constexpr size_t kColumns = 40, kAt = 3 * kColumns + 20;  // in the second block
  const Dims dims{20, kColumns};
  const Tensor w = Tensor::zeros(dims), none(dims, std::vector<float>(20 * kColumns, 0.0f));
  for (const Step& step : steps())
    for (const uint32_t word : {0x7fffffffu, 0x7f800001u, 0xffc00000u}) {
      const std::vector<float> ordinary(20 * kColumns, 0.5f);
      std::vector<float> gradient = ordinary;
      std::memcpy(&gradient[kAt], &word, sizeof word);
      const Tensor g(dims, gradient);
      const std::vector<Tensor> moments = zero_moments(step, dims, Stored::coded);
      std::vector<HTensor> in{handle(w), handle(g)};
      for (const Tensor& m : moments) in.push_back(handle(m));
      in.push_back(handle(scalar(0.01f)));
      in.push_back(handle(step_tensor(1)));
      const Values body = apply(step.name, step.attributes(), in);
      const std::vector<Tensor> kernel = stepped(step, w, g, moments, 1),
                                other = stepped(step, w, Tensor(dims, ordinary), moments, 1);
      INFO(step.name << ", " << std::hex << word);
      for (size_t i = 1; i < kernel.size(); ++i) {
        const bool scales = i > step.moments, mean = (i - 1) % step.moments == 0;
        const std::vector<uint8_t> codes = kernel[i].values<uint8_t>(), those = other[i].values<uint8_t>();
        require_same_codes(kernel[i], body[i]);
        CHECK(codes[scales ? 1 : kAt] == (scales ? 255 : mean ? 124 : 252));
        CHECK(codes[0] == those[0]);
      }
      // The next step reads NaN from the code.
      const std::vector<Tensor> next = stepped(step, w, none, std::vector<Tensor>(kernel.begin() + 1, kernel.end()), 2);
      CHECK(std::isnan(next[0].values<float>()[kAt]));
      CHECK_FALSE(std::isnan(next[0].values<float>()[0]));
    }
}

// Magnitudes from the smallest normal number to the largest, both zeros, and values below a block's codes.
TEST_CASE("lion: 8-bit moments of all magnitudes have the bits of the body") {
  const Step step{"lion", {{"beta2", 0.5}}, 1};
  const Dims dims{32, 96};
  std::vector<float> gradient;
  for (int64_t i = 0; i < 32 * 96; ++i)
    gradient.push_back(std::ldexp(i % 2 ? -1.0f : 1.0f, static_cast<int>(i % 249) - 124) * (i % 7 == 0 ? 0.0f : 1.0f));
  const Tensor w = Tensor::zeros(dims), g(dims, gradient);
  std::vector<Tensor> moments = zero_moments(step, dims, Stored::coded);
  for (int64_t number = 1; number <= 3; ++number) {
    std::vector<HTensor> in{handle(w), handle(g), handle(moments[0]), handle(moments[1])};
    in.push_back(handle(scalar(0.01f)));
    in.push_back(handle(step_tensor(number)));
    const Values expected = apply(step.name, step.attributes(), in);
    const std::vector<Tensor> found = stepped(step, w, g, moments, number);
    for (size_t i = 1; i < 3; ++i)
      CHECK(std::memcmp(found[i].bytes.data(), expected[i].bytes(), found[i].bytes.size()) == 0);
    moments.assign(found.begin() + 1, found.end());
  }
}

// Each block of columns has gradients of a different magnitude; some have none, or get one later.
TEST_CASE("adamw: 8-bit moments of blocks of all scales are those of the body") {
  const Dims dims{20, 256};
  Random random(63);
  Tensor w = random.floats(dims);
  std::vector<Tensor> moments = zero_moments(kAdamW, dims, Stored::coded);
  for (int64_t number = 1; number <= 4; ++number) {
    std::vector<float> gradient = random.floats(dims, -1, 1).values<float>();
    for (size_t i = 0; i < gradient.size(); ++i) {
      constexpr int kExponents[] = {-36, -30, -20, 0, 20, 30, 36, 45};
      const size_t block = i % 256 / 16;
      gradient[i] = std::ldexp(gradient[i], kExponents[block % 8]);
      if ((block == 9 && number < 3) || block == 12) gradient[i] = 0;
    }
    const Tensor g(dims, gradient);
    std::vector<HTensor> in{handle(w), handle(g)};
    for (const Tensor& m : moments) in.push_back(handle(m));
    in.push_back(handle(scalar(0.01f)));
    in.push_back(handle(step_tensor(number)));
    const Values expected = apply(kAdamW.name, kAdamW.attributes(), in);
    const std::vector<Tensor> found = stepped(kAdamW, w, g, moments, number);
    INFO("step " << number);
    std::vector<double> weights;
    for (int64_t i = 0; i < w.size(); ++i) weights.push_back(expected[0].data<float>()[i]);
    require_close(found[0], weights, 1e-6, 0.01 / 1024);
    for (size_t i = 1; i < found.size(); ++i) require_same_codes(found[i], expected[i]);
    w = found[0];
    moments.assign(found.begin() + 1, found.end());
  }
}

TEST_CASE("update_outer: moments of 16 and 8 bits have the bits of the update from a stored gradient") {
  const testing::Variable when("HARMONICS_UPDATES", GENERATE("between", "after"));
  Random random(62);
  for (const Step& step : steps())
    for (const Stored stored : {Stored::bf16, Stored::coded})
      for (const std::string mode : {"", "all", "active"})
        for (const Dims& dims : {Dims{7, 5}, Dims{33, 47}, Dims{20, 64}, Dims{301, 130}}) {
          const int64_t m = dims[0], n = dims[1];
          const Tensor w = random.floats(dims), a = random.floats({1, m}), b = random.floats({1, n});
          std::vector<float> product;
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) product.push_back(a[i] * b[j]);
          const std::vector<Tensor> first = stepped(step, w, random.floats(dims), zero_moments(step, dims, stored), 1);
          const std::vector<Tensor> moments(first.begin() + 1, first.end());
          const std::vector<Tensor> expected = stepped(step, w, Tensor(dims, product), moments, 2);
          KernelCall outer("update_outer");
          step.give(outer).set("update", step.name).set("input_gradient", mode.c_str()).in(w).in(a).in(b);
          add_moments(outer, moments);
          outer.in(scalar(0.01f)).in(step_tensor(2));
          add_results(outer, dims, moments);
          for (uint32_t i = 0; i <= moments.size(); ++i) outer.alias(i, i == 0 ? 0 : i + 2);
          if (!mode.empty()) outer.out({1, m});
          const std::vector<Tensor> found = outer.run();
          INFO(step.name << ", " << m << " x " << n << ", input gradient '" << mode << "'");
          for (size_t i = 0; i < expected.size(); ++i) CHECK(found[i].bytes == expected[i].bytes);
          if (mode.empty()) continue;
          std::vector<double> gradient;
          for (int64_t i = 0; i < m; ++i) {
            double sum = 0;
            for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(w[i * n + j]) * b[j];
            gradient.push_back(mode == "all" || a[i] > 0 ? sum : 0);
          }
          require_close(found.back(), gradient, 1e-6, 2e-5);
        }
}

TEST_CASE("update_outer: a batch with moments of 16 and 8 bits gives the bits of the product and the update") {
  const testing::Variable when("HARMONICS_UPDATES", GENERATE("between", "after"));
  Random random(63);
  for (const Step& step : steps())
    for (const Stored stored : {Stored::bf16, Stored::coded})
      for (const auto& [dims, zeros] : {std::pair(Dims{101, 97}, 0), std::pair(Dims{64, 320}, 0),
                                        std::pair(Dims{50, 300}, 0), std::pair(Dims{330, 700}, 9)}) {
        const int64_t m = dims[0], n = dims[1], samples = 20;
        std::vector<float> numbers = random.floats({samples, m}).values<float>();
        for (float& x : numbers)
          if (random.below(10) < zeros) x = 0;
        const Tensor w = random.floats({m, n}), a({samples, m}, numbers), b = random.floats({samples, n});
        KernelCall product("dot");
        product.set("lhs_contract", Dims{0}).set("rhs_contract", Dims{0}).in(a).in(b).out({m, n});
        const std::vector<Tensor> moments = zero_moments(step, {m, n}, stored);
        const std::vector<Tensor> expected = stepped(step, w, product.run_one(), moments, 5);
        KernelCall outer("update_outer");
        step.give(outer).set("update", step.name).set("input_gradient", "").in(w).in(a).in(b);
        add_moments(outer, moments);
        outer.in(scalar(0.01f)).in(step_tensor(5));
        add_results(outer, {m, n}, moments);
        REQUIRE(outer.served() == !is_baseline());
        if (is_baseline()) return;  // these products are done by another library
        const std::vector<Tensor> found = outer.run();
        INFO(step.name << ", " << m << " x " << n);
        for (size_t i = 0; i < expected.size(); ++i) CHECK(found[i].bytes == expected[i].bytes);
      }
}

TEST_CASE("stored moments: means move by less than their resolution") {
  // With gradients of 1, the mean square after t steps is 1 - 0.999^t. Rounded to nearest, the code of its root would
  // stop changing where a step is below half a code.
  const Dims dims{16, 16};
  for (const Stored stored : {Stored::bf16, Stored::coded}) {
    const Tensor g(dims, std::vector<float>(256, 1.0f)), w = Tensor::zeros(dims);
    std::vector<Tensor> moments = zero_moments(kAdamW, dims, stored);
    constexpr int64_t kSteps = 700;
    for (int64_t step = 1; step <= kSteps; ++step) {
      const std::vector<Tensor> next = stepped(kAdamW, w, g, moments, step);
      moments.assign(next.begin() + 1, next.end());
    }
    double sum = 0;
    for (size_t i = 0; i < 256; ++i) {
      if (stored == Stored::bf16) {
        const uint32_t bits = uint32_t{moments[1].values<uint16_t>()[i]} << 16;
        float value = 0;
        std::memcpy(&value, &bits, sizeof value);
        sum += value;
      } else {
        const int code = moments[1].values<uint8_t>()[i], scale = moments[3].values<uint8_t>()[0];
        sum += std::ldexp(1 + (code & 7) / 8.0, scale - 31 + (code >> 3) - 127);
      }
    }
    CHECK(sum / 256 == Approx(1 - std::pow(0.999, kSteps)).epsilon(0.05));
  }
}

}  // namespace harmonics::engine::kernel_tests
