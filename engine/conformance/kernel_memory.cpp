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
  return std::all_of(begin, data(), untouched) &&
         std::all_of(data() + size_, begin + memory_.size(), untouched);
}

namespace {

// The buffers of one run.
class Buffers {
 public:
  Buffers(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<TensorType>& results, unsigned char fill)
      : inputs_(inputs) {
    for (const HTensor& x : inputs) std::memcpy(add(type_of(x).bytes(), 0), x.bytes(), type_of(x).bytes());
    for (const TensorType& type : results) add(type.bytes(), fill);
    add(kernel.workspace, fill);
  }
  void* const* data() const { return pointers_.data(); }
  bool same(size_t buffer, const Buffers& other) const {
    const GuardedBytes &a = memory_[buffer], &b = other.memory_[buffer];
    return std::memcmp(a.data(), b.data(), a.size()) == 0;
  }
  // What was written that is not the kernel's.
  std::string wrong() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool input = i < inputs_.size();
      const std::string what = input                    ? fmt::format("input {}", i + 1)
                               : i + 1 < memory_.size() ? fmt::format("result {}", i + 1 - inputs_.size())
                                                        : "its workspace";
      if (!memory_[i].intact()) return "writes outside " + what;
      if (input && std::memcmp(memory_[i].data(), inputs_[i].bytes(), memory_[i].size()) != 0) return "writes into " + what;
    }
    return "";
  }

 private:
  unsigned char* add(size_t bytes, unsigned char fill) {
    memory_.emplace_back(bytes, fill);
    pointers_.push_back(memory_.back().data());
    return memory_.back().data();
  }

  const std::vector<HTensor>& inputs_;
  std::deque<GuardedBytes> memory_;
  std::vector<void*> pointers_;
};

}  // namespace

std::string run_guarded(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<TensorType>& results) {
  Buffers forth(kernel, inputs, results, 0), back(kernel, inputs, results, kRubbish);
  for (uint32_t phase = 0; phase < kernel.phases; ++phase) {
    for (uint32_t part = 0; part < kernel.parts[phase]; ++part) kernel.run(kernel.context, forth.data(), phase, part);
    for (uint32_t part = kernel.parts[phase]; part-- > 0;) kernel.run(kernel.context, back.data(), phase, part);
  }
  for (const Buffers* b : {&forth, &back})
    if (const std::string text = b->wrong(); !text.empty()) return text;
  for (size_t i = 0; i < results.size(); ++i)
    if (!forth.same(inputs.size() + i, back))
      return fmt::format("gives other numbers as result {} when its parts run from the last to the first in memory that is not zero", i + 1);
  return "";
}

}  // namespace harmonics
