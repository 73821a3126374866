// Attention forward, with and without the causal half.
#include <fmt/core.h>

#include "tests/bench/program.hpp"

namespace harmonics::bench {

namespace {

void add(int64_t batch, int64_t heads, int64_t positions, int64_t width, bool causal) {
  const Shape shape{batch, heads, positions, width};
  const auto seen = static_cast<double>(causal ? positions * (positions + 1) / 2 : positions * positions);
  const double flops = 4.0 * static_cast<double>(batch * heads * width) * seen;
  add_program(
      fmt::format("attention{}/{}x{}x{}x{}", causal ? "_causal" : "", batch, heads, positions, width),
      {shape, shape, shape},
      [=](const auto& x) { return std::vector{call("attention", x, Attributes().set("causal", causal)).at(0)}; }, flops,
      0);
}

void add_all() {
  for (bool causal : {false, true}) {
    add(8, 6, 128, 64, causal);
    add(1, 8, 1024, 64, causal);
  }
}

}  // namespace

}  // namespace harmonics::bench

int main(int argc, char** argv) { return harmonics::bench::run_benchmarks(argc, argv, harmonics::bench::add_all); }
