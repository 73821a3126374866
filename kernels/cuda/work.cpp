#include "work.hpp"

#include <bit>
#include <cmath>
#include <stdexcept>

namespace harmonics::cuda {

bool element_bits(uint32_t dtype, double value, uint64_t& bits) {
  bits = 0;
  switch (dtype) {
    case HX_F32:
      return bits = std::bit_cast<uint32_t>(static_cast<float>(value)), true;
    case HX_F64:
      return bits = std::bit_cast<uint64_t>(value), true;
    case HX_BOOL:
      return bits = value != 0, true;
    case HX_F16:
    case HX_BF16:  // only 0 and 1: other numbers would need rounding
      if (value == 1) bits = dtype == HX_F16 ? 0x3c00 : 0x3f80;
      return value == 1 || (value == 0 && !std::signbit(value));
    case HX_U64:
      if (!(value >= 0 && value < 9e18)) return false;
      return bits = static_cast<uint64_t>(value), true;
    default: {
      if (!(value > -9e18 && value < 9e18)) return false;
      bits = static_cast<uint64_t>(static_cast<int64_t>(value));
      if (const uint32_t n = 8 * width(dtype); n < 64) bits &= (uint64_t{1} << n) - 1;
      return true;
    }
  }
}

void CopyStep::enqueue(Machine& machine, void* stream, const hx_place* places) const {
  void *to = to_.at(places), *from = from_.at(places);
  if (to != from) machine.check(machine.driver().copy(to, from, bytes_, stream), "copy within its memory");
}

LaunchStep::LaunchStep(Function function, const Grid& grid, std::vector<Operand> buffers, const void* parameters,
                       size_t bytes)
    : function_(function),
      grid_(grid),
      buffers_(std::move(buffers)),
      parameters_((bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t)) {
  if (!function_ || buffers_.size() > kMostBuffers)
    throw Error(ErrorKind::Internal, "a kernel without function, or with too many buffers");
  std::memcpy(parameters_.data(), parameters, bytes);
}

void LaunchStep::enqueue_looking(Machine& machine, void* stream, const hx_place* places, const char* number) const {
  const void* buffers[kMostBuffers];
  void* arguments[kMostBuffers + 1];
  for (size_t i = 0; i < buffers_.size(); ++i) {
    buffers[i] = buffers_[i].buffer == kLooked ? number : buffers_[i].at(places);
    arguments[i] = &buffers[i];
  }
  arguments[buffers_.size()] = const_cast<std::max_align_t*>(parameters_.data());
  machine.check(machine.driver().launch(function_, grid_, arguments, stream), "start a kernel");
}

Work& Work::copy(Operand to, Operand from, uint64_t bytes) { return add(std::make_unique<CopyStep>(to, from, bytes)); }
Work& Work::add(std::unique_ptr<Step> step) {
  steps_.push_back(std::move(step));
  return *this;
}
Operand Work::take_workspace(const Site& site, uint64_t bytes) {
  const uint64_t at = workspace_;
  workspace_ += (bytes + 255) / 256 * 256;
  return {site.workspace(), at};
}

void Work::set_memory(const Site& site, uint64_t workspace) {
  memory_.clear();
  for (uint32_t i = 0; i < site.workspace(); ++i) {
    const hx_type& type = site.buffer(i);
    memory_.push_back({run_bytes(static_cast<DType>(type.dtype), count(type)), i >= site.inputs()});
  }
  memory_.push_back({workspace, true});
}

void Work::enqueue(hx_queue* queue, const hx_place* places, const hx_place* number) const {
  Recording* const recording = machine_.recording(queue);
  if (recording) {
    std::vector<Extent> extents;
    for (size_t i = 0; i < memory_.size(); ++i) {
      const auto begin = reinterpret_cast<uint64_t>(address(places[i]));
      if (memory_[i].bytes) extents.push_back({begin, begin + memory_[i].bytes, memory_[i].writes});
    }
    if (number) {
      const auto begin = reinterpret_cast<uint64_t>(address(*number));
      extents.push_back({begin, begin + sizeof(float), false});
    }
    machine_.check(recording->begin(extents), "record an operation");
  }
  for (const auto& step : steps_) step->enqueue_looking(machine_, queue, places, number ? address(*number) : nullptr);
  if (recording) machine_.check(recording->end(), "record an operation");
}

hx_kernel& answer(hx_kernel& out, Work work, const char* name) {
  const uint64_t workspace = work.workspace();
  const bool looks = work.looks();
  kernels::answer(out, std::move(work), looks, name).workspace = workspace;
  return out;
}

}  // namespace harmonics::cuda
