// Matrix products of dense layers: forward, gradient of the input, gradient of the weight. `--precision=P` as on the
// command line.
#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "tests/bench/program.hpp"
#include "tests/bench/workload_bench.hpp"

namespace harmonics::engine::bench {

namespace {

void add(int64_t rows, int64_t in, int64_t out) {
  const double flops = 2.0 * static_cast<double>(rows * in * out);
  const double bytes = rows == 1 ? 4.0 * static_cast<double>(in * out) : 0;
  add_program(
      fmt::format("linear/{}x{}x{}", rows, in, out), {{rows, in}, {out, in}, {out}},
      [](const auto& x) { return call("linear", x); }, flops, bytes);
  add_program(
      fmt::format("input_gradient/{}x{}x{}", rows, in, out), {{rows, out}, {out, in}},
      [](const auto& x) { return std::vector{dot(x[0], x[1], {1}, {0})}; }, flops, bytes);
  add_program(
      fmt::format("weight_gradient/{}x{}x{}", rows, in, out), {{rows, out}, {rows, in}},
      [](const auto& x) { return std::vector{dot(x[0], x[1], {0}, {0})}; }, flops, bytes);
}

void add_all() {
  for (int64_t rows : {1, 64, 256}) {
    add(rows, 784, 392);
    add(rows, 392, 196);
    add(rows, 196, 10);
  }
  add(128, 784, 392);
  add(256, 784, 1024);  // 784-1024-1024-10
  add(256, 1024, 1024);
  add(2048, 128, 128);  // char_gpt
  add(2048, 128, 512);
  add(2048, 512, 128);
  add(2048, 384, 384);  // a GPT of width 384
  add(2048, 384, 1536);
  add(2048, 1536, 384);
  add(2048, 384, 1024);  // a Llama of width 384
  add(2048, 1024, 384);
  add(512, 512, 512);
  add(1024, 1024, 1024);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  using namespace harmonics::engine;
  const std::string precision = bench::take_precision(argc, argv);
  return bench::run_benchmarks(argc, argv, [&] {
    bench::set_program_precision(parse_precision(precision));
    bench::add_all();
  });
}
