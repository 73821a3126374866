// Compares dot_add with dot plus a sum, in place and out of place.
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

struct Axes {
  Dims lhs, rhs, lhs_batch = {}, rhs_batch = {};
};
struct DotAddCase {
  Dims a, b, out;
  Axes axes;
  double zeros = 0;  // fraction of zeros in a
};
const DotAddCase kDotAddCases[] = {{{1, 784}, {784, 392}, {1, 392}, {{1}, {0}}},
                                   {{1, 784}, {784, 392}, {1, 392}, {{1}, {0}}, 0.8},
                                   {{2, 65}, {65, 33}, {2, 33}, {{1}, {0}}},
                                   {{64, 196}, {10, 196}, {64, 10}, {{1}, {1}}},
                                   {{129, 33}, {129, 65}, {33, 65}, {{0}, {0}}},
                                   {{64, 784}, {64, 392}, {784, 392}, {{0}, {0}}, 0.8},
                                   {{200, 130}, {130, 300}, {200, 300}, {{1}, {0}}},
                                   {{200, 130}, {300, 130}, {200, 300}, {{1}, {1}}, 0.7},
                                   {{2100, 66}, {2100, 90}, {66, 90}, {{0}, {0}}},
                                   {{2100, 66}, {2100, 90}, {66, 90}, {{0}, {0}}, 0.9},
                                   {{64, 600}, {150, 600}, {64, 150}, {{1}, {1}}},
                                   {{64, 600}, {600, 150}, {64, 150}, {{1}, {0}}},
                                   {{90, 333}, {90, 170}, {333, 170}, {{0}, {0}}},
                                   {{6, 20, 40}, {6, 20, 24}, {40, 24}, {{0, 1}, {0, 1}}},
                                   {{3, 50, 4, 48}, {3, 4, 33, 48}, {3, 4, 50, 33}, {{3}, {3}, {0, 2}, {0, 1}}},
                                   {{40, 64, 2, 3}, {2, 37, 64, 3}, {2, 3, 40, 37}, {{1}, {2}, {2, 3}, {0, 3}}},
                                   {{40, 5, 2, 3}, {2, 37, 5, 3}, {2, 3, 40, 37}, {{1}, {2}, {2, 3}, {0, 3}}}};

Tensor with_zeros(Random& random, const Dims& dims, double share) {
  Tensor t = random.floats(dims);
  auto* values = reinterpret_cast<float*>(t.bytes.data());
  for (int64_t i = 0; i < t.size(); ++i)
    if (random.below(1000) < static_cast<int64_t>(share * 1000)) values[i] = 0;
  return t;
}
Tensor flag(bool value) {
  Tensor t = Tensor::zeros({}, HX_BOOL);
  t.bytes[0] = value;
  return t;
}
KernelCall& products(KernelCall& call, const DotAddCase& c) {
  return call.set("lhs_contract", c.axes.lhs)
      .set("rhs_contract", c.axes.rhs)
      .set("lhs_batch", c.axes.lhs_batch)
      .set("rhs_batch", c.axes.rhs_batch);
}

}  // namespace

TEST_CASE("dot_add: out of place and in place") {
  Random random(91);
  for (const DotAddCase& c : kDotAddCases) {
    const Tensor a = with_zeros(random, c.a, c.zeros), b = random.floats(c.b), sum = random.floats(c.out);
    KernelCall plain("dot");
    const Tensor product = products(plain, c).in(a).in(b).out(c.out).run_one();
    std::vector<double> expected;
    for (int64_t i = 0; i < sum.size(); ++i) expected.push_back(static_cast<double>(sum[i]) + product[i]);
    for (bool in_place : {false, true}) {
      KernelCall call("dot_add");
      products(call, c).in(sum).in(a).in(b).out(c.out);
      if (in_place) call.alias(0, 0);
      INFO(a.size() << " by " << b.size() << ", zeros " << c.zeros << ": " << plain.kernel()
                    << (in_place ? ", in place" : ""));
      const Tensor result = call.run_one();
      // The product C = B^T A^T cannot start from a sum.
      CHECK(call.kernel() == (plain.kernel() == "turned matmul" ? "packed matmul" : plain.kernel()));
      CHECK((call.in_place() & 1) == 1);
      require_close(result, expected, 1e-6, 4e-5);
    }
  }
}

TEST_CASE("dot_add: a dropped sum leaves no NaN") {
  Random random(92);
  for (const DotAddCase& c : kDotAddCases)
    for (bool keep : {false, true})
      for (bool in_place : {false, true}) {
        const Tensor a = with_zeros(random, c.a, c.zeros), b = random.floats(c.b);
        const Tensor sum =
            keep ? random.floats(c.out) : Tensor(c.out, std::vector<float>(static_cast<size_t>(elements(c.out)), NAN));
        KernelCall plain("dot"), call("dot_add");
        const Tensor product = products(plain, c).in(a).in(b).out(c.out).run_one();
        std::vector<double> expected;
        for (int64_t i = 0; i < sum.size(); ++i)
          expected.push_back(static_cast<double>(keep ? sum[i] : 0) + product[i]);
        products(call, c).in(sum).in(a).in(b).in(flag(keep)).out(c.out);
        if (in_place) call.alias(0, 0);
        require_close(call.run_one(), expected, 1e-6, 4e-5);
      }
}

}  // namespace harmonics::engine::kernel_tests
