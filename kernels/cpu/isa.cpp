#include "isa.hpp"

#include "fetches.hpp"

#include <cstdlib>
#include <string>

#include <cpuid.h>
#include <harmonics/error.hpp>
#include <sys/syscall.h>
#include <unistd.h>

namespace harmonics::cpu {
namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

const IsaTable& choose() {
  const char* wanted = std::getenv("HARMONICS_ISA");
  if (!wanted || !*wanted) return has_avx512() ? avx512::table : has_avx2() ? avx2::table : baseline::table;
  const std::string name = wanted;
  if (name == "baseline") return baseline::table;
  if (name == "avx2" && has_avx2()) return avx2::table;
  if (name == "avx512" && has_avx512()) return avx512::table;
  if (name == "avx2" || name == "avx512")
    throw Error(ErrorKind::Device, "HARMONICS_ISA=" + name + " asks for instructions this processor lacks; unset it");
  throw Error(ErrorKind::Device, "HARMONICS_ISA=" + name + " is not known; use baseline, avx2 or avx512");
}

// Returns whether the variable has the value `yes` instead of `no`; without it, whether the processor is of AMD.
bool chooses(const std::string& variable, const std::string& yes, const std::string& no) {
  const char* const wanted = std::getenv(variable.c_str());
  const std::string value = wanted ? wanted : "";
  if (value.empty()) return __builtin_cpu_is("amd");
  if (value != yes && value != no)
    throw Error(ErrorKind::Device, variable + "=" + value + " is not known; use " + yes + " or " + no);
  return value == yes;
}

}  // namespace

const IsaTable& isa() {
  static const IsaTable& chosen = choose();
  return chosen;
}

bool prefers_one_stream() { return chooses("HARMONICS_FETCH", "processor", "program"); }
bool updates_between_products() { return chooses("HARMONICS_UPDATES", "between", "after"); }

bool has_tile_registers() {
  constexpr unsigned kTileRegisters = 1u << 24;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTileRegisters) &&
         ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace harmonics::cpu
