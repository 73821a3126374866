// workloads/*.json: what is trained or run, in a form that a peer's script reads as well.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/harmonic_graph.hpp"

namespace harmonics::bench {

struct Workload {
  std::string name;
  bool trains = false;
  std::string flow;       // the text
  std::string optimizer;  // as a flow names it; training
  double lr = 0;
  uint64_t seed = 0;
  int64_t parameters = 0;  // numbers learned; checked against the graph, so that peers train the same net
  std::vector<int64_t> batches;
  std::vector<int> threads;
};

// From the folder `workloads`, or the one HARMONICS_WORKLOADS names. Throws an Error that names the file.
Workload read_workload(const std::string& name);

// A compiled step of a workload over batches of random numbers made beforehand: no stream is read.
class PreparedStep {
 public:
  PreparedStep(const Workload& workload, int64_t batch, int threads);

  void run();                                          // the next batch
  double flops() const { return flops_; }              // of contractions, forward and backward: what any method must do
  double least_bytes() const { return least_bytes_; }  // weights read once forward, read and written once backward
  const Executable& executable() const { return step_->executable(); }

 private:
  using Buffer = std::vector<std::shared_ptr<Storage>>;  // one per stream

  void fill(const Workload& workload, int64_t batch);

  std::unique_ptr<HarmonicGraph> graph_;
  std::unique_ptr<CompiledStep> step_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<const void*>> pointers_;
  float lr_ = 0;
  uint64_t seed_ = 0;
  int64_t count_ = 0;
  double flops_ = 0, least_bytes_ = 0;
};

// Multiplications and additions of the program's contractions (products of matrices, convolutions), as traced.
double contraction_flops(const Program& program);

}  // namespace harmonics::bench
