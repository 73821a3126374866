#include "engine/execution/device_plan.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include <fmt/core.h>

#include "engine/execution/input_prefetch.hpp"

namespace harmonics::engine {

namespace {

struct PartsOfPhase {
  const HostedStep* step;
  uint32_t phase;
};

void run_part(const void* context, uint32_t part) {
  const auto& at = *static_cast<const PartsOfPhase*>(context);
  at.step->run(at.step->context, at.step->buffers.data(), at.phase, part);
}

uint64_t now() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}
uint64_t nanoseconds(double seconds) { return static_cast<uint64_t>(std::llround(seconds * 1e9)); }

constexpr int kNothings = 20;
constexpr size_t kMostBindings = 8;  // number of bindings that keep their recordings

}  // namespace

DevicePlan::DevicePlan(DevicePlanParts parts, Executor& executor)
    : PlanOf(std::move(parts)), executor_(executor), homes_(p_.used) {
  bindings_.push_back(std::make_unique<Binding>());
  bound_ = bindings_.back().get();
  bound_->tensors = p_.used;
}

void DevicePlan::release(Binding& binding) {
  for (const Recorded* r : {&binding.forward, &binding.rest, &binding.whole})
    if (r->capture) p_.queue->release(r->capture);
}

DevicePlan::~DevicePlan() {
  if (!p_.queue) return;
  const auto lock = p_.queue->lock();
  try {
    p_.queue->synchronize();  // before kernels and buffers are destroyed
  } catch (const Error&) {    // already reported when the results were awaited
  }
  for (const auto& binding : bindings_) release(*binding);
}

// Inputs and parameters may be overwritten, because the queue runs these copies after the work of the previous run.
void DevicePlan::begin(const void* const* inputs) {
  if (p_.poison) {
    const std::vector<std::byte> ones(p_.memory.arena_bytes, std::byte{0xff});
    p_.queue->upload(p_.arena->at(0), ones.data(), ones.size());
    p_.queue->synchronize();
  }
  for (const auto& tensor : p_.used) tensor->prepare();
  send_inputs(inputs);
}

// The packed host memory is free: the previous run synchronized or awaited an event after uploading it.
void DevicePlan::send_inputs(const void* const* inputs) {
  InputPrefetch* prefetch = InputPrefetch::on(*p_.queue);
  for (size_t i = 0; i < p_.inputs.size();) {
    const DeviceInput& input = p_.inputs[i];
    const size_t first = i++;
    if (input.packed) {
      std::memcpy(input.packed, inputs[first], input.bytes);
      continue;
    }
    uint64_t bytes = input.bytes;
    if (prefetch && prefetch->has(inputs[first])) {
      while (i < p_.inputs.size() && lies_alike(inputs, first, i)) bytes = input_end(i++) - input.place.offset;
      if (prefetch->take(inputs[first], input.place, bytes)) continue;
      bytes = input.bytes;
      i = first + 1;
    }
    p_.queue->upload(input.place, inputs[first], bytes);
  }
  for (const DeviceInput& input : p_.inputs)
    if (input.packed_bytes) p_.queue->upload(input.place, input.packed, input.packed_bytes);
}

uint64_t DevicePlan::input_end(size_t i) const { return p_.inputs[i].place.offset + p_.inputs[i].bytes; }

// Returns whether input `i` follows its predecessor at the same distance in the batch as on the device, so that one
// copy can transfer both.
bool DevicePlan::lies_alike(const void* const* inputs, size_t first, size_t i) const {
  const auto at = [&](size_t k) { return reinterpret_cast<uintptr_t>(inputs[k]); };
  const DeviceInput& input = p_.inputs[i];
  return !input.packed && at(i) - at(first) == input.place.offset - p_.inputs[first].place.offset &&
         input.place.offset - input_end(i - 1) < kArenaAlignment;
}

void DevicePlan::run_hosted(const HostedStep& step) {
  for (const Transfer& t : step.in) p_.queue->download(t.host, t.place, t.bytes);
  p_.queue->synchronize();
  for (uint32_t phase = 0; phase < step.phases; ++phase) {
    const PartsOfPhase at{&step, phase};
    if (step.parts[phase] == 1)
      run_part(&at, 0);
    else
      executor_.run(step.parts[phase], run_part, &at);
  }
  for (const Transfer& t : step.out) p_.queue->upload(t.place, t.host, t.bytes);
  p_.queue->synchronize();  // the next hosted step may reuse the scratch memory
}

hx_status DevicePlan::enqueue_native(const DeviceStep& step) {
  const hx_native native = native_of(p_.queue->device(), p_.queue->raw());
  return step.kernel->enqueue_native(step.kernel->context, &native, step.places.data());
}

