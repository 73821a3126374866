// Steps of inference on prepared batches.
#include "tests/bench/workload_bench.hpp"

int main(int argc, char** argv) {
  return harmonics::bench::run_benchmarks(argc, argv, [] { harmonics::bench::add_workload("mlp_infer"); });
}
