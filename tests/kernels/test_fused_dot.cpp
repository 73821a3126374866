// Compares fused_dot with the product and separate operations: further tensors, several results, dense and sparse.
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct FusedDotCase {
  int64_t m, n, k;
  bool transposed = false;  // b is [n, k]
  double zeros = 0;         // fraction of zeros in a
};
const FusedDotCase kFusedDotCases[] = {
    {1024, 256, 64},
    {1024, 256, 520},
    {1031, 261, 131},
    {1090, 333, 300, true},
    {2048, 130, 97},
    {1040, 270, 90, false, 0.8},
    // Fewer rows and a large b, in strips; also with two slices of the depth, and rows a page apart.
    {256, 1024, 784},
    {259, 1041, 1100},
    {131, 2048, 300},
    {260, 1030, 530, false, 0.8}};

struct Operands {
  Tensor a, b, bias, x;
};
Operands operands_of(Random& random, const FusedDotCase& c) {
  Operands o{random.floats({c.m, c.k}), random.floats(c.transposed ? Dims{c.n, c.k} : Dims{c.k, c.n}),
             random.floats({c.n}), random.floats({c.m, c.n}, -3, 3)};
  auto* values = reinterpret_cast<float*>(o.a.bytes.data());
  for (int64_t i = 0; i < o.a.size(); ++i)
    if (random.below(1000) < static_cast<int64_t>(c.zeros * 1000)) values[i] = 0;
  return o;
}
KernelCall fused_dot(const FusedDotCase& c, const Operands& o, const char* steps, Dims stored) {
  KernelCall call("fused_dot");
  const auto results = stored.size();
  call.set("lhs_contract", Dims{1}).set("rhs_contract", Dims{c.transposed ? 1 : 0}).set("steps", steps);
  call.set("stored", std::move(stored)).in(o.a).in(o.b).in(o.bias).in(o.x);
  for (size_t i = 0; i < results; ++i) call.out({c.m, c.n});
  return call;
}
double derivative_of_gelu(double x) {
  return 0.5 * (1 + std::erf(x * M_SQRT1_2)) + x * std::exp(-x * x / 2) * 0.3989422804014327;
}

}  // namespace

TEST_CASE("fused_dot: bias, gelu and both results") {
  Random random(97);
  for (const FusedDotCase& c : kFusedDotCases) {
    const Operands o = operands_of(random, c);
    KernelCall call = fused_dot(c, o, "add(0,1) gelu(3)", {3, 4});
    INFO(c.m << " x " << c.n << " x " << c.k << ", zeros " << c.zeros);
    if (is_baseline()) {
      CHECK(!call.served());
      continue;
    }
    std::vector<double> sums = exact_product({o.a}, {o.b, c.transposed}, c.m, c.n, c.k), activated;
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] += o.bias[static_cast<int64_t>(i) % c.n];
      activated.push_back(0.5 * sums[i] * (1 + std::erf(sums[i] * M_SQRT1_2)));
    }
    const std::vector<Tensor> results = call.run();
    require_close(results[0], sums, 1e-5, 4e-5);
    require_close(results[1], activated, 1e-5, 4e-5);
  }
}

TEST_CASE("fused_dot: the product is stored, and read by several steps") {
  if (is_baseline()) return;
  Random random(98);
  for (const FusedDotCase& c : kFusedDotCases) {
    const Operands o = operands_of(random, c);
    const std::vector<double> product = exact_product({o.a}, {o.b, c.transposed}, c.m, c.n, c.k);
    std::vector<double> gradient, total;
    for (size_t i = 0; i < product.size(); ++i) {
      const double x = o.x[static_cast<int64_t>(i)];
      gradient.push_back(product[i] * derivative_of_gelu(x));
      total.push_back(gradient.back() * product[i] + o.bias[static_cast<int64_t>(i) % c.n]);
    }
    INFO(c.m << " x " << c.n << " x " << c.k << ", zeros " << c.zeros);
    // The first result reuses the product's memory.
    const std::vector<Tensor> all = fused_dot(c, o, "gelu_grad(2,0) mul(3,0) add(4,1)", {0, 5, 3}).run();
    require_close(all[0], product, 1e-5, 4e-5);
    require_close(all[1], total, 1e-5, 4e-4);
    require_close(all[2], gradient, 1e-5, 1e-4);
    const std::vector<Tensor> two = fused_dot(c, o, "gelu_grad(2,0) mul(3,0) add(4,1)", {5, 3}).run();
    CHECK(two[0].bytes == all[1].bytes);
    CHECK(two[1].bytes == all[2].bytes);
  }
}

