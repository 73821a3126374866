// Products by an emulated, column-major cuBLASLt.
#include "tests/cuda/device_call.hpp"

#include "kernels/cuda/lt.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::cuda;
using namespace harmonics::cuda::testing;

namespace {

Machine product_machine() { return {open_driver(), open_compiler()}; }

struct Map {
  int64_t rows, in, out;
  bool transposed, bias;
  const char* activation;
};

std::vector<float> expected(const Map& m, const Buffer& x, const Buffer& w, const Buffer& b) {
  std::vector<float> y;
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t o = 0; o < m.out; ++o) {
      double sum = m.bias ? static_cast<double>(b.numbers[static_cast<size_t>(o)]) : 0;
      for (int64_t i = 0; i < m.in; ++i)
        sum += static_cast<double>(x.numbers[static_cast<size_t>(r * m.in + i)]) *
               static_cast<double>(w.numbers[static_cast<size_t>(m.transposed ? i * m.out + o : o * m.in + i)]);
      const std::string f = m.activation;
      y.push_back(static_cast<float>(f == "relu"   ? std::max(sum, 0.0)
                                     : f == "tanh" ? std::tanh(sum)
                                     : f == "gelu" ? 0.5 * sum * (1 + std::erf(sum * std::sqrt(0.5)))
                                                   : sum));
    }
  return y;
}

void require_close_products(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("element " << i);
    REQUIRE(a[i] == Approx(b[i]).margin(1e-4));
  }
}

void try_map(const Map& m, const char* kernel, uint32_t epilogue) {
  INFO(m.rows << " x " << m.in << " -> " << m.out << (m.transposed ? ", transposed" : "") << (m.bias ? ", bias " : " ")
              << m.activation);
  Machine own = product_machine();
  const Buffer x = numbers({m.rows, m.in}, 1),
               w = numbers(m.transposed ? std::vector{m.in, m.out} : std::vector{m.out, m.in}, 2),
               b = numbers({m.out}, 3);
  AttributeMap a;
  if (*m.activation) a.set("activation", m.activation);
  if (m.transposed) a.set("transposed", true);
  DeviceCall call("linear", a, m.bias ? std::vector{x, w, b} : std::vector{x, w}, {m.rows, m.out});
  REQUIRE(call.plan(own) == kernel);
  require_close_products(call.run(), expected(m, x, w, b));
  if (epilogue) CHECK(emulated::settings().last_epilogue == epilogue);
}

}  // namespace

TEST_CASE("cublaslt linear: shapes, both weight layouts, epilogues") {
  const FreshSettings fresh;
  for (const auto& [rows, in, out] :
       {std::tuple<int64_t, int64_t, int64_t>{5, 7, 3}, {1, 9, 4}, {6, 1, 5}, {8, 3, 1}, {1, 1, 1}, {33, 65, 17}})
    for (const bool transposed : {false, true}) {
      try_map({rows, in, out, transposed, false, ""}, "cuBLASLt product", lt::kPlain);
      try_map({rows, in, out, transposed, true, ""}, "cuBLASLt product", lt::kBias);
      try_map({rows, in, out, transposed, true, "relu"}, "cuBLASLt product", lt::kReluBias);
      try_map({rows, in, out, transposed, false, "relu"}, "cuBLASLt product", lt::kRelu);
      // cuBLASLt's gelu is an approximation; ours runs in a separate kernel.
      try_map({rows, in, out, transposed, true, "gelu"}, "cuBLASLt product", lt::kBias);
      try_map({rows, in, out, transposed, false, "tanh"}, "cuBLASLt product", lt::kPlain);
    }
}

TEST_CASE("cuda: without cuBLASLt products use the tiled kernel") {
  const FreshSettings fresh;
  emulated::settings().has_lt = false;
  for (const char* activation : {"", "relu", "tanh", "gelu"}) {
    try_map({5, 7, 3, false, true, activation}, "tiled product", 0);
    try_map({70, 33, 66, true, false, activation}, "tiled product", 0);
  }
  CHECK(emulated::settings().products == 0);
}

TEST_CASE("cuda linear: small tiles where those of cuBLASLt would not fill the GPU") {
  const FreshSettings fresh;
  emulated::settings().units = 132;
  for (const auto& [rows, in, out] : {std::tuple<int64_t, int64_t, int64_t>{5, 7, 3},
                                      {1, 9, 4},
                                      {6, 1, 5},
                                      {1, 1, 1},
                                      {33, 65, 17},
                                      {300, 132, 70},
                                      {40, 1000, 24},
                                      {17, 1601, 9},
                                      {600, 20, 250},
                                      {520, 36, 700}})
    for (const bool transposed : {false, true}) {
      const char* kernel = "product in small tiles";
      try_map({rows, in, out, transposed, true, "relu"}, kernel, 0);
      try_map({rows, in, out, transposed, false, ""}, kernel, 0);
      if (rows <= 33) try_map({rows, in, out, transposed, true, "gelu"}, kernel, 0);
    }
  CHECK(emulated::settings().products == 0);
  try_map({1200, 4, 1000, false, false, ""}, "cuBLASLt product", lt::kPlain);
}

