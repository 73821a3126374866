// Steps of training on prepared batches: forward, loss, backward, update.
#include "tests/bench/workload_bench.hpp"

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, [] {
    harmonics::engine::bench::add_workload("mlp_train");
    for (const char* name : {"lenet_train", "cnn_train", "char_gpt_train"})
      harmonics::engine::bench::add_workload(name);
  });
}
