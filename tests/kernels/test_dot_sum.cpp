// Compares dot_sum with dot and sums in double: dense and sparse first operands, sizes with partial panels.
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct DotSumCase {
  Dims a, b;  // contracted over all axes but the last
  double zeros = 0;
};
const DotSumCase kDotSumCases[] = {{{1024, 256}, {1024, 256}},
                                   {{1027, 397}, {1027, 263}},
                                   {{3, 421, 260}, {3, 421, 401}},
                                   {{2048, 384}, {2048, 390}},
                                   {{1100, 300}, {1100, 290}, 0.8}};

KernelCall& of_rows(KernelCall& call, const DotSumCase& c) {
  Dims axes;
  for (int64_t i = 0; i + 1 < static_cast<int64_t>(c.a.size()); ++i) axes.push_back(i);
  return call.set("lhs_contract", axes).set("rhs_contract", axes).set("lhs_batch", Dims{}).set("rhs_batch", Dims{});
}

}  // namespace

TEST_CASE("dot_sum: the product and the sums of the second operand") {
  Random random(95);
  for (const DotSumCase& c : kDotSumCases) {
    const int64_t m = c.a.back(), n = c.b.back();
    Tensor a = random.floats(c.a);
    auto* values = reinterpret_cast<float*>(a.bytes.data());
    for (int64_t i = 0; i < a.size(); ++i)
      if (random.below(1000) < static_cast<int64_t>(c.zeros * 1000)) values[i] = 0;
    const Tensor b = random.floats(c.b);
    KernelCall plain("dot"), call("dot_sum");
    const Tensor product = of_rows(plain, c).in(a).in(b).out({m, n}).run_one();
    of_rows(call, c).set("sum", 1).in(a).in(b).out({m, n}).out({n});
    INFO(a.size() << " by " << b.size() << ", zeros " << c.zeros);
    if (is_baseline()) {  // without packed products
      CHECK(!call.served());
      continue;
    }
    const std::vector<Tensor> results = call.run();
    CHECK(results[0].bytes == product.bytes);
    std::vector<double> sums(static_cast<size_t>(n));
    for (int64_t i = 0; i < b.size(); ++i) sums[static_cast<size_t>(i % n)] += b[i];
    require_close(results[1], sums, 1e-6, 4e-5);
  }
}

TEST_CASE("dot_sum: declined for few rows and for the first operand") {
  Random random(96);
  KernelCall few("dot_sum"), first("dot_sum");
  const DotSumCase small{{64, 300}, {64, 300}}, large{{1024, 300}, {1024, 300}};
  CHECK(!of_rows(few, small)
             .set("sum", 1)
             .in(random.floats(small.a))
             .in(random.floats(small.b))
             .out({300, 300})
             .out({300})
             .served());
  CHECK(!of_rows(first, large)
             .set("sum", 0)
             .in(random.floats(large.a))
             .in(random.floats(large.b))
             .out({300, 300})
             .out({300})
             .served());
}

}  // namespace harmonics::engine::kernel_tests
