// Elementwise chains, sums over axes, windows and sorting. Bytes: the minimum memory traffic.
#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

void add_shape(int64_t rows, int64_t columns) {
  const double tensor = 4.0 * static_cast<double>(rows * columns);
  const Shape shape{rows, columns};
  const std::string size = fmt::format("{}x{}", rows, columns);
  add_program(
      "add/" + size, {shape, shape}, [](const auto& x) { return std::vector{x[0] + x[1]}; }, 0, 3 * tensor);
  add_program(
      "chain/" + size, {shape, shape},
      [](const auto& x) { return std::vector{maximum(x[0] * x[1] + x[0], zeros_like(x[0])) * x[1]}; }, 0, 3 * tensor);
  add_program(
      "gelu/" + size, {shape}, [](const auto& x) { return call("gelu", x); }, 0, 2 * tensor);
  add_program(
      "tan/" + size, {shape}, [](const auto& x) { return std::vector{tan(x[0])}; }, 0, 2 * tensor);
  add_program(
      "atan2/" + size, {shape, shape}, [](const auto& x) { return std::vector{atan2(x[0], x[1])}; }, 0, 3 * tensor);
  add_program(
      "asinh/" + size, {shape}, [](const auto& x) { return std::vector{asinh(x[0])}; }, 0, 2 * tensor);
  add_program(
      "max_windows/" + size, {shape},
      [](const auto& x) {
        return std::vector{reduce_window(x[0], "max", {{3, 3}, {}, {1, 1}, {1, 1}})};
      },
      0, 2 * tensor);
  add_program(
      "sort_rows/" + size, {shape}, [](const auto& x) { return std::vector{argsort(x[0], 1)}; }, 0, 4 * tensor);
  add_program(
      "sum_rows/" + size, {shape}, [](const auto& x) { return std::vector{reduce_sum(x[0], {1})}; }, 0, tensor);
  add_program(
      "sum_columns/" + size, {shape}, [](const auto& x) { return std::vector{reduce_sum(x[0], {0})}; }, 0, tensor);
}

void add_all() {
  add_shape(64, 392);
  add_shape(1024, 1024);
  add_shape(4096, 4096);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
