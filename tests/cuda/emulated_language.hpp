// CUDA's language on the CPU: blocks run one after another, their threads as fibers in turn. Detects synchronisation
// errors: barriers that not all threads reach, results that depend on the order of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/tensor/half.hpp"
#include "tests/cuda/e4m3.hpp"

namespace harmonics::cuda {

using namespace engine;  // Half, BFloat16

namespace emulated {

struct Three {
  uint32_t x = 0, y = 0, z = 0;
};
struct Place {
  Three thread, block, threads, blocks;
};
inline thread_local Place place;

// Waits for all threads of the block, or of the warp.
void meet_block();
void meet_warp();
// Returns per-thread memory of the block, to exchange values between threads.
void* slot(uint32_t thread);
// Replaces a thread's value by that of the thread whose index differs in the bits of `apart`.
inline void shuffle(void* value, size_t bytes, uint32_t apart) {
  std::memcpy(slot(place.thread.x), value, bytes);
  meet_warp();
  std::memcpy(value, slot(place.thread.x ^ apart), bytes);
  meet_warp();
}

// A launchable kernel: how to call it for one thread, and the sizes of its arguments.
struct Entry {
  void (*run)(void** arguments);
  uint32_t count;
  const size_t* sizes;
};
void run(const Entry& kernel, const Three& blocks, const Three& threads, void** arguments);

template <auto kernel>
struct Called;
template <typename... Arguments, void (*kernel)(Arguments...)>
struct Called<kernel> {
  template <size_t... i>
  static void call(void** arguments, std::index_sequence<i...>) {
    kernel(*static_cast<Arguments*>(arguments[i])...);
  }
  static void run(void** arguments) { call(arguments, std::index_sequence_for<Arguments...>()); }
  static constexpr size_t sizes[] = {sizeof(Arguments)...};
  static constexpr Entry entry{run, sizeof...(Arguments), sizes};
};

}  // namespace emulated
}  // namespace harmonics::cuda

#define HM_FUNCTION(...) \
  static_cast<::harmonics::cuda::Function>(&::harmonics::cuda::emulated::Called<&__VA_ARGS__>::entry)

#define __global__ static
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__
#define HM_UNROLL
#define HM_UNROLL_BY(n)
#define threadIdx (::harmonics::cuda::emulated::place.thread)
#define blockIdx (::harmonics::cuda::emulated::place.block)
#define blockDim (::harmonics::cuda::emulated::place.threads)
#define gridDim (::harmonics::cuda::emulated::place.blocks)

inline void __syncthreads() { ::harmonics::cuda::emulated::meet_block(); }
template <typename T>
T __shfl_xor_sync(uint32_t, T value, uint32_t apart) {
  ::harmonics::cuda::emulated::shuffle(&value, sizeof value, apart);
  return value;
}
inline int32_t __float_as_int(float f) {
  int32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}
inline float __int_as_float(int32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