namespace {

// Returns the squared error relative to the squared result.
double error_of(const std::vector<float>& got, const std::vector<double>& meant) {
  double error = 0, all = 0;
  for (size_t i = 0; i < meant.size(); ++i) {
    error += (static_cast<double>(got[i]) - meant[i]) * (static_cast<double>(got[i]) - meant[i]);
    all += meant[i] * meant[i];
  }
  return error / all;
}
// Returns x [m, k] times weight [n, k] plus a bias of n.
std::vector<double> affine_of(const Buffer& x, const Buffer& w, const Buffer& b, bool relu) {
  const auto m = static_cast<size_t>(x.type.dims[0]), k = static_cast<size_t>(x.type.dims[1]),
             n = static_cast<size_t>(w.type.dims[0]);
  std::vector<double> y;
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = static_cast<double>(b.numbers[j]);
      for (size_t t = 0; t < k; ++t)
        sum += static_cast<double>(x.numbers[i * k + t]) * static_cast<double>(w.numbers[j * k + t]);
      y.push_back(relu ? std::max(sum, 0.0) : sum);
    }
  return y;
}

}  // namespace

TEST_CASE("cublaslt linear: bf16 and fp8 if allowed, sums and biases in f32") {
  const FreshSettings fresh;
  Machine own = product_machine();
  struct Row {
    int64_t m, k, n;
    uint32_t flags;
    const char* kernel;
    int type;
    double most;  // limit of the relative squared error
  };
  constexpr Row kRows[] = {
      {5, 33, 7, HX_SITE_BF16, "cuBLASLt product, bf16", lt::kBf16, 1e-5},
      {37, 48, 80, HX_SITE_BF16, "cuBLASLt product, bf16", lt::kBf16, 1e-5},
      {37, 48, 80, HX_SITE_FP8, "cuBLASLt product, fp8", lt::kE4m3, 2e-3},
      {37, 48, 84, HX_SITE_FP8, "cuBLASLt product, fp8", lt::kE4m3, 2e-3},
      {37, 48, 81, HX_SITE_FP8, "cuBLASLt product, bf16", lt::kBf16, 1e-5},  // columns of the result
      {37, 47, 80, HX_SITE_FP8, "cuBLASLt product, bf16", lt::kBf16, 1e-5},  // terms
      {1, 16, 16, HX_SITE_FP8, "cuBLASLt product, fp8", lt::kE4m3, 5e-3}};
  for (const Row& r : kRows)
    for (const char* activation : {"", "relu"}) {
      INFO(r.m << " x " << r.k << " x " << r.n << ' ' << r.kernel << ' ' << activation);
      const Buffer x = numbers({r.m, r.k}, 1), w = numbers({r.n, r.k}, 2), b = numbers({r.n}, 3);
      AttributeMap a;
      if (*activation) a.set("activation", activation);
      DeviceCall call("linear", a, {x, w, b}, {r.m, r.n});
      call.flags(r.flags);
      REQUIRE(call.plan(own) == r.kernel);
      const double error = error_of(call.run(), affine_of(x, w, b, *activation));
      CHECK(error < r.most);
      CHECK(error > 0);
      CHECK(emulated::settings().last_type == r.type);
      CHECK(error_of(call.run(), affine_of(x, w, b, *activation)) == error);         // again, with the same buffers
      CHECK(error_of(call.move().run(), affine_of(x, w, b, *activation)) == error);  // with other buffers
    }
}

TEST_CASE("cublaslt fp8: operands are scaled by powers of two, NaN is kept") {
  const FreshSettings fresh;
  Machine own = product_machine();
  Buffer x = numbers({16, 32}, 1), w = numbers({16, 32}, 2);
  const auto product = [&](float of_x, float of_w) {
    Buffer large = x, small = w;
    for (float& v : large.numbers) v *= of_x;
    for (float& v : small.numbers) v *= of_w;
    DeviceCall call("linear", {}, {large, small}, {16, 16});
    call.flags(HX_SITE_FP8);
    REQUIRE(call.plan(own) == "cuBLASLt product, fp8");
    return call.run();
  };
  const std::vector<float> as_is = product(1, 1), scaled = product(0x1p40f, 0x1p-50f);
  for (size_t i = 0; i < as_is.size(); ++i) CHECK(scaled[i] == as_is[i] * 0x1p-10f);
  for (float& v : x.numbers) v = v < 0 ? -3.0f : 448.0f;  // representable values
  for (float& v : w.numbers) v = v < 0 ? 0.5f : 13.0f;
  const Buffer none{type_for({16}), std::vector<float>(16, 0.0f)};
  CHECK(error_of(product(1, 1), affine_of(x, w, none, false)) == 0);
  CHECK(product(0, 1)[0] == 0);
  x.numbers[33] = std::numeric_limits<float>::infinity();
  const std::vector<float> with = product(1, 1);
  for (size_t i = 0; i < with.size(); ++i) CHECK(std::isnan(with[i]) == (i / 16 == 1));
}

