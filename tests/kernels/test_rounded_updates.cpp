// Compares steps of an optimizer that contain a rounded product with the product and the update apart.
#include "kernel_call.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

// `most`: samples of the largest product.
void expect_bits_of_product_and_update(Random& random, const std::string& type, KernelCall& (KernelCall::*allow)(),
                                       int64_t most) {
  const Tensor rate = scalar(0.01f), step({}, std::vector<int64_t>{7});
  for (const Dims& sizes : {Dims{48, 64, 200}, Dims{101, 97, 60}, Dims{64, 320, most}, Dims{131, 300, 33}})
    for (const uint32_t stored : {HX_F32, HX_BF16, HX_U8}) {
      const int64_t m = sizes[0], n = sizes[1], samples = sizes[2];
      const Tensor w = random.floats({m, n}), a = random.floats({samples, m}), b = random.floats({samples, n}),
                   moment = Tensor::zeros({m, n}, stored),
                   scales = Tensor::zeros({(m + 15) / 16, (n + 15) / 16}, HX_U8);
      KernelCall product("dot"), plain("adamw"), outer("update_outer");
      product.set("lhs_contract", Dims{0}).set("rhs_contract", Dims{0}).in(a).in(b).out({m, n});
      plain.in(w).in((product.*allow)().run_one());
      outer.set("update", "adamw").set("input_gradient", "").in(w).in(a).in(b);
      (outer.*allow)();
      for (KernelCall* call : {&plain, &outer}) {
        call->set("weight_decay", 0.1).in(moment).in(moment);
        if (stored == HX_U8) call->in(scales).in(scales);
        call->in(rate).in(step).out({m, n}).out({m, n}, stored).out({m, n}, stored);
        if (stored == HX_U8) call->out(scales.dims, HX_U8).out(scales.dims, HX_U8);
      }
      INFO(m << " x " << n << ", " << samples << " samples, moments of type " << stored);
      REQUIRE(outer.served() == !is_baseline());
      if (is_baseline()) return;
      const std::vector<Tensor> expected = plain.run(), found = outer.run();
      CHECK(outer.kernel() == type + " product and update");
      for (size_t i = 0; i < expected.size(); ++i) CHECK(found[i].bytes == expected[i].bytes);
    }
}

}  // namespace

// The names select the tests for runs with emulated instructions (tests.cmake).
TEST_CASE("fp16 chunks: a step for a batch gives the bits of the product and the update") {
  Random random(78);
  expect_bits_of_product_and_update(random, "fp16", &KernelCall::allow_half, 1000);
}

TEST_CASE("bf16 products: a step for a batch gives the bits of the product and the update") {
  Random random(84);
  expect_bits_of_product_and_update(random, "bf16", &KernelCall::allow_bf16, 1100);
}

}  // namespace harmonics::engine::kernel_tests
