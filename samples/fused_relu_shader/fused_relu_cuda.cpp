// A custom shader on the CUDA device: PTX, launched through the driver on the device's stream.
#include <dlfcn.h>

#include "fused_relu.hpp"

HARMONICS_PLUGIN("org.example.fused_relu_cuda", "0.1.0", "Apache-2.0", "Example");

namespace {

using harmonics::CallSite;

// Runs on any GPU of compute capability 5.0 or later; the driver compiles it.
const char* kPtx = R"(
.version 6.0
.target sm_50
.address_size 64
.visible .entry fused_relu(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p<3>;
  .reg .f32 %f<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 ret;
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mul.wide.u32 %rd5, %r5, 4;
  add.s64 %rd6, %rd3, %rd5;
  add.s64 %rd7, %rd4, %rd5;
  ld.global.f32 %f1, [%rd6];
  setp.lt.f32 %p2, %f1, 0f00000000;
  selp.f32 %f2, 0f00000000, %f1, %p2;
  st.global.f32 [%rd7], %f2;
  ret;
}
)";

// The functions of libcuda.so.1 used here.
struct CudaDriver {
  int (*load)(void** module, const void* image) = nullptr;
  int (*unload)(void* module) = nullptr;
  int (*function)(void** function, void* module, const char* name) = nullptr;
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_bytes, void* stream, void** parameters, void** extra) = nullptr;

  static const CudaDriver& get() {
    static const CudaDriver driver;
    return driver;
  }

 private:
  CudaDriver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
    const auto find = [&](auto& to, const char* name) {
      void* const symbol = library ? dlsym(library, name) : nullptr;
      if (!symbol) throw harmonics::Error(harmonics::ErrorKind::Device, std::string("the CUDA driver lacks ") + name);
      to = reinterpret_cast<std::decay_t<decltype(to)>>(symbol);
    };
    find(load, "cuModuleLoadData");
    find(unload, "cuModuleUnload");
    find(function, "cuModuleGetFunction");
    find(launch, "cuLaunchKernel");
  }
};

void check(int code, const char* what) {
  if (code != 0)
    throw harmonics::Error(harmonics::ErrorKind::Device,
                           std::string("fused_relu cannot ") + what + ": CUDA status " + std::to_string(code));
}

// The shader of one call site. The host has made the device's context current.
class Shader {
 public:
  explicit Shader(uint32_t elements) : elements_(elements) {
    const CudaDriver& driver = CudaDriver::get();
    check(driver.load(&module_, kPtx), "load its shader");
    const int code = driver.function(&function_, module_, "fused_relu");
    if (code != 0) driver.unload(module_);
    check(code, "find its shader");
  }
  Shader(const Shader&) = delete;
  Shader& operator=(const Shader&) = delete;
  ~Shader() { CudaDriver::get().unload(module_); }

  // places: the input, the output. `buffer` is a CUdeviceptr, `offset` is in bytes.
  void enqueue(const hx_native& native, const hx_place* places) const {
    uint64_t x = places[0].buffer + places[0].offset, y = places[1].buffer + places[1].offset;
    uint32_t elements = elements_;
    void* parameters[] = {&x, &y, &elements};
    constexpr unsigned kThreads = 256;
    const unsigned blocks = (elements_ - 1) / kThreads + 1;
    check(CudaDriver::get().launch(function_, blocks, 1, 1, kThreads, 1, 1, 0, native.queue, parameters, nullptr),
          "launch its shader");
  }

 private:
  void *module_ = nullptr, *function_ = nullptr;
  uint32_t elements_;
};

class CudaShader : public harmonics::Implementation {
 public:
  std::string supports(const CallSite& site) const override {
    if (!site.native() || site.native()->driver != HX_NATIVE_CUDA) return "needs a device with a CUDA driver";
    if (site.input_dtype(0) != harmonics::DType::F32) return "computes f32 only";
    const int64_t elements = site.input_shape(0).count();
    return elements > 0 && elements < INT32_MAX ? "" : "computes tensors of 1 to 2^31-2 elements only";
  }
  bool find(const CallSite& site, hx_kernel& kernel) const override {
    kernel.context = new Shader(static_cast<uint32_t>(site.input_shape(0).count()));
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
  register_fused_relu(registry, "fused_relu (PTX)");
  registry.register_implementation("my_fused_relu", "cuda_shader", std::make_shared<CudaShader>(),
                                   "a CUDA kernel of its own");
}
