// Softmax and norms, which are limited by memory bandwidth.
#include <fmt/core.h>

#include "tests/bench/program.hpp"

namespace harmonics::engine::bench {

namespace {

void add_all() {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{64, 10}, {256, 1000}, {2048, 4096}}) {
    const double bytes = 8.0 * static_cast<double>(rows * columns);
    const std::string size = fmt::format("{}x{}", rows, columns);
    add_program(
        "softmax/" + size, {{rows, columns}}, [](const auto& x) { return call("softmax", x); }, 0, bytes);
    add_program(
        "layer_norm/" + size, {{rows, columns}, {columns}, {columns}},
        [](const auto& x) { return call("layer_norm", x, Attributes().set("epsilon", 1e-5)); }, 0, bytes);
  }
  for (const Shape& shape : {Shape{64, 32, 28, 28}, Shape{256, 512}}) {
    const int64_t channels = shape[1];
    add_program(
        "batch_norm/" + shape.str(), {shape, {channels}, {channels}},
        [](const auto& x) { return call("batch_norm", x, Attributes().set("epsilon", 1e-5)); }, 0,
        8.0 * static_cast<double>(shape.count()));
  }
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
