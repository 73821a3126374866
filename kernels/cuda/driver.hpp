// Interface to CUDA, implemented by runtime_driver.cpp, and by an emulated device in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace harmonics::cuda {

struct Grid {
  uint32_t x = 1, y = 1, z = 1, threads = 1;
};

// Properties of a GPU. `unavailable`: reason why there is none; the other members are then meaningless.
struct Facts {
  std::string unavailable, name, driver;
  int major = 0, minor = 0;  // compute capability
  int units = 0;
  uint64_t memory = 0;
};

// Interface to the driver. Functions return its status, 0 for success. Handles are the driver's pointers.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Facts facts() = 0;
  virtual uint64_t free_memory() = 0;
  virtual std::string text(int code) = 0;  // of a status: "out of memory (2)"
  virtual bool is_out_of_memory(int code) const = 0;
  // Makes the device current in this thread, for libraries such as cuBLASLt. The other functions do so themselves.
  virtual int become_current() = 0;

  virtual int allocate(uint64_t bytes, void** out) = 0;
  virtual int release(void* memory) = 0;
  virtual int allocate_host(uint64_t bytes, void** out) = 0;  // pinned
  virtual int release_host(void* memory) = 0;

  virtual int open_stream(void** out) = 0;
  virtual int close_stream(void* stream) = 0;
  virtual int synchronize(void* stream) = 0;
  virtual int copy(void* to, const void* from, uint64_t bytes, void* stream) = 0;  // between any two memories
  virtual int launch(const void* function, const Grid& grid, void** arguments, void* stream) = 0;

  // Can be captured: each launch of the graph then records the event again.
  virtual int record(void* stream, bool keeps_time, void** event) = 0;
  virtual int wait(void* stream, void* event) = 0;
  virtual int await_event(void* event) = 0;                        // blocks the host
  virtual int elapsed(void* from, void* to, double* seconds) = 0;  // both with keeps_time, both complete
  virtual int release_event(void* event) = 0;

  virtual int begin_capture(void* stream) = 0;
  virtual int end_capture(void* stream, void** graph) = 0;  // the graph is ready to launch
  // The captured nodes on which the next node will depend.
  virtual int front(void* stream, std::vector<void*>& nodes) = 0;
  virtual int set_front(void* stream, const std::vector<void*>& nodes) = 0;
  virtual int launch_graph(void* graph, void* stream) = 0;
  virtual int release_graph(void* graph) = 0;

  // A compiled program, and a function of it.
  virtual int load(const std::string& image, void** program) = 0;
  virtual int function(void* program, const char* name, const void** out) = 0;
  virtual int unload(void* program) = 0;
};

// Interface to a compiler of source text.
class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string unavailable() = 0;  // reason; "": available
  virtual std::string version() = 0;
  // Returns the target, such as the architecture, as part of the key of cached programs.
  virtual std::string target(const Facts& facts) = 0;
  // Returns the compiled program. Throws ErrorKind::Device with the compiler's messages.
  virtual std::string compile(const std::string& source, const Facts& facts) = 0;
};

struct LtFunctions;
struct DnnFunctions;

// Defined in runtime_driver.cpp; tests define them for the emulated device.
std::unique_ptr<Driver> open_driver();
std::unique_ptr<Compiler> open_compiler();
const LtFunctions* open_lt(std::string& why);
const DnnFunctions* open_dnn(std::string& why);

// Open libraries on demand. cuBLASLt and cuDNN: return null with the reason in `why` on failure.
std::unique_ptr<Compiler> open_nvrtc();
const LtFunctions* open_cublaslt(std::string& why);
const DnnFunctions* open_cudnn(std::string& why);

}  // namespace harmonics::cuda
