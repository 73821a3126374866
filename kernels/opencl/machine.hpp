// The OpenCL device: selection among all platforms, properties, compiled programs.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <harmonics/abi.h>

namespace harmonics::opencl {

// Returns the text of a status: "CL_OUT_OF_RESOURCES (-5)".
std::string code_text(cl_int code);
// Throws ErrorKind::Device unless the code is CL_SUCCESS.
void check(cl_int code, const char* what);

// The object behind hx_queue. Drivers record times only in profiling queues, which may be slower. Work goes to `plain`,
// and to `timed` from the first timed event until the queue is synchronized.
struct Queue {
  cl_command_queue plain = nullptr, timed = nullptr, now = nullptr;
};
inline Queue& queue_of(hx_queue* queue) { return *reinterpret_cast<Queue*>(queue); }

class Machine {
 public:
  // Opens the first GPU, else the first accelerator, else the first CPU. HARMONICS_OPENCL_DEVICE=TEXT selects the first
  // device whose name or platform name contains TEXT. Throws ErrorKind::Device with the reason if there is none.
  Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  cl_device_id device() const { return device_; }
  cl_context context() const { return context_; }
  cl_device_type type() const { return type_; }
  const std::string& name() const { return name_; }
  const std::string& driver() const { return driver_; }          // "Portable Computing Language, OpenCL 3.0 PoCL 3.1"
  const std::string& capability() const { return capability_; }  // "OpenCL C 1.2, 2 units, f64"
  uint64_t memory() const { return memory_; }
  uint64_t most_bytes() const { return most_bytes_; }
  bool has_f64() const { return has_f64_; }

  // Allocates host memory with direct device access: a buffer that stays mapped.
  void* allocate_host(uint64_t bytes);
  void release_host(void* memory);

  // Returns a kernel of a program, which is compiled once per source. Release with clReleaseKernel.
  cl_kernel kernel(const std::string& source, const char* name);

 private:
  void describe(cl_platform_id platform);
  cl_program program(const std::string& source);
  cl_program build(const std::string& source) const;
  std::string options() const;

  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_device_type type_ = 0;
  std::string name_, driver_, capability_;
  uint64_t memory_ = 0, most_bytes_ = 0;
  bool has_f64_ = false, divides_exactly_ = false;
  std::mutex mutex_;
  std::map<std::string, cl_program> programs_;  // by source
  cl_command_queue mapping_ = nullptr;          // maps host memory; opened on first use
  std::map<void*, cl_mem> mapped_;
};

}  // namespace harmonics::opencl
