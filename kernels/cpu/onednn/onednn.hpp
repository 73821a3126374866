// oneDNN for kernels: one OpenMP thread per call; primitives and memory objects are created once.
//
// Each run rebinds a kernel's memory objects to its buffers, so runs of one kernel must not overlap.
#pragma once

#include <dnnl.hpp>
#include <omp.h>

#include <initializer_list>
#include <utility>
#include <vector>

namespace harmonics::cpu {

const dnnl::engine& cpu_engine();

// Limits OpenMP to one thread in its scope, since parts already run in parallel. Primitives must be created in such a
// scope too, because they store the number of threads.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A primitive with its memory objects. run() allocates nothing here.
class Execution {
 public:
  Execution(dnnl::primitive primitive, std::initializer_list<std::pair<int, dnnl::memory::desc>> arguments);
  // `pointers`: in the order of the arguments.
  void run(std::initializer_list<const void*> pointers) const;

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

}  // namespace harmonics::cpu
