// workloads/*.json: descriptions of training and inference, which the peers' scripts read as well.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/bound/prepared_step.hpp"

namespace harmonics::engine::bench {

// The content of a workload's stream.
struct DataSpec {
  std::string name;        // the producer's
  Shape shape;             // of one sample
  int64_t classes = 0;     // integers below it; 0: numbers in [0, 1)
  bool positions = false;  // the first axis is a sequence
  std::string values;      // "uniform": random; "mnist": rows of its training set, or their labels
};

struct Workload {
  std::string name;
  bool trains = false;
  std::string flow;       // the text
  std::string optimizer;  // in the notation of a flow; training
  int moments = -1;       // tensors an optimizer keeps per weight; -1: not known here
  double moved = 1;       // a step's bytes of weights and moments, relative to f32
  std::vector<DataSpec> data;
  uint64_t seed = 0;
  int64_t parameters = 0;  // trainable values; checked against the graph, so that peers train the same net
  std::vector<int64_t> batches;
  std::vector<int> threads;
};

// Reads from the folder `workloads`, or the one in HARMONICS_WORKLOADS. Throws an Error with the file's name.
Workload read_workload(const std::string& name);

// A compiled step of a workload on prepared batches, without streams.
class WorkloadStep {
 public:
  WorkloadStep(const Workload& workload, int64_t batch, int threads, DeviceSettings device = {});

  size_t run() { return step_->run(); }  // runs the next batch; returns its index
  double flops() const {
    return flops_;
  }                                                    // of contractions, forward and backward: the minimum of any
                                                       // method
  double least_bytes() const { return least_bytes_; }  // weights read once forward, read and written once backward
  const Executable& executable() const { return step_->executable(); }
  uint64_t prepared_bytes() const { return step_->prepared_bytes(); }

 private:
  std::unique_ptr<BoundGraph> graph_;
  std::unique_ptr<PreparedStep> step_;
  double flops_ = 0, least_bytes_ = 0;
};

// Returns the multiplications and additions of the program's contractions (matrix products, convolutions), as traced.
double contraction_flops(const Program& program);

}  // namespace harmonics::engine::bench
