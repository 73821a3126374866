#include "engine/conformance/kernel_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/execution/device_memory.hpp"

namespace harmonics::engine {

namespace {

constexpr unsigned char kGuardByte = 0xA5, kRubbish = 0xFF;  // 0xFF: NaN in floats

}  // namespace

GuardedBytes::GuardedBytes(size_t size, unsigned char fill) : size_(size), memory_(size + 2 * kGuard + 64, kGuardByte) {
  const auto at = reinterpret_cast<uintptr_t>(memory_.data() + kGuard);
  start_ = memory_.data() + kGuard + (64 - at % 64) % 64;
  std::fill_n(start_, size, fill);
}

bool GuardedBytes::intact() const {
  const auto untouched = [](unsigned char byte) { return byte == kGuardByte; };
  const unsigned char* const begin = memory_.data();
  return std::all_of(begin, data(), untouched) && std::all_of(data() + size_, begin + memory_.size(), untouched);
}

namespace {

// The guarded buffers of one run.
class Buffers {
 public:
  // `replaced` has for each result the input whose memory it shares; -1 or absent: separate memory.
  Buffers(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<TensorType>& results,
          unsigned char fill, const std::vector<int64_t>& replaced = {})
      : inputs_(inputs), results_(results), replaced_(replaced), fill_(fill) {
    for (const HTensor& x : inputs)
      std::memcpy(add(fmt::format("input {}", memory_.size() + 1), type_of(x).bytes(), 0), x.bytes(),
                  type_of(x).bytes());
    for (size_t i = 0; i < results.size(); ++i)
      if (i < replaced.size() && replaced[i] >= 0)
        pointers_.push_back(pointers_[static_cast<size_t>(replaced[i])]);
      else
        add(fmt::format("result {}", i + 1), results[i].bytes(), fill);
    add("its workspace", kernel.workspace, fill);
  }
  void run(const hx_kernel& kernel, uint32_t phase, uint32_t part) {
    try {
      kernel.run(kernel.context, pointers_.data(), phase, part);
    } catch (const std::exception& e) {
      throw Error(ErrorKind::Plugin, fmt::format("throws '{}'", e.what()));
    } catch (...) {
      throw Error(ErrorKind::Plugin, "throws something that is not a std::exception");
    }
  }
  // Runs all phases, with the parts of each in reverse order if `backwards`; or enqueues a queued kernel once.
  void run_all(const hx_kernel& kernel, const ItemPtr& device, bool backwards = false) {
    if (kernel.enqueue) return run_queued(kernel, device);
    for (uint32_t phase = 0; phase < kernel.phases; ++phase)
      for (uint32_t part = 0; part < kernel.parts[phase]; ++part)
        run(kernel, phase, backwards ? kernel.parts[phase] - 1 - part : part);
  }
  // Calls enqueue_if_finite with `number`, or enqueue if it is null.
  void run_queued(const hx_kernel& kernel, const ItemPtr& device, const float* number = nullptr) {
    const auto queue = std::make_shared<DeviceQueue>(device);
    std::vector<std::unique_ptr<DeviceBuffer>> there;
    for (GuardedBytes& m : memory_) {
      there.push_back(std::make_unique<DeviceBuffer>(queue, m.whole_size()));
      queue->upload(there.back()->at(0), m.whole(), m.whole_size());
    }
    std::vector<hx_place> places;
    for (const void* p : pointers_)
      for (size_t i = 0; i < memory_.size(); ++i)
        if (memory_[i].data() == p) places.push_back(there[i]->at(GuardedBytes::kGuard));
    const DeviceBuffer looked(queue, sizeof *number);
    const hx_place at = looked.at(0);
    if (number) queue->upload(at, number, sizeof *number);
    queue->check(number ? kernel.enqueue_if_finite(kernel.context, queue->raw(), places.data(), &at)
                        : kernel.enqueue(kernel.context, queue->raw(), places.data()),
                 "queue its kernel");
    for (size_t i = 0; i < memory_.size(); ++i)
      queue->download(memory_[i].whole(), there[i]->at(0), memory_[i].whole_size());
    queue->synchronize();
  }
  const void* result(size_t i) const { return pointers_[inputs_.size() + i]; }
  bool same_result(size_t i, const void* other) const {
    return std::memcmp(result(i), other, results_[i].bytes()) == 0;
  }
  // Describes a write outside of the kernel's outputs; "" if there was none.
  std::string wrong() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool input = i < inputs_.size();
      if (!memory_[i].intact()) return "writes outside " + names_[i];
      const bool given_up = std::find(replaced_.begin(), replaced_.end(), static_cast<int64_t>(i)) != replaced_.end();
      if (input && !given_up && std::memcmp(memory_[i].data(), inputs_[i].bytes(), memory_[i].size()) != 0)
        return "writes into " + names_[i];
    }
    return "";
  }
  // Describes a write to inputs or results; "" if there was none. The workspace, the last buffer, may change.
  std::string changed() const {
    for (size_t i = 0; i + 1 < memory_.size(); ++i) {
      const unsigned char* data = memory_[i].data();
      const bool same = i < inputs_.size()
                            ? std::memcmp(data, inputs_[i].bytes(), memory_[i].size()) == 0
                            : std::all_of(data, data + memory_[i].size(), [&](unsigned char c) { return c == fill_; });
      if (!same || !memory_[i].intact()) return "writes into " + names_[i];
    }
    return "";
  }

