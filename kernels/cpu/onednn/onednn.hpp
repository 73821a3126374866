// oneDNN from kernels: one OpenMP thread per call, primitives and memory objects made once.
//
// A kernel's memory objects are rebound to the buffers of each run, so one kernel serves one run at a time.
#pragma once

#include <dnnl.hpp>
#include <omp.h>

#include <initializer_list>
#include <utility>
#include <vector>

namespace harmonics::cpu {

const dnnl::engine& cpu_engine();

// Debian's oneDNN splits work over OpenMP threads; within this scope the calling thread has one: parts are what runs at
// once. Primitives must be made in such a scope too, because they keep the number of threads they were made for.
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

// One primitive with memory objects of its own; nothing is allocated here when it runs.
class Execution {
 public:
  Execution(dnnl::primitive primitive, std::initializer_list<std::pair<int, dnnl::memory::desc>> arguments);
  // Pointers in the order of the arguments.
  void run(std::initializer_list<const void*> pointers) const;

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

}  // namespace harmonics::cpu
