// Rows times weights of several element types: up to twelve rows the memory that holds the weight is the limit, then
// arithmetic.
#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

// A weight of about `bytes` bytes for `rows` rows of `in` numbers.
void add(DType type, int64_t rows, int64_t in, double bytes) {
  const auto out = static_cast<int64_t>(bytes / static_cast<double>(run_bytes(type, in))) / 32 * 32;
  const TensorType x{DType::F32, {rows, in}}, weight{type, {out, in}};
  add_program(
      fmt::format("linear/{}/{}x{}x{}", element_type(type).name, rows, in, out), std::vector<TensorType>{x, weight},
      [](const auto& inputs) { return call("linear", inputs); }, 2.0 * static_cast<double>(rows * in * out),
      static_cast<double>(weight.bytes()));
}

void add_all() {
  for (const DType type :
       {DType::F32, DType::BF16, DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K, DType::Q6_K, DType::Q5_0}) {
    add(type, 1, 256, 64e3);  // for the smoke test
    for (const int64_t rows : {1, 2, 8, 12}) add(type, rows, 4096, 200e6);
    // arithmetic is the limit: as many products for each type
    for (const int64_t rows : {32, 128, 512})
      add(type, rows, 2048, 2048.0 * static_cast<double>(run_bytes(type, 2048)));
  }
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
