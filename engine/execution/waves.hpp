// Waves: consecutive steps without memory conflicts run concurrently, so that threads synchronize once per wave.
// Results do not depend on waves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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
};

// One part of a phase of a step.
struct WaveJob {
  uint32_t step, phase, part;
};
// The jobs [first, first + count) of one phase of a wave. They run concurrently, or in order if the work is small.
struct WavePhase {
  uint32_t first = 0, count = 0;
  bool parallel = false;
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

// Groups steps into waves. `rest` is the first step after the forward pass; waves do not cross it.
Waves make_waves(const std::vector<StepShape>& steps, const std::vector<StepAccess>& access, size_t rest);

}  // namespace harmonics::engine
