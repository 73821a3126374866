// An OpenCL driver with injected faults, preloaded before the real one. HARMONICS_TEST_OPENCL=WHAT:N selects the fault:
//   memory:N    allocation of the N-th and later buffers fails
//   launch:N    the N-th kernel launch fails
//   gone:N      all calls fail from the N-th kernel on
//   binary:N    loading built programs fails from the N-th on
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>

namespace {

struct Plan {
  std::string what;
  long from = 0;
  Plan() {
    const char* text = std::getenv("HARMONICS_TEST_OPENCL");
    if (const char* colon = text ? std::strchr(text, ':') : nullptr) {
      what.assign(text, colon);
      from = std::atol(colon + 1);
    }
  }
};
const Plan& plan() {
  static const Plan p;
  return p;
}
std::atomic<long> buffers{0}, kernels{0}, binaries{0};
std::atomic<bool> is_gone{false};

bool reached(std::atomic<long>& count, const char* what) { return plan().what == what && ++count >= plan().from; }

template <typename Function>
Function real(const char* name) {
  static void* const driver = dlopen("libOpenCL.so.1", RTLD_LAZY);
  return reinterpret_cast<Function>(dlsym(driver, name));
}

}  // namespace

#pragma GCC visibility push(default)  // replace the real functions
extern "C" {

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host, cl_int* code) {
  const cl_int why = is_gone                      ? CL_DEVICE_NOT_AVAILABLE
                     : reached(buffers, "memory") ? CL_MEM_OBJECT_ALLOCATION_FAILURE
                                                  : CL_SUCCESS;
  if (why == CL_SUCCESS) return real<decltype(&clCreateBuffer)>("clCreateBuffer")(context, flags, size, host, code);
  if (code) *code = why;
  return nullptr;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t* offset,
                              const size_t* global, const size_t* local, cl_uint n, const cl_event* events,
                              cl_event* event) {
  if (reached(kernels, "gone")) is_gone = true;
  if (is_gone) return CL_DEVICE_NOT_AVAILABLE;
  if (plan().what == "launch" && ++kernels == plan().from) return CL_OUT_OF_RESOURCES;
  return real<decltype(&clEnqueueNDRangeKernel)>("clEnqueueNDRangeKernel")(queue, kernel, dims, offset, global, local,
                                                                           n, events, event);
}

cl_int clFinish(cl_command_queue queue) {
  const cl_int code = real<decltype(&clFinish)>("clFinish")(queue);
  return is_gone ? CL_DEVICE_NOT_AVAILABLE : code;
}
cl_int clFlush(cl_command_queue queue) {
  return is_gone ? CL_DEVICE_NOT_AVAILABLE : real<decltype(&clFlush)>("clFlush")(queue);
}
cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                           void* to, cl_uint n, const cl_event* events, cl_event* event) {
  if (is_gone) return CL_DEVICE_NOT_AVAILABLE;
  return real<decltype(&clEnqueueReadBuffer)>("clEnqueueReadBuffer")(queue, buffer, blocking, offset, size, to, n,
                                                                     events, event);
}
cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                            const void* from, cl_uint n, const cl_event* events, cl_event* event) {
  if (is_gone) return CL_DEVICE_NOT_AVAILABLE;
  return real<decltype(&clEnqueueWriteBuffer)>("clEnqueueWriteBuffer")(queue, buffer, blocking, offset, size, from, n,
                                                                       events, event);
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint n, const cl_device_id* devices, const size_t* sizes,
                                     const unsigned char** binaries_given, cl_int* status, cl_int* code) {
  if (!reached(binaries, "binary"))
    return real<decltype(&clCreateProgramWithBinary)>("clCreateProgramWithBinary")(context, n, devices, sizes,
                                                                                   binaries_given, status, code);
  if (code) *code = CL_INVALID_BINARY;
  return nullptr;
}

}  // extern "C"
#pragma GCC visibility pop
