// Training steps on prepared batches: forward, loss, backward, update. `--precision=P` as on the command line.
#include "tests/bench/workload_bench.hpp"

int main(int argc, char** argv) {
  using namespace harmonics::engine;
  const std::string precision = bench::take_precision(argc, argv);
  return bench::run_benchmarks(argc, argv, [&] {
    const Precision parsed = parse_precision(precision);
    for (const char* name :
         {"mlp_train",
          // The default optimizer; mlp_train is SGD on sparse data.
          "mlp_adamw_sparse", "mlp_sgd_dense", "mlp_adamw_dense", "wide_relu_sgd_sparse", "wide_relu_adamw_sparse",
          "wide_relu_sgd_dense", "wide_relu_adamw_dense", "wide_gelu_sgd_sparse", "wide_gelu_adamw_sparse",
          "wide_gelu_sgd_dense", "wide_gelu_adamw_dense",
          // Moments with fewer bits. The large net's weights and moments exceed every cache.
          "wide_relu_adamw_bf16_dense", "wide_relu_adamw_q8_dense", "large_adamw_dense", "large_adamw_bf16_dense",
          "large_adamw_q8_dense", "lenet_train", "cnn_train", "char_gpt_train",
          // 6 layers, 384 wide, 256 tokens.
          "gpt_train", "llama_train"})
      bench::add_workload(name, parsed);
  });
}