void DevicePlan::run_step(const DeviceStep& step, const hx_place* number) {
  const hx_place* looked = step.changes ? number : nullptr;
  if (step.kernel) {
    const hx_kernel& k = *step.kernel;
    const hx_status status = k.enqueue_native ? enqueue_native(step)
                             : looked ? k.enqueue_if_finite(k.context, p_.queue->raw(), step.places.data(), looked)
                                      : k.enqueue(k.context, p_.queue->raw(), step.places.data());
    if (status != HX_OK) p_.queue->check(status, fmt::format("queue its kernel '{}'", k.name).c_str());
  } else if (step.hosted) {
    run_hosted(*step.hosted);
  } else if (looked) {
    p_.queue->copy_if_finite(step.places[1], step.places[0], step.bytes, *looked);
  } else {
    p_.queue->copy(step.places[1], step.places[0], step.bytes);
  }
}

void DevicePlan::run_steps(size_t step, size_t end, const hx_place* number) {
  for (; step != end; ++step) run_step(p_.steps[step], number);
}

// Returns whether the steps can be recorded: there are several, and none runs on the host.
bool DevicePlan::can_record(size_t step, size_t end) const {
  return end - step > 1 && p_.queue->can_capture() &&
         std::none_of(p_.steps.begin() + static_cast<ptrdiff_t>(step), p_.steps.begin() + static_cast<ptrdiff_t>(end),
                      [](const DeviceStep& s) { return s.hosted; });
}

template <typename Run>
void DevicePlan::run_recorded(Recorded& recorded, size_t step, size_t end, Run run) {
  if (recorded.runs < 2) ++recorded.runs;
  if (recorded.runs == 2 && recorded.possible && !recorded.capture) {
    recorded.possible = can_record(step, end);
    if (recorded.possible) {
      p_.queue->begin_capture();
      try {
        run();
      } catch (...) {
        if (hx_capture* half = p_.queue->end_capture()) p_.queue->release(half);
        throw;
      }
      recorded.capture = p_.queue->end_capture();
      recorded.possible = recorded.capture != nullptr;
    }
  }
  if (recorded.capture)
    p_.queue->launch(recorded.capture);
  else
    run();
}

void DevicePlan::run_half(Recorded& recorded, size_t step, size_t end) {
  run_recorded(recorded, step, end, [&] { run_steps(step, end); });
}

void DevicePlan::fetch(const std::vector<Transfer>& results) {
  for (const Transfer& t : results) p_.queue->download(t.host, t.place, t.bytes);
}

void DevicePlan::changed() {
  for (const auto& tensor : p_.changed) tensor->changed();
}

void DevicePlan::first(const void* const* inputs) {
  begin(inputs);
  run_half(bound_->forward, 0, p_.rest);
  if (p_.rest == p_.steps.size()) changed();
  fetch(p_.results);
}

void DevicePlan::second() {
  run_half(bound_->rest, p_.rest, p_.steps.size());
  if (p_.rest != p_.steps.size()) changed();
  fetch(p_.later);
}

void DevicePlan::run(const void* const* inputs) {
  const auto lock = p_.queue->lock();
  first(inputs);
  second();
  p_.queue->synchronize();
}

void DevicePlan::run_forward(const void* const* inputs) {
  const auto lock = p_.queue->lock();
  first(inputs);
  p_.queue->synchronize();
}

// Inputs were uploaded by run_forward(). If only parameters change, does not wait, so that the host can prepare the
// next batch.
void DevicePlan::run_rest(const void* const*) {
  const auto lock = p_.queue->lock();
  second();
  if (p_.later.empty())
    p_.queue->submit();
  else
    p_.queue->synchronize();
}

// Returns whether `number` is a result of the first half, and the device can check it in every step that changes a
// parameter or state.
bool DevicePlan::can_look_at(const float* number) {
  if (asked_ == number) return looked_.has_value();
  asked_ = number;
  looked_.reset();
  const auto result =
      std::find_if(p_.results.begin(), p_.results.end(), [&](const Transfer& t) { return t.host == number; });
  const auto looks = [](const DeviceStep& s) {
    return s.kernel ? !s.changes || s.kernel->enqueue_if_finite : !s.hosted;
  };
  if (result != p_.results.end() && p_.rest != p_.steps.size() && looks_at_numbers(p_.queue->device()) &&
      std::all_of(p_.steps.begin(), p_.steps.end(), looks))
    looked_ = result->place;
  return looked_.has_value();
}

void DevicePlan::run_whole(const hx_place& number) {
  run_steps(0, p_.rest);
  fetch(p_.results);
  bound_->there = DeviceEvent(p_.queue);
  run_steps(p_.rest, p_.steps.size(), &number);
  fetch(p_.later);
}

// Queues both halves, or launches them as one recording, without a round trip to the host in between.
bool DevicePlan::run_if_finite(const void* const* inputs, const float* number, float most) {
  const auto lock = p_.queue->lock();
  if (std::isfinite(most) || !can_look_at(number)) return Executable::run_if_finite(inputs, number, most);
  begin(inputs);
  if (!bound_->whole.capture) bound_->there = {};
  run_recorded(bound_->whole, 0, p_.steps.size(), [&] { run_whole(*looked_); });
  changed();
  p_.queue->submit();
  if (p_.later.empty())
    bound_->there.await();
  else
    p_.queue->synchronize();
  return std::isfinite(*number);
}

