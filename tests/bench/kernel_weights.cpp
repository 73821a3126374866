// Rows times weights of several element types. Few rows are limited by reading the weight, more by arithmetic.
// "rounded": x is rounded to q8_0, and integers are multiplied. Weights are constants, so that they may be packed.
#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

// Adds a weight of about `bytes` bytes and `rows` rows of `in` numbers.
void add(DType type, bool rounded, int64_t rows, int64_t in, double bytes) {
  const auto out = static_cast<int64_t>(bytes / static_cast<double>(run_bytes(type, in))) / 32 * 32;
  const TensorType x{DType::F32, {rows, in}}, weight{type, {out, in}};
  add_program(
      fmt::format("linear/{}{}/{}x{}x{}", element_type(type).name, rounded ? "/rounded" : "", rows, in, out),
      std::vector<TensorType>{x, weight},
      [rounded](const auto& inputs) {
        return call("linear", inputs, rounded ? Attributes().set("activation_type", "q8_0") : Attributes());
      },
      2.0 * static_cast<double>(rows * in * out), static_cast<double>(weight.bytes()), 1);
}

void add_all() {
  for (const DType type :
       {DType::F32, DType::BF16, DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1,
        DType::IQ4_NL, DType::MXFP4, DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_XS})
    for (const bool rounded : {false, true}) {
      if (rounded && element_type(type).block == 1) continue;
      add(type, rounded, 1, 256, 64e3);  // for the smoke test
      for (const int64_t rows : {1, 2, 8, 16, 32}) add(type, rounded, rows, 4096, 200e6);
      // limited by arithmetic: the same number of products for each type
      for (const int64_t rows : {64, 512})
        add(type, rounded, rows, 2048, 2048.0 * static_cast<double>(run_bytes(type, 2048)));
    }
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
