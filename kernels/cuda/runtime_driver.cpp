// Driver on the statically linked CUDA runtime, which loads the driver's library on first use.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <vector>

#include "driver.hpp"

namespace harmonics::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int wanted_device() {
  const char* text = std::getenv("HARMONICS_CUDA_DEVICE");
  return text && *text ? std::atoi(text) : 0;
}

cudaStream_t of(void* stream) { return static_cast<cudaStream_t>(stream); }

class RuntimeDriver final : public Driver {
 public:
  RuntimeDriver() : device_(wanted_device()) {}

  Facts facts() override {
    Facts f;
    int n = 0;  // stays 0 without a driver
    const cudaError_t code = cudaGetDeviceCount(&n);
    if (code == cudaErrorInsufficientDriver) {
      int driver = 0, runtime = 0;
      cudaDriverGetVersion(&driver);
      cudaRuntimeGetVersion(&runtime);
      f.unavailable = driver == 0 ? "no CUDA device: no NVIDIA driver is installed"
                                  : "no CUDA device: the NVIDIA driver is for CUDA " + version_text(driver) +
                                        ", this plugin is built with CUDA " + version_text(runtime) +
                                        "; install a newer driver";
    } else if (code != cudaSuccess) {
      f.unavailable = "no CUDA device: " + text(code);
    } else if (n == 0) {
      f.unavailable = "no CUDA device: the NVIDIA driver sees none";
    } else if (device_ < 0 || device_ >= n) {
      f.unavailable = "no CUDA device " + std::to_string(device_) + " (HARMONICS_CUDA_DEVICE); there are " +
                      std::to_string(n) + ", counted from 0";
    }
    if (f.unavailable.empty()) describe(f);
    cudaGetLastError();
    return f;
  }

  uint64_t free_memory() override {
    size_t left = 0, all = 0;
    return use() == cudaSuccess && cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
  }
  std::string text(int code) override {
    const char* said = cudaGetErrorString(static_cast<cudaError_t>(code));
    return std::string(said ? said : "unknown error") + " (" + std::to_string(code) + ")";
  }
  bool is_out_of_memory(int code) const override { return code == cudaErrorMemoryAllocation; }

  int become_current() override { return use(); }

  int allocate(uint64_t bytes, void** out) override {
    return then([&] { return cudaMalloc(out, bytes); });
  }
  int release(void* memory) override {
    return then([&] { return cudaFree(memory); });
  }
  int allocate_host(uint64_t bytes, void** out) override {
    return then([&] { return cudaMallocHost(out, bytes); });
  }
  int release_host(void* memory) override {
    return then([&] { return cudaFreeHost(memory); });
  }

