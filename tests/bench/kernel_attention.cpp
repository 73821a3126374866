// Attention and its gradients, with and without the causal mask; one query over a cache, whose bytes are the limit.
#include <fmt/core.h>
#include <harmonics/ops.hpp>

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

// The next token of a sequence: every head reads the keys and values of `positions` tokens.
void add_cached(DType type, int64_t positions, int64_t shared, int64_t width) {
  constexpr int64_t group = 4;
  const TensorType cache{type, {1, positions, shared, width}}, q{DType::F32, {1, 1, group * shared, width}};
  const Attributes how = Attributes().set("operands", "lengths").set("causal", true).set("positions_first", true);
  add_program(
      fmt::format("cached_attention/{}/1x{}x{}x{}", element_type(type).name, positions, shared, width),
      std::vector<TensorType>{q, cache, cache},
      [=](const auto& x) {
        const HTensor lengths = full(DType::I32, {1}, static_cast<double>(positions));
        return std::vector{call("attention", {x[0], x[1], x[2], lengths}, how).at(0)};
      },
      0, 2 * static_cast<double>(cache.bytes()));
}

void add_all() {
  for (const DType type : {DType::F32, DType::F16, DType::Q8_0}) {
    add_cached(type, 512, 2, 64);  // for the smoke test
    add_cached(type, 4096, 8, 128);
    add_cached(type, 32768, 8, 128);
  }
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
