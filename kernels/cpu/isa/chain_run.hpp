// Runs chains of scalar operations: all steps for one piece of elements, then the next piece. Private to the including
// translation unit.
#pragma once

#include "../elementwise.hpp"

#include <cstring>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

template <typename T>
void fill_as(void* to, const void* value, int64_t n) {
  T v, *y = static_cast<T*>(to);
  std::memcpy(&v, value, sizeof v);
  for (int64_t i = 0; i < n; ++i) y[i] = v;
}
[[maybe_unused]] void fill(void* to, const void* value, int64_t width, int64_t n) {
  if (width == 4) return fill_as<uint32_t>(to, value, n);
  if (width == 1) return fill_as<uint8_t>(to, value, n);
  if (width == 8) return fill_as<uint64_t>(to, value, n);
  fill_as<uint16_t>(to, value, n);
}

[[maybe_unused]] void repeat(char* to, const char* from, int64_t width, int64_t period, int64_t n) {
  if (period == 1) return fill(to, from, width, n);
  const int64_t bytes = period * width, total = n * width;
  for (int64_t at = 0; at < total; at += bytes)
    std::memcpy(to + at, from, static_cast<size_t>(bytes < total - at ? bytes : total - at));
}

// Expands elements [start, start + n) of a broadcast buffer, by runs along the last axis, which has stride 0 or 1.
[[maybe_unused]] void stretch(const ChainRegister& r, const char* from, int64_t start, int64_t n, char* to) {
  int64_t index[HX_MAX_RANK], offset = 0;
  int64_t rest = start;
  for (uint32_t i = r.rank; i-- > 0; rest /= r.dims[i]) {
    index[i] = rest % r.dims[i];
    offset += index[i] * r.strides[i];
  }
  const uint32_t last = r.rank - 1;
  while (n > 0) {
    const int64_t left = r.dims[last] - index[last], run = left < n ? left : n;
    if (r.strides[last])
      std::memcpy(to, from + offset * r.width, static_cast<size_t>(run * r.width));
    else
      fill(to, from + offset * r.width, r.width, run);
    to += run * r.width;
    n -= run;
    offset -= index[last] * r.strides[last];
    index[last] = 0;
    for (uint32_t i = last; i-- > 0;) {
      offset += r.strides[i];
      if (++index[i] < r.dims[i]) break;
      offset -= r.dims[i] * r.strides[i];
      index[i] = 0;
    }
  }
}

// The state of a running chain: the addresses of its registers.
class ChainRun {
 public:
  ChainRun(const ChainContext& c, void* const* buffers) : c_(c), buffers_(buffers) {
    const int64_t longest = c.count < c.block ? c.count : c.block;
    for (uint32_t i = 0; i < c.n_registers; ++i) {
      const ChainRegister& r = c.registers[i];
      at_[i] = scratch_ + r.offset;
      if (r.place == Place::repeated)
        repeat(at_[i], static_cast<const char*>(buffers[r.buffer]), r.width, r.period, longest);
      if (r.place == Place::constant) fill(at_[i], &r.bits, r.width, longest);
    }
  }
  ChainRun(const ChainRun&) = delete;
  ChainRun& operator=(const ChainRun&) = delete;

  // Computes elements [start, start + n), n <= block.
  HM_INLINE void piece(int64_t start, int64_t n) {
    for (uint32_t i = 0; i < c_.n_registers; ++i) {
      const ChainRegister& r = c_.registers[i];
      if (r.place == Place::input || r.place == Place::output)
        at_[i] = static_cast<char*>(buffers_[r.buffer]) + start * r.width;
      if (r.place == Place::stretched) stretch(r, static_cast<const char*>(buffers_[r.buffer]), start, n, at_[i]);
    }
    for (uint32_t s = 0; s < c_.n_steps; ++s) {
      const ChainStep& step = c_.steps[s];
      step.block(at_[step.a], at_[step.b], at_[step.c], at_[step.result], n);
    }
  }
  // Returns the elements of a register for the last piece.
  const char* at(uint32_t i) const { return at_[i]; }

 private:
  const ChainContext& c_;
  void* const* buffers_;
  char* at_[kMaxRegisters];
  alignas(64) char scratch_[kScratchBytes];
};

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
