// Waves: neighbouring steps of a plan that touch each other's memory nowhere run at the same time, so that several threads
// wait for one another once a wave. What a step computes does not depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace harmonics {

struct MemorySpan {
  const std::byte *begin = nullptr, *end = nullptr;
  bool written = false;
};

// What a step touches and about how long it takes.
struct StepAccess {
  std::vector<MemorySpan> spans;
  double nanoseconds = 0;
  bool alone = false;  // nothing else may run meanwhile
};

// A part of a phase of a step.
struct WaveJob {
  uint32_t step, phase, part;
};
// One phase of all steps of a wave: jobs [first, first + count), on several threads or, for little work, in order.
struct WavePhase {
  uint32_t first = 0, count = 0;
  bool parallel = false;
};
struct Waves {
  std::vector<WaveJob> jobs;
  std::vector<WavePhase> phases;
  size_t rest = 0;  // the first phase after the forward pass
};

// The shape of a step as waves see it.
struct StepShape {
  const void* context = nullptr;  // steps of one kernel never share a wave: a kernel may keep what it works on in its context
  uint32_t phases = 1;
  const uint32_t* parts = nullptr;
};

// `rest`: the first step after the forward pass; no wave crosses it.
Waves make_waves(const std::vector<StepShape>& steps, const std::vector<StepAccess>& access, size_t rest);

}  // namespace harmonics
