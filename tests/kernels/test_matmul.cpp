#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

double activated(const std::string& name, double x) {
  if (name == "relu") return std::max(x, 0.0);
  if (name == "tanh") return std::tanh(x);
  if (name == "logistic") return 1 / (1 + std::exp(-x));
  if (name == "gelu") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  return x;
}

struct MatmulSizes {
  int64_t m, n, k;
};
const MatmulSizes kMatmulSizes[] = {
    {1, 1, 1},        {1, 392, 784},    {2, 33, 65},      {3, 17, 31},      {5, 4, 3},        {8, 100, 257},
    {12, 50, 300},    {64, 10, 196},    {64, 392, 784},   {33, 65, 129},    {100, 7, 64},     {392, 784, 1},
    {200, 300, 17},   {13, 13, 13},     {301, 3, 1000},   {70, 100, 1500},  {200, 130, 300},  {150, 700, 128},
    {390, 66, 2100},  {391, 64, 2101},  {100, 288, 1300}, {128, 128, 2048}, {50, 600, 2401},  {9, 7, 1},
    {100, 1, 70},     {1, 90, 1},       {64, 196, 392},   {80, 130, 701},   {392, 196, 64},   {70, 330, 100},
    {53, 257, 128},   {64, 196, 10},    {129, 67, 20},    {64, 200, 63},    {130, 392, 33},   {48, 68, 70},
    {61, 104, 200},   {1030, 70, 300},  {261, 290, 1100}, {1101, 530, 70},  {1030, 70, 1024}, {37, 530, 1030},
    {150, 1030, 515}, {261, 520, 1100}, {32, 530, 1024},  {70, 601, 2048}};

}  // namespace

TEST_CASE("products of both layouts of both operands") {
  Random random(31);
  for (const MatmulSizes& s : kMatmulSizes)
    for (int layout = 0; layout < 4; ++layout) {
      const bool ta = layout & 1, tb = layout & 2;
      const Tensor a = random.floats(ta ? Dims{s.k, s.m} : Dims{s.m, s.k}),
                   b = random.floats(tb ? Dims{s.n, s.k} : Dims{s.k, s.n});
      KernelCall call("dot");
      call.set("lhs_contract", Dims{ta ? 0 : 1}).set("rhs_contract", Dims{tb ? 1 : 0}).in(a).in(b).out({s.m, s.n});
      const Tensor c = call.run_one();
      const std::vector<double> e = exact_product({a, ta}, {b, tb}, s.m, s.n, s.k);
      INFO(s.m << " x " << s.n << " x " << s.k << (ta ? " T" : " N") << (tb ? "T by " : "N by ") << call.kernel());
      require_close(c, e, 1e-6, 1e-6 * std::sqrt(static_cast<double>(s.k)) + 1e-7);
    }
}

TEST_CASE("matmul: short sums read the right operand in place") {
  Random random(37);
  // longer sums use the sparse kernel, whose name differs
  for (const MatmulSizes& s : {MatmulSizes{64, 196, 13}, MatmulSizes{200, 96, 10}, MatmulSizes{50, 130, 15}})
    for (bool along : {false, true}) {
      KernelCall call("dot");
      call.set("lhs_contract", Dims{along ? 0 : 1})
          .set("rhs_contract", Dims{0})
          .in(random.floats(along ? Dims{s.k, s.m} : Dims{s.m, s.k}))
          .in(random.floats({s.k, s.n}))
          .out({s.m, s.n});
      call.run_one();
      INFO(s.m << " x " << s.n << " x " << s.k << ": " << call.kernel());
      CHECK(call.kernel().find("oneDNN") == std::string::npos);
    }
}

TEST_CASE("matmul: batches are divided, single rows are not") {
  Random random(38);
  for (const auto& [rows, parts] : {std::pair<int64_t, uint32_t>{64, 2}, {48, 2}, {1, 1}, {8, 1}}) {
    KernelCall product("dot");
    product.set("lhs_contract", Dims{1})
        .set("rhs_contract", Dims{1})
        .in(random.floats({rows, 196}))
        .in(random.floats({10, 196}))
        .out({rows, 10})
        .run_one();
    CHECK(product.parts() == parts);
  }
}

TEST_CASE("dot: batch axes at any position") {
  Random random(32);
  const int64_t batch = 3, heads = 4, t = 50, s = 33, depth = 48;
  const Tensor a = random.floats({batch, t, heads, depth}), b = random.floats({batch, heads, s, depth});
  KernelCall call("dot");
  call.set("lhs_contract", Dims{3})
      .set("rhs_contract", Dims{3})
      .set("lhs_batch", Dims{0, 2})
      .set("rhs_batch", Dims{0, 1});
  const Tensor c = call.in(a).in(b).out({batch, heads, t, s}).run_one();
  std::vector<double> e;
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < t; ++i)
        for (int64_t j = 0; j < s; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += static_cast<double>(a[((n * t + i) * heads + h) * depth + k]) *
                   b[((n * heads + h) * s + j) * depth + k];
          e.push_back(sum);
        }
  require_close(c, e, 1e-6, 4e-6);
}

