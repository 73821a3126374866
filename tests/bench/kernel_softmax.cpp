// Softmax and layer norm along rows: memory is the limit.
#include <fmt/core.h>

#include "tests/bench/program.hpp"

namespace harmonics::bench {

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
}

}  // namespace

}  // namespace harmonics::bench

int main(int argc, char** argv) { return harmonics::bench::run_benchmarks(argc, argv, harmonics::bench::add_all); }
