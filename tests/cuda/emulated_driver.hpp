// Emulation of kernels/cuda/driver.hpp on the CPU. Queued work runs when its stream is synchronized or another one
// waits for it, as late as the order allows. Every function can be made to fail.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/driver.hpp"

namespace harmonics::cuda::emulated {

using Stream = std::deque<std::function<void()>>;

// Settings and counters for tests.
struct Settings {
  std::string unavailable;
  std::map<std::string, int> fails;  // status that a driver function returns
  uint64_t memory = uint64_t{1} << 32;
  int units = 1;  // multiprocessors; cuBLASLt's tiles always fill one
  bool has_lt = true;
  bool has_dnn = true;
  bool dnn_knows = true;  // offers an engine in plain f32
  bool dnn_starts = true;
  bool has_compiler = true;
  bool hurries = false;  // streams opened from now on, except the first, run work immediately
  // Counters since the last reset.
  int allocations = 0, launches = 0, compiled = 0, graphs = 0, products = 0, waits = 0, awaited = 0;
  uint32_t last_epilogue = 0;
  int last_compute = 0, last_type = 0;
  size_t dnn_version = 92800;
  // existing objects of these kinds
  int convolutions = 0, attentions = 0, last_engine = -1, dnn_handles = 0, dnn_descriptions = 0;
};
Settings& settings();
// Appends a job to a stream of the emulated driver.
void put(void* stream, std::function<void()> job);

constexpr int kOutOfMemory = 2, kInvalidHandle = 400, kNotReady = 600, kLaunchFailure = 719;

}  // namespace harmonics::cuda::emulated