TEST_CASE("dot: operands without a contiguous axis are copied") {
  Random random(35);
  for (int64_t depth : {5, 64}) {  // by built-in kernels and by oneDNN
    const int64_t t = 40, batch = 2, heads = 3, s = 37;
    const Tensor a = random.floats({t, depth, batch, heads}), b = random.floats({batch, s, depth, heads});
    KernelCall call("dot");
    call.set("lhs_contract", Dims{1})
        .set("rhs_contract", Dims{2})
        .set("lhs_batch", Dims{2, 3})
        .set("rhs_batch", Dims{0, 3});
    const Tensor c = call.in(a).in(b).out({batch, heads, t, s}).run_one();
    std::vector<double> e;
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < t; ++i)
          for (int64_t j = 0; j < s; ++j) {
            double sum = 0;
            for (int64_t k = 0; k < depth; ++k)
              sum += static_cast<double>(a[((i * depth + k) * batch + n) * heads + h]) *
                     b[((n * s + j) * depth + k) * heads + h];
            e.push_back(sum);
          }
    require_close(c, e, 1e-6, 5e-6);
  }
}

TEST_CASE("dot: several contracted axes in another order") {
  Random random(36);
  const Tensor a = random.floats({7, 3, 9, 4}), b = random.floats({4, 5, 3, 9});  // over 4, 3 and 9
  KernelCall call("dot");
  const Tensor c =
      call.set("lhs_contract", Dims{3, 1, 2}).set("rhs_contract", Dims{0, 2, 3}).in(a).in(b).out({7, 5}).run_one();
  std::vector<double> e;
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < 3; ++x)
        for (int64_t y = 0; y < 9; ++y)
          for (int64_t z = 0; z < 4; ++z)
            sum += static_cast<double>(a[((i * 3 + x) * 9 + y) * 4 + z]) * b[((z * 5 + j) * 3 + x) * 9 + y];
      e.push_back(sum);
    }
  require_close(c, e, 1e-6, 2e-6);
}

TEST_CASE("dot: several contracted axes, as in weight gradients of sequences") {
  Random random(33);
  const Tensor dy = random.floats({6, 20, 40}), x = random.floats({6, 20, 24});
  const Tensor dw = KernelCall("dot")
                        .set("lhs_contract", Dims{0, 1})
                        .set("rhs_contract", Dims{0, 1})
                        .in(dy)
                        .in(x)
                        .out({40, 24})
                        .run_one();
  std::vector<double> e;
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t j = 0; j < 24; ++j) {
      double sum = 0;
      for (int64_t r = 0; r < 120; ++r) sum += static_cast<double>(dy[r * 40 + i]) * x[r * 24 + j];
      e.push_back(sum);
    }
  require_close(dw, e, 1e-6, 5e-6);
}

TEST_CASE("linear: a constant weight is packed once, with equal bits") {
  Random random(38);
  for (const MatmulSizes& s : kMatmulSizes) {
    const Tensor x = random.floats({s.m, s.k}), w = random.floats({s.n, s.k}), b = random.floats({s.n});
    const auto call = [&] {
      KernelCall linear("linear");
      return linear.set("activation", "relu").in(x).in(w).in(b).out({s.m, s.n});
    };
    KernelCall plain = call(), kept = call();
    const Tensor expected = plain.run_one(), y = kept.constant(1).run_one();
    INFO(s.m << " x " << s.n << " x " << s.k << ", " << kept.kernel());
    CHECK(plain.packed_bytes() == 0);
    // few rows, or a large weight: not copied
    CHECK((kept.packed_bytes() > 0) == (plain.kernel() == "packed matmul"));
    REQUIRE(y.bytes == expected.bytes);
  }
  KernelCall transposed("linear");  // this layout skips zeros of x
  transposed.set("transposed", 1).in(random.floats({64, 784})).in(random.floats({784, 392})).out({64, 392});
  transposed.constant(1).run();
  CHECK(transposed.packed_bytes() == 0);
}

TEST_CASE("linear: both layouts of a weight give few rows the same bits") {
  Random random(39);
  for (const MatmulSizes& s : kMatmulSizes) {
    const Tensor x = random.floats({s.m, s.k}), bias = random.floats({s.n});
    const Tensor w = random.floats({s.n, s.k});
    std::vector<float> other(static_cast<size_t>(s.k * s.n));
    for (int64_t k = 0; k < s.k; ++k)
      for (int64_t j = 0; j < s.n; ++j) other[static_cast<size_t>(k * s.n + j)] = w[j * s.k + k];
    const Tensor turned({s.k, s.n}, other);
    KernelCall natural("linear"), transposed("linear");
    const Tensor y = natural.set("activation", "relu").in(x).in(w).in(bias).out({s.m, s.n}).run_one();
    if (natural.kernel() != "turned matmul") continue;
    const Tensor z =
        transposed.set("activation", "relu").set("transposed", 1).in(x).in(turned).in(bias).out({s.m, s.n}).run_one();
    INFO(s.m << " x " << s.n << " x " << s.k << " by " << transposed.kernel());
    CHECK(y.bytes == z.bytes);
  }
}

TEST_CASE("linear with bias and activation") {
  Random random(34);
  for (const char* activation : {"", "relu", "tanh", "logistic", "gelu"})
    for (const MatmulSizes& s :
         {MatmulSizes{1, 77, 130}, MatmulSizes{4, 31, 8}, MatmulSizes{64, 100, 200}, MatmulSizes{130, 200, 300}}) {
      const Tensor x = random.floats({s.m, s.k}), w = random.floats({s.n, s.k}), b = random.floats({s.n});
      KernelCall call("linear");
      const Tensor y = call.set("activation", activation).in(x).in(w).in(b).out({s.m, s.n}).run_one();
      std::vector<double> e;
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = b[j];
          for (int64_t k = 0; k < s.k; ++k) sum += static_cast<double>(x[i * s.k + k]) * w[j * s.k + k];
          e.push_back(activated(activation, sum));
        }
      INFO(activation << " by " << call.kernel());
      require_close(y, e, 2e-6, 1e-5);
    }
}

}  // namespace harmonics::engine::kernel_tests
