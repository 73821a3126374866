// Inference steps on prepared batches.
#include "tests/bench/workload_bench.hpp"

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv,
                                                  [] { harmonics::engine::bench::add_workload("mlp_infer"); });
}
