// Attention and its gradients, with and without the causal mask.
#include <fmt/core.h>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

void add(int64_t batch, int64_t heads, int64_t positions, int64_t width, bool causal, bool positions_first = false) {
  const Shape shape = positions_first ? Shape{batch, positions, heads, width} : Shape{batch, heads, positions, width};
  const auto seen = static_cast<double>(causal ? positions * (positions + 1) / 2 : positions * positions);
  const double product = 2.0 * static_cast<double>(batch * heads * width) * seen;
  const Attributes how = Attributes().set("causal", causal).set("positions_first", positions_first);
  const std::string what = fmt::format("{}/{}x{}x{}x{}", causal ? "_causal" : "", batch, heads, positions, width);
  add_program(
      "attention" + what, {shape, shape, shape},
      [=](const auto& x) { return std::vector{call("attention", x, how).at(0)}; }, 2 * product, 0);
  const Shape sums{batch, heads, positions};
  add_program(
      "attention_grad" + what, {shape, shape, shape, shape, sums, shape},
      [=](const auto& x) { return call("attention_grad", x, how); }, 5 * product, 0);
}

void add_all() {
  for (bool causal : {false, true}) {
    add(8, 6, 128, 64, causal);
    add(1, 8, 1024, 64, causal);
  }
  add(16, 4, 128, 32, true, true);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
