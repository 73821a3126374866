// A custom shader on the OpenCL device: built for the device's context and enqueued among its kernels.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "fused_relu.hpp"

HARMONICS_PLUGIN("org.example.fused_relu_opencl", "0.1.0", "Apache-2.0", "Example");

namespace {

using harmonics::CallSite;

const char* kSource = R"(
kernel void fused_relu(global const float* x, ulong x_at, global float* y, ulong y_at) {
  const size_t i = get_global_id(0);
  const float v = x[x_at + i];
  y[y_at + i] = v < 0 ? 0 : v;
}
)";

void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS)
    throw harmonics::Error(harmonics::ErrorKind::Device,
                           std::string("fused_relu cannot ") + what + ": OpenCL status " + std::to_string(code));
}

// The shader of one call site. The queue is in order, so it runs after the kernels enqueued before.
class Shader {
 public:
  Shader(const hx_native& native, size_t elements) : elements_(elements) {
    const auto device = static_cast<cl_device_id>(native.device);
    cl_int code = CL_SUCCESS;
    program_ = clCreateProgramWithSource(static_cast<cl_context>(native.context), 1, &kSource, nullptr, &code);
    if (code == CL_SUCCESS) code = clBuildProgram(program_, 1, &device, "", nullptr, nullptr);
    if (code == CL_SUCCESS) kernel_ = clCreateKernel(program_, "fused_relu", &code);
    if (code != CL_SUCCESS) release();
    check(code, "build its shader");
  }
  Shader(const Shader&) = delete;
  Shader& operator=(const Shader&) = delete;
  ~Shader() { release(); }

  // places: the input, the output. `buffer` is a cl_mem, `offset` is in bytes.
  void enqueue(const hx_native& native, const hx_place* places) const {
    for (cl_uint i = 0; i < 2; ++i) {
      const auto memory = reinterpret_cast<cl_mem>(places[i].buffer);
      const cl_ulong at = places[i].offset / sizeof(float);
      check(clSetKernelArg(kernel_, 2 * i, sizeof memory, &memory), "pass a buffer");
      check(clSetKernelArg(kernel_, 2 * i + 1, sizeof at, &at), "pass an offset");
    }
    check(clEnqueueNDRangeKernel(static_cast<cl_command_queue>(native.queue), kernel_, 1, nullptr, &elements_, nullptr,
                                 0, nullptr, nullptr),
          "queue its shader");
  }

 private:
  void release() {
    if (kernel_) clReleaseKernel(kernel_);
    if (program_) clReleaseProgram(program_);
  }

  cl_program program_ = nullptr;
  cl_kernel kernel_ = nullptr;
  size_t elements_;
};

class OpenClShader : public harmonics::Implementation {
 public:
  std::string supports(const CallSite& site) const override {
    if (!site.native() || site.native()->driver != HX_NATIVE_OPENCL) return "needs a device with an OpenCL driver";
    if (site.input_dtype(0) != harmonics::DType::F32) return "computes f32 only";
    return site.input_shape(0).count() == 0 ? "computes tensors with elements only" : "";
  }
  bool find(const CallSite& site, hx_kernel& kernel) const override {
    kernel.context = new Shader(*site.native(), static_cast<size_t>(site.input_shape(0).count()));
    kernel.destroy = [](void* context) { delete static_cast<Shader*>(context); };
    kernel.name = "fused_relu shader";
    kernel.enqueue_native = [](const void* context, const hx_native* native, const hx_place* places) {
      return harmonics::detail::guarded([&] {
        static_cast<const Shader*>(context)->enqueue(*native, places);
        return HX_OK;
      });
    };
    return true;
  }
};

}  // namespace

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  register_fused_relu(registry, "fused_relu (OpenCL C)");
  registry.register_implementation("my_fused_relu", "opencl_shader", std::make_shared<OpenClShader>(),
                                   "an OpenCL kernel of its own");
}
