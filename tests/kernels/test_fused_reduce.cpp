// Compares fused_reduce with a stored chain and its reduction: bitwise equal.
#include "kernel_call.hpp"

#include <algorithm>

namespace harmonics::engine::kernel_tests {
namespace {

struct FusedReduceCase {
  Dims dims, axes;
};
// Short and long rows, whole and partial vectors; partial groups and blocks; few rows of many columns; several axes.
const FusedReduceCase kFusedReduceCases[] = {{{64, 392}, {0}},
                                             {{64, 392}, {1}},
                                             {{5, 7, 11}, {1}},
                                             {{5, 7, 11}, {0, 2}},
                                             {{5, 7, 11}, {0, 1, 2}},
                                             {{100003}, {0}},
                                             {{70000}, {0}},
                                             {{1000, 33}, {0}},
                                             {{8, 6, 28, 28}, {0, 2, 3}},
                                             {{3, 4, 5, 6}, {0, 2}},
                                             {{1, 9, 1}, {0}},
                                             {{20000, 3}, {0}},
                                             {{2100, 130}, {0}},
                                             {{3, 5000}, {0}},
                                             {{4, 70001}, {0}},
                                             {{700, 1, 513}, {2}},
                                             {{40, 3, 2000}, {0, 2}},
                                             {{9, 1100, 65}, {1}},
                                             {{37, 1030}, {1}},
                                             {{2, 3}, {}},
                                             {{16, 4096}, {0, 1}},
                                             {{300, 64, 1}, {0}},
                                             {{6, 33000}, {1}}};
const char* const kReductions[] = {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"};

Dims without(const Dims& dims, const Dims& axes) {
  Dims d;
  for (size_t i = 0; i < dims.size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) d.push_back(dims[i]);
  return d;
}
// Returns the shape with its first or last axis reduced to size 1.
Dims flat(Dims dims, bool first) {
  (first ? dims.front() : dims.back()) = 1;
  return dims;
}

bool same_bits(const Tensor& a, const Tensor& b) { return a.dims == b.dims && a.bytes == b.bytes; }

}  // namespace

TEST_CASE("fused_reduce: same bits as a stored chain and its reduction") {
  Random random(95);
  for (const FusedReduceCase& c : kFusedReduceCases)
    for (const char* reduction : kReductions) {
      INFO("rank " << c.dims.size() << ", " << elements(c.dims) << " elements, " << c.axes.size() << " axes, "
                   << reduction);
      // ((x - row) * column + 1)^2 is close to 1, so that products stay finite.
      const Tensor x = random.floats(c.dims, -0.01f, 0.01f), row = random.floats(flat(c.dims, true), -0.01f, 0.01f),
                   column = random.floats(flat(c.dims, false), 0.5f, 1), one({}, std::vector<float>{1});
      const auto chain = [&](KernelCall& call) -> KernelCall& {
        call.set("shape", c.dims).in(x).in(row).in(column).in(one);
        return call.step("sub", {0, 1}).step("mul", {4, 2}).step("add", {5, 3}).step("mul", {6, 6});
      };
      KernelCall whole("fused_elementwise"), plain(reduction), fused("fused_reduce"), both("fused_reduce");
      const Tensor stored = chain(whole).stores({7}).out(c.dims).run_one();
      const Dims left = without(c.dims, c.axes);
      const Tensor expected = plain.set("axes", c.axes).in(stored).out(left).run_one();
      const Tensor result =
          chain(fused).set("axes", c.axes).set("reduction", reduction).stores({7}).out(left).run_one();
      CHECK(same_bits(result, expected));
      CHECK(fused.in_place() == 0);
      // Also stores another register and the reduced one, the first in x's memory.
      chain(both).set("axes", c.axes).set("reduction", reduction).stores({5, 7, 7}).out(c.dims).out(c.dims).out(left);
      for (int run = 0; run < 2; ++run) {
        const std::vector<Tensor> results = both.run();
        CHECK(same_bits(results.at(1), stored));
        CHECK(same_bits(results.at(2), expected));
        if (both.in_place() & 1) both.alias(0, 0);
      }
    }
}

TEST_CASE("fused_reduce: NaN and negative zero as in a stored chain") {
  for (const char* reduction : kReductions)
    for (const FusedReduceCase& c : {FusedReduceCase{{40, 100}, {0}}, FusedReduceCase{{40, 100}, {1}},
                                     FusedReduceCase{{70, 3}, {0}}, FusedReduceCase{{5000}, {0}}})
      for (const float special : {NAN, -0.0f, INFINITY}) {
        std::vector<float> v(static_cast<size_t>(elements(c.dims)), -0.0f);
        v[v.size() / 2] = special;
        const Tensor x(c.dims, v);
        KernelCall fused("fused_reduce");
        const Tensor result = fused.set("shape", c.dims)
                                  .set("axes", c.axes)
                                  .set("reduction", reduction)
                                  .in(x)
                                  .step("neg", {0})
                                  .step("neg", {1})
                                  .stores({2})
                                  .out(without(c.dims, c.axes))
                                  .run_one();
        const Tensor expected = KernelCall(reduction).set("axes", c.axes).in(x).out(without(c.dims, c.axes)).run_one();
        INFO(reduction << " of " << special);
        CHECK(same_bits(result, expected));
      }
}

TEST_CASE("fused_reduce: other element types with an f32 result") {
  Random random(96);
  const Tensor whole = random.integers<int32_t>({130, 70}, -9, 9);
  KernelCall cast("fused_reduce"), integers("fused_reduce");
  const Tensor sum = cast.set("shape", Dims{130, 70})
                         .set("axes", Dims{0})
                         .set("reduction", "reduce_sum")
                         .in(whole)
                         .step("cast", {0}, HX_F32)
                         .step("mul", {1, 1})
                         .stores({2})
                         .out({70})
                         .run_one();
  for (int64_t j = 0; j < 70; ++j) {
    double expected = 0;
    for (int64_t i = 0; i < 130; ++i) expected += std::pow(whole.data<int32_t>()[i * 70 + j], 2);
    CHECK(sum[j] == expected);
  }
  CHECK_FALSE(integers.set("shape", Dims{130, 70})
                  .set("axes", Dims{0})
                  .set("reduction", "reduce_sum")
                  .in(whole)
                  .step("add", {0, 0}, HX_I32)
                  .stores({1})
                  .out({70}, HX_I32)
                  .served());
}

}  // namespace harmonics::engine::kernel_tests
