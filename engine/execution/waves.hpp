// Waves: consecutive steps without memory conflicts run concurrently, so that threads synchronize once per wave.
// Results do not depend on waves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/execution/executable.hpp"

namespace harmonics::engine {

struct MemorySpan {
  const std::byte *begin = nullptr, *end = nullptr;
  bool written = false;
};

// The memory that a step accesses, and its estimated time.
struct StepAccess {
  std::vector<MemorySpan> spans;
  double nanoseconds = 0;
  bool alone = false;  // must not run concurrently with another step
  bool turns = false;  // see turned_part()
};

// One part of a phase of a step.
struct WaveJob {
  uint32_t step, phase, part;
};
// The jobs [first, first + count) of one phase of a wave. They run concurrently, or in order if the work is small.
struct WavePhase {
  uint32_t first = 0, count = 0;
  bool parallel = false;
  bool turns = false;  // one of its steps does
};
struct Waves {
  std::vector<WaveJob> jobs;
  std::vector<WavePhase> phases;
  size_t rest = 0;  // first phase after the forward pass
};

// Phases and parts of a step.
struct StepShape {
  // steps with the same kernel context never share a wave, because the kernel may use it as scratch memory
  const void* context = nullptr;
  uint32_t phases = 1;
  const uint32_t* parts = nullptr;
};

// Updates of parameters run their parts in reverse order in every other run: a thread starts with the memory that it
// used last, which is still in its cache. Returns the part that then takes the place of `part`.
inline uint32_t turned_part(uint32_t parts, uint32_t threads, uint32_t part) {
  const auto thread = static_cast<uint32_t>(uint64_t{part} * threads / parts);
  return first_part(parts, threads, thread) + first_part(parts, threads, thread + 1) - 1 - part;
}

// Groups steps into waves. `rest` is the first step after the forward pass; waves do not cross it.
Waves make_waves(const std::vector<StepShape>& steps, const std::vector<StepAccess>& access, size_t rest);

}  // namespace harmonics::engine