// Returns whether timed events work; tested once, because a driver may accept them and still keep no times. Also
// measures the interval between two events without work in between.
bool DevicePlan::keeps_times() {
  if (keeps_times_) return *keeps_times_;
  std::vector<DeviceEvent> events;
  events.push_back(DeviceEvent::timed(p_.queue));
  for (int i = 0; i < kNothings && events.back(); ++i) events.push_back(DeviceEvent::timed(p_.queue));
  p_.queue->synchronize();
  bool keeps = static_cast<bool>(events.back());
  uint64_t least = UINT64_MAX;
  for (size_t i = 1; keeps && i < events.size(); ++i) {
    const std::optional<double> seconds = events[i].since(events[i - 1]);
    keeps = seconds.has_value();
    if (keeps) least = std::min(least, nanoseconds(*seconds));
  }
  nothing_ = keeps ? least : 0;
  keeps_times_ = keeps;
  return keeps;
}

// Times the steps by device events. Steps are queued back to back, as in an untimed run.
void DevicePlan::run_on_its_clock(std::vector<uint64_t>& stamps) {
  std::vector<DeviceEvent> events;
  events.reserve(stamps.size());
  stamps[0] = now();
  events.push_back(DeviceEvent::timed(p_.queue));
  for (const DeviceStep& step : p_.steps) {
    run_step(step);
    events.push_back(DeviceEvent::timed(p_.queue));
  }
  p_.queue->synchronize();
  for (size_t i = 1; i < stamps.size(); ++i) {
    const std::optional<double> seconds = events[i] && events[i - 1] ? events[i].since(events[i - 1]) : std::nullopt;
    if (!seconds)
      throw Error(ErrorKind::Device,
                  fmt::format("device '{}' reported event times before, but no longer does", p_.queue->device().name));
    stamps[i] = stamps[i - 1] + nanoseconds(*seconds);
  }
}

void DevicePlan::run_on_our_clock(std::vector<uint64_t>& stamps) {
  for (size_t i = 0; i < p_.steps.size(); ++i) {
    stamps[i] = now();
    run_step(p_.steps[i]);
    p_.queue->synchronize();
  }
  stamps.back() = now();
}

void DevicePlan::run_timed(const void* const* inputs, PlanTimes& times) {
  const auto lock = p_.queue->lock();
  times.stamps.resize(p_.steps.size() + 1);
  times.parts.clear();
  begin(inputs);
  p_.queue->synchronize();
  times.by_device = keeps_times();
  times.nothing = nothing_;
  if (times.by_device)
    run_on_its_clock(times.stamps);
  else
    run_on_our_clock(times.stamps);
  for (uint32_t i = 0; times.wants_parts && i < p_.steps.size(); ++i)
    times.parts.push_back({i, 0, 0, 0, times.stamps[i], times.stamps[i + 1]});
  changed();
  fetch(p_.results);
  fetch(p_.later);
  p_.queue->synchronize();
}

void DevicePlan::run_empty(const void* const* inputs) {
  const auto lock = p_.queue->lock();
  begin(inputs);
  fetch(p_.results);
  fetch(p_.later);
  p_.queue->synchronize();
}

void DevicePlan::bind(std::span<void* const>) {
  throw Error(ErrorKind::Device,
              fmt::format("the device '{}' keeps the states of a program in its own memory; sessions that share a "
                          "program need a device in host memory, such as cpu",
                          p_.queue->device().name));
}

void DevicePlan::bind(std::span<const std::shared_ptr<DeviceTensor>> tensors) {
  expect_states(tensors.size(), "tensors");
  const auto tensor = [&](size_t i) -> const std::shared_ptr<DeviceTensor>& {
    return tensors[i] ? tensors[i] : homes_[i];
  };
  const auto has_these = [&](const Binding& binding) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (binding.tensors[i] != tensor(i)) return false;
    return true;
  };
  if (has_these(*bound_)) return;
  const auto lock = p_.queue->lock();
  auto known = std::find_if(bindings_.begin(), bindings_.end(), [&](const auto& b) { return has_these(*b); });
  if (known == bindings_.end()) {
    p_.queue->synchronize();  // queued work uses the tensors of a binding that may be dropped
    if (bindings_.size() == kMostBindings) {
      release(*bindings_.front());
      bindings_.erase(bindings_.begin());
    }
    bindings_.push_back(std::make_unique<Binding>());
    for (size_t i = 0; i < tensors.size(); ++i) bindings_.back()->tensors.push_back(tensor(i));
    known = bindings_.end() - 1;
  }
  bound_ = known->get();
  p_.used = bound_->tensors;
  p_.changed.clear();
  for (size_t i = 0; i < p_.used.size(); ++i)
    if (p_.updated[i]) p_.changed.push_back(p_.used[i]);
  for (const StatePlace& s : p_.state_places) {
    const hx_place place = p_.used[s.state]->place();
    *s.at = {place.buffer, place.offset + s.offset};
  }
}

}  // namespace harmonics::engine
