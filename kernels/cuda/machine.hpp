// The accelerator: what it is, what its driver says when something fails, and the programs built for it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "code/kernels.hpp"
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

 private:
  void* program(const std::string& source);

  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Compiler> compiler_;
  Facts facts_;
  std::mutex mutex_;
  std::map<std::string, void*> programs_;  // by source
  bool lt_opened_ = false;
  const LtFunctions* lt_ = nullptr;
  lt::Handle lt_handle_ = nullptr;
  std::string no_lt_;
};

}  // namespace harmonics::cuda
