// The GPU: properties, driver errors, compiled programs.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "code/kernels.hpp"
#include "dnn.hpp"
#include "driver.hpp"
#include "lt.hpp"
#include "recording.hpp"

namespace harmonics::cuda {

class Machine {
 public:
  // Throws ErrorKind::Device with the reason if there is no GPU.
  Machine(std::unique_ptr<Driver> driver, std::unique_ptr<Compiler> compiler);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  Driver& driver() const { return *driver_; }
  const Facts& facts() const { return facts_; }
  // Throws ErrorKind::Device unless the status is 0: "CUDA could not copy to its memory: ...".
  void check(int code, const char* what) const;
  void* allocate(uint64_t bytes) const;

  // Reason why sources cannot be compiled; "": they can.
  std::string no_compiler() const { return compiler_->unavailable(); }
  // Returns the function `name` of a program, which is compiled once per source and cached on disk.
  Function function(const std::string& source, const char* name);

  // Captures of streams (see Recording). recording(): of a stream; null if it is not being captured.
  void begin_recording(void* stream);
  void end_recording(void* stream);
  Recording* recording(void* stream) const;

  // Opens cuBLASLt and creates its handle. Returns null with the reason in `why` if unavailable.
  const LtFunctions* lt(std::string& why);
  lt::Handle lt_handle() const { return lt_handle_; }

  // Likewise for cuDNN. Its handle may be used only with the lock held.
  const DnnFunctions* dnn(std::string& why);
  // Reason why cuDNN cannot be used; "": none is known. Does not create a handle, which takes memory.
  std::string no_dnn();
  dnn::Handle dnn_handle() const { return dnn_handle_; }
  std::unique_lock<std::mutex> lock_dnn() const { return std::unique_lock(dnn_mutex_); }

 private:
  void* program(const std::string& source);
  void open_dnn_once();

  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Compiler> compiler_;
  Facts facts_;
  std::mutex mutex_;
  std::map<std::string, void*> programs_;  // by source
  std::atomic<int> recordings_count_ = 0;
  mutable std::mutex recordings_mutex_;
  std::map<void*, std::unique_ptr<Recording>> recordings_;  // by stream
  bool lt_opened_ = false;
  const LtFunctions* lt_ = nullptr;
  lt::Handle lt_handle_ = nullptr;
  std::string no_lt_;
  mutable std::mutex dnn_mutex_;
  bool dnn_opened_ = false;
  const DnnFunctions* dnn_ = nullptr;
  dnn::Handle dnn_handle_ = nullptr;  // never destroyed: cuDNN may be unloaded first at process exit
  std::string no_dnn_;
};

}  // namespace harmonics::cuda
