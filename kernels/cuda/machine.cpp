#include "machine.hpp"

#include <optional>

#include <harmonics/error.hpp>

#include "kernels/shared/program_files.hpp"

namespace harmonics::cuda {

Machine::Machine(std::unique_ptr<Driver> driver, std::unique_ptr<Compiler> compiler)
    : driver_(std::move(driver)), compiler_(std::move(compiler)), facts_(driver_->facts()) {
  if (!facts_.unavailable.empty()) throw Error(ErrorKind::Device, facts_.unavailable);
}

// Ignores errors of the driver, which may be unloaded before this at process exit.
Machine::~Machine() {
  if (lt_handle_) lt_->destroy(lt_handle_);
  for (const auto& [source, program] : programs_) driver_->unload(program);
}

void Machine::check(int code, const char* what) const {
  if (code != 0) throw Error(ErrorKind::Device, std::string("CUDA could not ") + what + ": " + driver_->text(code));
}

void* Machine::allocate(uint64_t bytes) const {
  void* memory = nullptr;
  const int code = driver_->allocate(bytes, &memory);
  if (code != 0 && driver_->is_out_of_memory(code))
    throw Error(ErrorKind::Device, "its memory is full: " + std::to_string(bytes) + " bytes are wanted, " +
                                       std::to_string(driver_->free_memory()) + " of " + std::to_string(facts_.memory) +
                                       " are free; take a smaller batch, or end what else runs there");
  check(code, "give memory");
  return memory;
}

void* Machine::program(const std::string& source) {
  if (const auto known = programs_.find(source); known != programs_.end()) return known->second;
  const kernels::ProgramFile file("cuda", {compiler_->version(), compiler_->target(facts_), source});
  void* made = nullptr;
  // Rebuilds a cached program that the driver rejects.
  if (const std::optional<std::string> kept = file.read(); kept && driver_->load(*kept, &made) != 0) made = nullptr;
  if (!made) {
    const std::string image = compiler_->compile(source, facts_);
    check(driver_->load(image, &made), "load a program");
    file.write(image);
  }
  return programs_[source] = made;
}

Function Machine::function(const std::string& source, const char* name) {
  const std::lock_guard lock(mutex_);
  Function found = nullptr;
  check(driver_->function(program(source), name, &found), "find a kernel in a program");
  return found;
}

void Machine::begin_recording(void* stream) {
  const std::lock_guard lock(recordings_mutex_);
  recordings_[stream] = std::make_unique<Recording>(*driver_, stream);
  recordings_count_ = static_cast<int>(recordings_.size());
}
void Machine::end_recording(void* stream) {
  const std::lock_guard lock(recordings_mutex_);
  recordings_.erase(stream);
  recordings_count_ = static_cast<int>(recordings_.size());
}
Recording* Machine::recording(void* stream) const {
  if (recordings_count_ == 0) return nullptr;
  const std::lock_guard lock(recordings_mutex_);
  const auto at = recordings_.find(stream);
  return at == recordings_.end() ? nullptr : at->second.get();
}

const LtFunctions* Machine::lt(std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!lt_opened_) {
    lt_opened_ = true;
    lt_ = open_lt(no_lt_);
    if (lt_) {
      check(driver_->become_current(), "become the device of a thread");
      if (const int code = lt_->create(&lt_handle_); code != 0) {
        no_lt_ = std::string("cuBLASLt does not start: ") + lt_->status_text(code);
        lt_ = nullptr;
      }
    }
  }
  why = no_lt_;
  return lt_;
}

void Machine::open_dnn_once() {
  if (!dnn_opened_) dnn_ = open_dnn(no_dnn_);
  dnn_opened_ = true;
}

std::string Machine::no_dnn() {
  const std::lock_guard lock(dnn_mutex_);
  open_dnn_once();
  return no_dnn_;
}

const DnnFunctions* Machine::dnn(std::string& why) {
  const std::lock_guard lock(dnn_mutex_);
  open_dnn_once();
  if (dnn_ && !dnn_handle_) {
    check(driver_->become_current(), "become the device of a thread");
    if (const int code = dnn_->create(&dnn_handle_); code != 0) {
      no_dnn_ = std::string("cuDNN does not start: ") + dnn_->status_text(code);
      dnn_ = nullptr;
    }
  }
  why = no_dnn_;
  return dnn_;
}

}  // namespace harmonics::cuda
