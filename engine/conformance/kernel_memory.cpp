#include "engine/conformance/kernel_memory.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

#include <fmt/core.h>

namespace harmonics {

namespace {

constexpr unsigned char kGuardByte = 0xA5, kRubbish = 0xFF;  // of floats: not a number

}  // namespace

GuardedBytes::GuardedBytes(size_t size, unsigned char fill) : size_(size), memory_(size + 2 * kGuard + 64, kGuardByte) {
  const auto at = reinterpret_cast<uintptr_t>(memory_.data() + kGuard);
  start_ = memory_.data() + kGuard + (64 - at % 64) % 64;
  std::fill_n(start_, size, fill);
}

bool GuardedBytes::intact() const {
  const auto untouched = [](unsigned char byte) { return byte == kGuardByte; };
  const unsigned char* const begin = memory_.data();
  return std::all_of(begin, static_cast<const unsigned char*>(start_), untouched) &&
         std::all_of(static_cast<const unsigned char*>(start_) + size_, begin + memory_.size(), untouched);
}

std::string run_guarded(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<HTensor>& expected) {
  std::deque<GuardedBytes> memory;
  std::vector<void*> buffers;
  const auto add = [&](size_t bytes, unsigned char fill) -> GuardedBytes& {
    GuardedBytes& added = memory.emplace_back(bytes, fill);
    buffers.push_back(added.data());
    return added;
  };
  for (const HTensor& x : inputs) std::memcpy(add(type_of(x).bytes(), 0).data(), x.bytes(), type_of(x).bytes());
  for (const HTensor& y : expected) add(type_of(y).bytes(), kRubbish);
  add(kernel.workspace, kRubbish);
  for (uint32_t phase = 0; phase < kernel.phases; ++phase)
    for (uint32_t part = kernel.parts[phase]; part-- > 0;) kernel.run(kernel.context, buffers.data(), phase, part);
  for (size_t i = 0; i < memory.size(); ++i) {
    const bool input = i < inputs.size(), workspace = i + 1 == memory.size();
    const std::string what = input       ? fmt::format("input {}", i + 1)
                             : workspace ? "its workspace"
                                         : fmt::format("result {}", i + 1 - inputs.size());
    if (!memory[i].intact()) return "writes outside " + what;
    if (input && std::memcmp(memory[i].data(), inputs[i].bytes(), memory[i].size()) != 0) return "writes into " + what;
    if (!input && !workspace && std::memcmp(memory[i].data(), expected[i - inputs.size()].bytes(), memory[i].size()) != 0)
      return fmt::format("gives other numbers as {} when its parts run from the last to the first in memory that is not zero", what);
  }
  return "";
}

}  // namespace harmonics
