// What the device asks of CUDA, and nothing else: the runtime in runtime_driver.cpp, a processor that plays one in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace harmonics::cuda {

struct Grid {
  uint32_t x = 1, y = 1, z = 1, threads = 1;
};

// What one accelerator is. `unavailable`: why there is none; the rest then says nothing.
struct Facts {
  std::string unavailable, name, driver;
  int major = 0, minor = 0;  // of its compute capability
  int units = 0;
  uint64_t memory = 0;
};

// Functions return the driver's code, 0 for success. Handles are the driver's own pointers.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Facts facts() = 0;
  virtual uint64_t free_memory() = 0;
  virtual std::string text(int code) = 0;  // "out of memory (2)"
  virtual bool is_out_of_memory(int code) const = 0;
  // For this thread, which libraries that are opened beside the driver go by. Its own functions do that themselves.
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

  // In what is captured too: each start of the graph then reaches the event anew.
  virtual int record(void* stream, bool keeps_time, void** event) = 0;
  virtual int wait(void* stream, void* event) = 0;
  virtual int await_event(void* event) = 0;  // by the host
  virtual int elapsed(void* from, void* to, double* seconds) = 0;  // between two that keep the time, both done
  virtual int release_event(void* event) = 0;

  virtual int begin_capture(void* stream) = 0;
  virtual int end_capture(void* stream, void** graph) = 0;  // ready to be launched
  virtual int launch_graph(void* graph, void* stream) = 0;
  virtual int release_graph(void* graph) = 0;

  // A built program, and one function of it.
  virtual int load(const std::string& image, void** program) = 0;
  virtual int function(void* program, const char* name, const void** out) = 0;
  virtual int unload(void* program) = 0;
};

// Makes programs of text.
class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string unavailable() = 0;  // why it cannot; "": it can
  virtual std::string version() = 0;
  // What makes another program of the same text, such as the architecture.
  virtual std::string target(const Facts& facts) = 0;
  // Throws ErrorKind::Device with what the compiler says.
  virtual std::string compile(const std::string& source, const Facts& facts) = 0;
};

struct LtFunctions;
struct DnnFunctions;

// What the plugin is built with: runtime_driver.cpp defines these for the machine, tests for themselves.
std::unique_ptr<Driver> open_driver();
std::unique_ptr<Compiler> open_compiler();
const LtFunctions* open_lt(std::string& why);
const DnnFunctions* open_dnn(std::string& why);

// Libraries beside it, looked for when they are first asked for something. cuBLASLt and cuDNN: null with the reason in `why`.
std::unique_ptr<Compiler> open_nvrtc();
const LtFunctions* open_cublaslt(std::string& why);
const DnnFunctions* open_cudnn(std::string& why);

}  // namespace harmonics::cuda
