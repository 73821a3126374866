// The accelerator: what it is, what its driver says when something fails, and the programs built for it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "code/kernels.hpp"
#include "dnn.hpp"
#include "driver.hpp"
#include "lt.hpp"

namespace harmonics::cuda {

class Machine {
 public:
  // Throws ErrorKind::Device with the reason when there is none.
  Machine(std::unique_ptr<Driver> driver, std::unique_ptr<Compiler> compiler);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  Driver& driver() const { return *driver_; }
  const Facts& facts() const { return facts_; }
  // Throws ErrorKind::Device unless the code is 0: "CUDA could not copy to its memory: ...".
  void check(int code, const char* what) const;
  void* allocate(uint64_t bytes) const;

  // Why no programs can be made of text; "": they can.
  std::string no_compiler() const { return compiler_->unavailable(); }
  // The function `name` of a program of text, built once for each text and kept on the disk.
  Function function(const std::string& source, const char* name);

  // cuBLASLt and a handle of it; null with the reason in `why` when it cannot be had.
  const LtFunctions* lt(std::string& why);
  lt::Handle lt_handle() const { return lt_handle_; }

  // cuDNN likewise. Its handle belongs to who holds the lock.
  const DnnFunctions* dnn(std::string& why);
  // Why convolutions cannot be its; "": they can, as far as the library says without a handle, which costs memory.
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
  bool lt_opened_ = false;
  const LtFunctions* lt_ = nullptr;
  lt::Handle lt_handle_ = nullptr;
  std::string no_lt_;
  mutable std::mutex dnn_mutex_;
  bool dnn_opened_ = false;
  const DnnFunctions* dnn_ = nullptr;
  dnn::Handle dnn_handle_ = nullptr;  // never given back: cuDNN may be unloaded before us at the end of the process
  std::string no_dnn_;
};

}  // namespace harmonics::cuda