 private:
  unsigned char* add(std::string name, size_t bytes, unsigned char fill) {
    names_.push_back(std::move(name));
    memory_.emplace_back(bytes, fill);
    pointers_.push_back(memory_.back().data());
    return memory_.back().data();
  }

  const std::vector<HTensor>& inputs_;
  const std::vector<TensorType> results_;
  const std::vector<int64_t> replaced_;
  const unsigned char fill_;
  std::deque<GuardedBytes> memory_;
  std::vector<std::string> names_;  // of the buffers
  std::vector<void*> pointers_;
};

// Describes an invalid write of a run, or a difference of its results from `expected`; "" if there is none.
std::string against(const Buffers& run, const std::vector<HTensor>& expected, const char* when) {
  if (const std::string text = run.wrong(); !text.empty()) return fmt::format("{} {}", text, when);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!run.same_result(i, expected[i].bytes()))
      return fmt::format("gives other numbers as result {} {}", i + 1, when);
  return "";
}

}  // namespace

std::string out_of_proportion(const hx_kernel& kernel) {
  constexpr uint64_t kMostParts = 1 << 20, kMostWorkspace = 1 << 30;
  uint64_t parts = 0;
  for (uint32_t phase = 0; phase < kernel.phases; ++phase) parts += kernel.parts[phase];
  if (parts > kMostParts) return fmt::format("has {}", quantity(parts, "part"));
  if (kernel.workspace > kMostWorkspace) return fmt::format("requests a workspace of {} bytes", kernel.workspace);
  return "";
}

std::string run_guarded(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                        const std::vector<TensorType>& results, std::vector<HTensor>* given, const ItemPtr& device) {
  if (const std::string text = out_of_proportion(kernel); !text.empty()) return text;
  Buffers forth(kernel, inputs, results, 0), back(kernel, inputs, results, kRubbish);
  forth.run_all(kernel, device);
  back.run_all(kernel, device, true);
  for (const Buffers* b : {&forth, &back})
    if (const std::string text = b->wrong(); !text.empty()) return text;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!forth.same_result(i, back.result(i)))
      return fmt::format(
          "gives other numbers as result {} when its parts run from the last to the first in memory that is not zero",
          i + 1);
    if (given) given->push_back(HTensor(results[i].dtype, results[i].shape, forth.result(i)));
  }
  return "";
}

std::string run_replacing(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                          const std::vector<HTensor>& expected, const std::vector<int64_t>& replaced,
                          const ItemPtr& device) {
  Buffers run(kernel, inputs, types_of(expected), kRubbish, replaced);
  run.run_all(kernel, device);
  return against(run, expected, "when it is written over the input it may replace");
}

std::string run_looking(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                        const std::vector<HTensor>& expected, const std::vector<int64_t>& replaced, float number,
                        const ItemPtr& device) {
  Buffers run(kernel, inputs, types_of(expected), kRubbish, replaced);
  run.run_queued(kernel, device, &number);
  const std::string when = fmt::format("when the number it checks is {}", number);
  if (std::isfinite(number)) return against(run, expected, when.c_str());
  const std::string text = run.changed();
  return text.empty() ? "" : text + " " + when;
}

std::string run_on_threads(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                           const std::vector<HTensor>& expected, int threads, const ItemPtr& device) {
  Buffers run(kernel, inputs, types_of(expected), kRubbish);
  if (kernel.enqueue) {
    run.run_queued(kernel, device);
    return against(run, expected, "than before");
  }
  std::mutex mutex;
  std::string first;
  for (uint32_t phase = 0; phase < kernel.phases; ++phase) {
    std::atomic<uint32_t> next{0};
    const auto work = [&] {
      try {
        for (uint32_t part; (part = next.fetch_add(1)) < kernel.parts[phase];) run.run(kernel, phase, part);
      } catch (const Error& e) {
        const std::lock_guard lock(mutex);
        first = e.what();
      }
    };
    std::vector<std::thread> team;
    for (int t = 1; t < threads; ++t) team.emplace_back(work);
    work();
    for (std::thread& t : team) t.join();
  }
  return first.empty()
             ? against(run, expected, threads > 1 ? "when its parts run on several threads at once" : "than before")
             : first;
}

}  // namespace harmonics::engine
