// Compiler: NVRTC.
#include <algorithm>
#include <mutex>
#include <vector>

#include <harmonics/error.hpp>

#include "driver.hpp"
#include "library.hpp"

namespace harmonics::cuda {
namespace {

using Program = void*;

struct Functions {
  int (*version)(int*, int*);
  int (*architectures)(int*);
  int (*list_architectures)(int*);
  const char* (*text)(int);
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int, const char* const*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*image_size)(Program, size_t*);
  int (*image)(Program, char*);
  int (*ptx_size)(Program, size_t*);
  int (*ptx)(Program, char*);
};

class Nvrtc final : public Compiler {
 public:
  std::string unavailable() override {
    open();
    return why_;
  }
  std::string version() override {
    open();
    int major = 0, minor = 0;
    if (why_.empty()) f_.version(&major, &minor);
    return std::to_string(major) + "." + std::to_string(minor);
  }
  std::string target(const Facts& facts) override {
    open();
    return architecture(facts).second;
  }

  std::string compile(const std::string& source, const Facts& facts) override {
    open();
    if (!why_.empty()) throw Error(ErrorKind::Device, why_);
    Program program = nullptr;
    check(f_.create(&program, source.c_str(), "chain.cu", 0, nullptr, nullptr), "take a program");
    const auto [machine_code, target] = architecture(facts);
    const std::string option = "--gpu-architecture=" + target;
    // Without contraction to FMA, fused chains have the results of the single operations.
    const char* options[] = {option.c_str(), "--std=c++17", "--fmad=false", "-default-device"};
    const int code = f_.compile(program, 4, options);
    std::string result;
    if (code == 0) {
      size_t size = 0;
      check(machine_code ? f_.image_size(program, &size) : f_.ptx_size(program, &size), "give a program");
      result.resize(size);
      check(machine_code ? f_.image(program, result.data()) : f_.ptx(program, result.data()), "give a program");
    } else {
      result = log_of(program);
    }
    f_.destroy(&program);
    if (code != 0)
      throw Error(ErrorKind::Device,
                  "NVRTC cannot compile a generated program (" + std::string(f_.text(code)) + "): " + result);
    return result;
  }

 private:
  void open() {
    std::call_once(opened_, [this] { find_all(); });
  }
  void find_all() {
    const Library library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, why_);
    if (!library.is_open()) return;
    library.find(f_.version, "nvrtcVersion", why_) &&
        library.find(f_.architectures, "nvrtcGetNumSupportedArchs", why_) &&
        library.find(f_.list_architectures, "nvrtcGetSupportedArchs", why_) &&
        library.find(f_.text, "nvrtcGetErrorString", why_) && library.find(f_.create, "nvrtcCreateProgram", why_) &&
        library.find(f_.destroy, "nvrtcDestroyProgram", why_) &&
        library.find(f_.compile, "nvrtcCompileProgram", why_) &&
        library.find(f_.log_size, "nvrtcGetProgramLogSize", why_) && library.find(f_.log, "nvrtcGetProgramLog", why_) &&
        library.find(f_.image_size, "nvrtcGetCUBINSize", why_) && library.find(f_.image, "nvrtcGetCUBIN", why_) &&
        library.find(f_.ptx_size, "nvrtcGetPTXSize", why_) && library.find(f_.ptx, "nvrtcGetPTX", why_);
  }

  // Selects machine code of the GPU if NVRTC supports it, else PTX of the newest supported architecture, which the
  // driver compiles.
  std::pair<bool, std::string> architecture(const Facts& facts) {
    const int wanted = facts.major * 10 + facts.minor;
    if (!why_.empty()) return {false, "compute_" + std::to_string(wanted)};
    int n = 0;
    f_.architectures(&n);
    std::vector<int> known(static_cast<size_t>(n));
    if (n > 0) f_.list_architectures(known.data());
    int newest = 0;
    for (const int a : known) {
      if (a == wanted) return {true, "sm_" + std::to_string(a)};
      if (a < wanted) newest = std::max(newest, a);
    }
    return {false, "compute_" + std::to_string(newest ? newest : wanted)};
  }

  void check(int code, const char* what) {
    if (code != 0) throw Error(ErrorKind::Device, std::string("NVRTC could not ") + what + ": " + f_.text(code));
  }
  std::string log_of(Program program) {
    size_t size = 0;
    f_.log_size(program, &size);
    std::string log(size, '\0');
    if (size) f_.log(program, log.data());
    return log.c_str();
  }

  std::once_flag opened_;
  std::string why_;
  Functions f_{};
};

}  // namespace

std::unique_ptr<Compiler> open_nvrtc() { return std::make_unique<Nvrtc>(); }

}  // namespace harmonics::cuda