TEST_CASE("cublaslt dot: fp8 of any axes, dot_sum in bf16, batched in TF32") {
  const FreshSettings fresh;
  Machine own = product_machine();
  // a [k, m], b [k, n]: the contracted axis comes first in both.
  const Buffer a = numbers({48, 40}, 1), b = numbers({48, 32}, 2);
  const AttributeMap first =
      AttributeMap().set("lhs_contract", std::vector<int64_t>{0}).set("rhs_contract", std::vector<int64_t>{0});
  DeviceCall call("dot", first, {a, b}, {40, 32});
  call.flags(HX_SITE_FP8);
  REQUIRE(call.plan(own) == "cuBLASLt product, fp8");
  std::vector<double> meant;
  for (size_t i = 0; i < 40; ++i)
    for (size_t j = 0; j < 32; ++j) {
      double sum = 0;
      for (size_t t = 0; t < 48; ++t)
        sum += static_cast<double>(a.numbers[t * 40 + i]) * static_cast<double>(b.numbers[t * 32 + j]);
      meant.push_back(sum);
    }
  CHECK(error_of(call.run(), meant) < 2e-3);

  const std::vector<int64_t> zero{0}, two{2};
  const AttributeMap batched =
      AttributeMap().set("lhs_contract", two).set("rhs_contract", two).set("lhs_batch", zero).set("rhs_batch", zero);
  DeviceCall scores("dot", batched, {numbers({3, 32, 16}, 5), numbers({3, 16, 16}, 6)}, {3, 32, 16});
  scores.flags(HX_SITE_FP8);
  REQUIRE(scores.plan(own) == "cuBLASLt product");
  scores.run();
  CHECK(emulated::settings().last_compute == lt::kComputeF32Tf32);

  const Buffer dy = numbers({48, 32}, 3), x = numbers({48, 16}, 4);
  const AttributeMap sums = AttributeMap()
                                .set("lhs_contract", std::vector<int64_t>{0})
                                .set("rhs_contract", std::vector<int64_t>{0})
                                .set("sum", 0);
  DeviceCall beside("dot_sum", sums, {dy, x}, {32, 16});
  beside.second({32}).flags(HX_SITE_FP8);
  REQUIRE(beside.plan(own) == "cuBLASLt product and sum, bf16");
  beside.run();
  std::vector<double> summed(32, 0.0);
  for (size_t t = 0; t < 48; ++t)
    for (size_t j = 0; j < 32; ++j) summed[j] += static_cast<double>(dy.numbers[t * 32 + j]);
  CHECK(error_of(beside.second_result(), summed) < 1e-5);
}

TEST_CASE("cublaslt: f32 is not rounded unless allowed") {
  const FreshSettings fresh;
  Machine own = product_machine();
  const Buffer x = numbers({4, 6}, 1), w = numbers({5, 6}, 2);
  for (const bool may : {false, true}) {
    DeviceCall call("linear", {}, {x, w}, {4, 5});
    call.flags(may ? HX_SITE_FP16_CHUNKS : 0);
    REQUIRE(call.plan(own) == "cuBLASLt product");
    call.run();
    CHECK(emulated::settings().last_compute == (may ? lt::kComputeF32Tf32 : lt::kComputeF32));
  }
}

TEST_CASE("cublaslt dot: operands are copied only if they are not a matrix") {
  const FreshSettings fresh;
  Machine own = product_machine();
  const Buffer a = numbers({2, 3, 4, 5}, 1), b = numbers({3, 5, 2, 6}, 2);
  // Batched over axis 0 of a and 2 of b, contracted over {1, 3} and {0, 1}: free axes are 4 of a and 6 of b.
  AttributeMap attributes;
  attributes.set("lhs_batch", std::vector<int64_t>{0}).set("rhs_batch", std::vector<int64_t>{2});
  attributes.set("lhs_contract", std::vector<int64_t>{3, 1}).set("rhs_contract", std::vector<int64_t>{1, 0});
  DeviceCall call("dot", attributes, {a, b}, {2, 4, 6});
  REQUIRE(call.plan(own) == "cuBLASLt product");
  std::vector<float> meant;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 6; ++j) {
        double sum = 0;
        for (int64_t s = 0; s < 3; ++s)
          for (int64_t t = 0; t < 5; ++t)
            sum += static_cast<double>(a.numbers[static_cast<size_t>(((n * 3 + s) * 4 + i) * 5 + t)]) *
                   static_cast<double>(b.numbers[static_cast<size_t>(((s * 5 + t) * 2 + n) * 6 + j)]);
        meant.push_back(static_cast<float>(sum));
      }
  require_close_products(call.run(), meant);
}