  int open_stream(void** out) override {
    return then([&] { return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(out), cudaStreamNonBlocking); });
  }
  int close_stream(void* stream) override {
    return then([&] { return cudaStreamDestroy(of(stream)); });
  }
  int synchronize(void* stream) override {
    return then([&] { return cudaStreamSynchronize(of(stream)); });
  }
  int copy(void* to, const void* from, uint64_t bytes, void* stream) override {
    return then([&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(stream)); });
  }
  int launch(const void* function, const Grid& g, void** arguments, void* stream) override {
    return then(
        [&] { return cudaLaunchKernel(function, dim3(g.x, g.y, g.z), dim3(g.threads), arguments, 0, of(stream)); });
  }

  int record(void* stream, bool keeps_time, void** event) override {
    return then([&] {
      cudaEvent_t made = nullptr;
      cudaError_t code = cudaEventCreateWithFlags(&made, keeps_time ? cudaEventDefault : cudaEventDisableTiming);
      cudaStreamCaptureStatus captures = cudaStreamCaptureStatusNone;
      if (code == cudaSuccess) code = cudaStreamIsCapturing(of(stream), &captures);
      if (code == cudaSuccess)
        code = cudaEventRecordWithFlags(
            made, of(stream),
            captures == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault);
      *event = made;
      return code;
    });
  }
  int wait(void* stream, void* event) override {
    return then([&] { return cudaStreamWaitEvent(of(stream), static_cast<cudaEvent_t>(event), 0); });
  }
  int await_event(void* event) override {
    return then([&] { return cudaEventSynchronize(static_cast<cudaEvent_t>(event)); });
  }
  int elapsed(void* from, void* to, double* seconds) override {
    return then([&] {
      float milliseconds = 0;
      const cudaError_t code =
          cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to));
      *seconds = static_cast<double>(milliseconds) * 1e-3;
      return code;
    });
  }
  int release_event(void* event) override {
    return then([&] { return cudaEventDestroy(static_cast<cudaEvent_t>(event)); });
  }

  int begin_capture(void* stream) override {
    return then([&] { return cudaStreamBeginCapture(of(stream), cudaStreamCaptureModeThreadLocal); });
  }
  int end_capture(void* stream, void** graph) override {
    return then([&] {
      cudaGraph_t recorded = nullptr;
      cudaError_t code = cudaStreamEndCapture(of(stream), &recorded);
      cudaGraphExec_t ready = nullptr;
      if (code == cudaSuccess) code = cudaGraphInstantiate(&ready, recorded, 0);
      if (recorded) cudaGraphDestroy(recorded);
      *graph = ready;
      return code;
    });
  }
  int front(void* stream, std::vector<void*>& nodes) override {
    return then([&] {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      const cudaGraphNode_t* first = nullptr;
      const cudaGraphEdgeData* edges = nullptr;  // unused: nodes depend on complete nodes
      size_t n = 0;
#if CUDART_VERSION < 13000
      const cudaError_t code = cudaStreamGetCaptureInfo_v3(of(stream), &status, nullptr, nullptr, &first, &edges, &n);
#else
      const cudaError_t code = cudaStreamGetCaptureInfo(of(stream), &status, nullptr, nullptr, &first, &edges, &n);
#endif
      if (code != cudaSuccess) return code;
      if (status != cudaStreamCaptureStatusActive) return cudaErrorStreamCaptureInvalidated;
      nodes.assign(first, first + n);
      return code;
    });
  }
  int set_front(void* stream, const std::vector<void*>& nodes) override {
    return then([&] {
      std::vector<cudaGraphNode_t> all;
      for (void* node : nodes) all.push_back(static_cast<cudaGraphNode_t>(node));
#if CUDART_VERSION < 13000
      return cudaStreamUpdateCaptureDependencies(of(stream), all.data(), all.size(), cudaStreamSetCaptureDependencies);
#else
      return cudaStreamUpdateCaptureDependencies(of(stream), all.data(), nullptr, all.size(),
                                                 cudaStreamSetCaptureDependencies);
#endif
    });
  }
  int launch_graph(void* graph, void* stream) override {
    return then([&] { return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), of(stream)); });
  }
  int release_graph(void* graph) override {
    return then([&] { return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); });
  }

  int load(const std::string& image, void** program) override {
    return then([&] {
      return cudaLibraryLoadData(reinterpret_cast<cudaLibrary_t*>(program), image.data(), nullptr, nullptr, 0, nullptr,
                                 nullptr, 0);
    });
  }
  int function(void* program, const char* name, const void** out) override {
    return then([&] {
      cudaKernel_t kernel = nullptr;
      const cudaError_t code = cudaLibraryGetKernel(&kernel, static_cast<cudaLibrary_t>(program), name);
      *out = kernel;
      return code;
    });
  }
  int unload(void* program) override {
    return then([&] { return cudaLibraryUnload(static_cast<cudaLibrary_t>(program)); });
  }

 private:
  // The current device is per thread.
  cudaError_t use() {
    thread_local int current = -1;
    if (current == device_) return cudaSuccess;
    const cudaError_t code = cudaSetDevice(device_);
    if (code == cudaSuccess) current = device_;
    return code;
  }
  template <typename Call>
  int then(Call call) {
    const cudaError_t code = use();
    return code == cudaSuccess ? call() : code;
  }

  void describe(Facts& f) const {
    cudaDeviceProp p{};
    const cudaError_t code = cudaGetDeviceProperties(&p, device_);
    if (code != cudaSuccess) {
      f.unavailable = std::string("no CUDA device: ") + cudaGetErrorString(code);
      return;
    }
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    f.name = p.name;
    f.driver = "CUDA " + version_text(driver) + ", runtime " + version_text(runtime);
    f.major = p.major;
    f.minor = p.minor;
    f.units = p.multiProcessorCount;
    f.memory = p.totalGlobalMem;
    if (p.major < 8)
      f.unavailable = "no CUDA device that is new enough: " + f.name + " has compute capability " +
                      std::to_string(p.major) + "." + std::to_string(p.minor) + ", kernels are built for 8.0 and later";
  }

  int device_;
};

}  // namespace

std::unique_ptr<Driver> open_driver() { return std::make_unique<RuntimeDriver>(); }
std::unique_ptr<Compiler> open_compiler() { return open_nvrtc(); }
const LtFunctions* open_lt(std::string& why) { return open_cublaslt(why); }
const DnnFunctions* open_dnn(std::string& why) { return open_cudnn(why); }

}  // namespace harmonics::cuda