TEST_CASE("fused_dot: the bias is added to finished sums, same bits") {
  if (is_baseline()) return;
  Random random(100);
  for (const FusedDotCase& c : kFusedDotCases) {
    const Operands o = operands_of(random, c);
    INFO(c.m << " x " << c.n << " x " << c.k << ", zeros " << c.zeros);
    const std::vector<Tensor> alone = fused_dot(c, o, "neg(0)", {0, 3}).run();
    if (c.m < 1024) {
      KernelCall dot("dot");
      dot.set("lhs_contract", Dims{1}).set("rhs_contract", Dims{c.transposed ? 1 : 0}).in(o.a).in(o.b);
      CHECK(dot.out({c.m, c.n}).run_one().bytes == alone[0].bytes);
    }
    const std::vector<Tensor> both = fused_dot(c, o, "add(0,1) gelu(3) add(4,2)", {3, 5}).run();
    for (int64_t i = 0; i < c.m * c.n; ++i) REQUIRE(both[0][i] == alone[0][i] + o.bias[i % c.n]);
    const Tensor gelu = KernelCall("gelu").in(both[0]).out({c.m, c.n}).run_one();
    for (int64_t i = 0; i < c.m * c.n; ++i) REQUIRE(both[1][i] == gelu[i] + o.x[i]);
    // A bias that another step reads as well, and a first result that overwrites the product too early.
    const std::vector<Tensor> again = fused_dot(c, o, "add(0,1) mul(3,1)", {3, 4}).run();
    CHECK(again[0].bytes == both[0].bytes);
    for (int64_t i = 0; i < c.m * c.n; ++i) REQUIRE(again[1][i] == both[0][i] * o.bias[i % c.n]);
    const std::vector<Tensor> early = fused_dot(c, o, "add(0,1) gelu(3) mul(3,2)", {4, 5}).run();
    CHECK(early[0].bytes == gelu.bytes);
    for (int64_t i = 0; i < c.m * c.n; ++i) REQUIRE(early[1][i] == both[0][i] * o.x[i]);
  }
}

TEST_CASE("fused_dot: gelu and its gradient in one step, same bits") {
  if (is_baseline()) return;
  Random random(101);
  for (const FusedDotCase& c : kFusedDotCases) {
    const Operands o = operands_of(random, c);
    INFO(c.m << " x " << c.n << " x " << c.k << ", zeros " << c.zeros);
    const Tensor sum = fused_dot(c, o, "add(0,1) gelu(3)", {3, 4}).run()[0];
    const Tensor gelu = KernelCall("gelu").in(sum).out({c.m, c.n}).run_one();
    const Tensor gradient = KernelCall("gelu_grad").in(sum).in(o.x).out({c.m, c.n}).run_one();
    for (const Dims& order : {Dims{4, 5}, Dims{5, 4}}) {
      const std::vector<Tensor> both = fused_dot(c, o, "add(0,1) gelu(3) gelu_grad(3,2)", order).run();
      CHECK(both[order[0] == 4 ? 0 : 1].bytes == gelu.bytes);
      CHECK(both[order[0] == 4 ? 1 : 0].bytes == gradient.bytes);
    }
    const std::vector<Tensor> all = fused_dot(c, o, "add(0,1) gelu(3) gelu_grad(3,2)", {3, 4, 5}).run();
    CHECK(all[0].bytes == sum.bytes);
    CHECK(all[1].bytes == gelu.bytes);
    CHECK(all[2].bytes == gradient.bytes);
    // The factor is a result of a step.
    const std::vector<Tensor> apart = fused_dot(c, o, "add(0,1) gelu(3) neg(2) neg(5) gelu_grad(3,6)", {3, 4, 7}).run();
    CHECK(apart[2].bytes == gradient.bytes);
  }
}

TEST_CASE("fused_dot: declined where blocks cannot be finished in place") {
  Random random(99);
  const FusedDotCase c{1024, 256, 64}, few{512, 256, 64};
  const Operands o = operands_of(random, c);
  CHECK(!fused_dot(few, operands_of(random, few), "add(0,1)", {3}).served());
  CHECK(!fused_dot(c, o, "gelu(0) mul(3,0)", {3, 4}).served());  // the product is read after its memory was reused
  CHECK(!fused_dot(c, o, "no_such_step(0)", {3}).served());
  CHECK(!fused_dot(c, o, "add(0,9)", {3}).served());
  CHECK(!fused_dot(c, o, "add(0,1)", {1}).served());
}

}  // namespace harmonics::engine::kernel_tests
