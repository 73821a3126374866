// The convolutions of a small image net, forward and both gradients.
#include <fmt/core.h>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

Attributes geometry(int64_t kernel) {
  const std::vector<int64_t> one{1, 1}, half{kernel / 2, kernel / 2};
  return Attributes()
      .set("strides", one)
      .set("dilation", one)
      .set("padding_low", half)
      .set("padding_high", half)
      .set("groups", int64_t{1});
}

void add(int64_t samples, int64_t in, int64_t out, int64_t side, int64_t kernel) {
  const Shape x{samples, in, side, side}, w{out, in, kernel, kernel}, y{samples, out, side, side};
  const double flops = 2.0 * static_cast<double>(y.count() * in * kernel * kernel);
  const std::string size = fmt::format("{}x{}x{}x{}/{}x{}x{}", samples, in, side, side, out, kernel, kernel);
  add_program(
      "conv/" + size, {x, w, {out}}, [=](const auto& v) { return call("conv", v, geometry(kernel)); }, flops, 0);
  add_program(
      "input_gradient/" + size, {w, y},
      [=](const auto& v) { return call("conv_grad_input", v, geometry(kernel).set("input_shape", x)); }, flops, 0);
  add_program(
      "weight_gradient/" + size, {x, y},
      [=](const auto& v) { return call("conv_grad_weight", v, geometry(kernel).set("weight_shape", w)); }, flops, 0);
}

void add_all() {
  add(64, 1, 32, 28, 3);
  add(64, 32, 64, 14, 3);
  add(16, 64, 64, 28, 3);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
