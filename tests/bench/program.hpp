// A traced program on the CPU device, for benchmarks of single functionals.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/program/tracer.hpp"
#include "tests/bench/measure.hpp"

namespace harmonics::engine::bench {

// `trace` receives one input per type and returns the results. Inputs are random in [-1, 1), converted to the type, or,
// for i32, in [0, kWholeLimit).
constexpr float kWholeLimit = 1024;
using Trace = std::function<std::vector<HTensor>(const std::vector<HTensor>& inputs)>;

// Precision of the programs prepared from now on.
void set_program_precision(Precision precision);

class PreparedProgram {
 public:
  // The last `constants` inputs never change, so that kernels may pack them beforehand.
  PreparedProgram(const std::vector<TensorType>& inputs, const Trace& trace, int threads, size_t constants = 0);
  ~PreparedProgram();
  void run() { plan_->run(pointers_.data()); }
  std::string kernels() const;  // of all steps, joined by " + "

 private:
  class Constants;
  std::unique_ptr<Constants> constants_;
  std::vector<std::shared_ptr<Storage>> buffers_;
  std::vector<const void*> pointers_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Executable> plan_;
};

// Registers "NAME/threads:N" for 1 and 2 threads. Give flops, or bytes if memory bandwidth is the limit; see Work.
void add_program(const std::string& name, std::vector<TensorType> inputs, Trace trace, double flops, double bytes,
                 size_t constants = 0);
void add_program(const std::string& name, const std::vector<Shape>& f32_inputs, Trace trace, double flops,
                 double bytes);

}  // namespace harmonics::engine::bench
