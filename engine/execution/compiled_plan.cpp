#include "engine/execution/compiled_plan.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

namespace {

void run_job(const void* context, uint32_t number) {
  const auto& at = *static_cast<const PhaseJobs*>(context);
  const WaveJob& job = at.jobs[number];
  const KernelStep& step = at.steps[job.step];
  step.run(step.context, step.buffers, job.phase, job.part);
}

// A fraction of the smallest second-level caches. A thread waits for a few short steps, in which it cannot fetch more.
constexpr size_t kFetchedAhead = 128u << 10;

}  // namespace

CompiledPlan::CompiledPlan(PlanParts parts, Executor& executor)
    : PlanOf(std::move(parts)), bound_(p_.homes), executor_(executor) {
  turns_ = std::any_of(p_.steps.begin(), p_.steps.end(), [](const KernelStep& s) { return s.turns; });
  if (executor_.threads() <= 1) return;
  std::vector<StepShape> shapes;
  for (const KernelStep& s : p_.steps) shapes.push_back({s.context, s.phases, s.parts});
  waves_ = make_waves(shapes, p_.access, p_.rest);
  turned_jobs_ = waves_.jobs;
  for (const WavePhase& p : waves_.phases) {
    for (uint32_t i = 0; p.turns && i < p.count; ++i)
      turned_jobs_[p.first + i] =
          waves_.jobs[p.first + turned_part(p.count, static_cast<uint32_t>(executor_.threads()), i)];
    jobs_[0].push_back({p_.steps.data(), waves_.jobs.data() + p.first});
    jobs_[1].push_back({p_.steps.data(), turned_jobs_.data() + p.first});
  }
  // The weights of the next product follow steps that occupy a single thread and no memory. After the last phase, the
  // next run's first product follows.
  const size_t phases = waves_.phases.size();
  next_.resize(phases);
  uint64_t weights = 0;
  for (const PackedOperand& p : p_.packed) weights += p.form->bytes();
  if (weights < kBeyondCaches) return;
  std::vector<ReadAhead> next;
  for (size_t i = 2 * phases; i-- > 0;) {
    const WavePhase& p = waves_.phases[i % phases];
    if (!p.parallel) continue;
    next_[i % phases] = next;
    if (std::vector<ReadAhead> own = first_reads(p); !own.empty()) next = std::move(own);
  }
}

std::vector<ReadAhead> CompiledPlan::first_reads(const WavePhase& phase) const {
  const auto threads = static_cast<uint32_t>(executor_.threads());
  std::vector<ReadAhead> all(threads);
  bool is_any = false;
  for (uint32_t t = 0; t < threads; ++t) {
    const uint32_t number = first_part(phase.count, threads, t);
    if (number >= phase.count) continue;
    const WaveJob& job = waves_.jobs[phase.first + number];
    const KernelStep& step = p_.steps[job.step];
    const auto operand =
        std::find_if(p_.packed.begin(), p_.packed.end(), [&](const PackedOperand& o) { return o.step == job.step; });
    // A kernel's other phases, which have fewer parts, prepare its operands or add sums.
    if (operand == p_.packed.end() || step.parts[job.phase] < *std::max_element(step.parts, step.parts + step.phases))
      continue;
    const size_t bytes = operand->form->bytes(), begin = bytes * job.part / step.parts[job.phase];
    all[t] = {static_cast<const std::byte*>(operand->form->data()) + begin, std::min(bytes - begin, kFetchedAhead)};
    is_any = true;
  }
  if (!is_any) all.clear();
  return all;
}

void CompiledPlan::point_at(const void* const* inputs) {
  for (const InputSlot& s : p_.inputs)
    p_.pointers[s.slot] = const_cast<std::byte*>(static_cast<const std::byte*>(inputs[s.input])) + s.offset;
}

void Executable::bind(std::span<const std::shared_ptr<DeviceTensor>>) {
  throw Error(ErrorKind::Internal,
              fmt::format("program '{}' runs in host memory, and cannot be bound to a device's", program().name));
}

void CompiledPlan::bind(std::span<void* const> addresses) {
  expect_states(addresses.size(), "addresses");
  for (const size_t i : p_.packed_states)
    if (addresses[i] && addresses[i] != p_.homes[i])
      throw Error(ErrorKind::Internal,
                  fmt::format("program '{}' has packed the parameter '{}', which cannot be bound to another address",
                              p_.program.name, p_.states[i].name));
  bool moved = false;
  for (size_t i = 0; i < addresses.size(); ++i) {
    void* at = addresses[i] ? addresses[i] : p_.homes[i];
    moved = moved || at != bound_[i];
    bound_[i] = at;
  }
  if (!moved) return;
  for (const StateSlot& s : p_.state_slots) p_.pointers[s.slot] = static_cast<std::byte*>(bound_[s.state]) + s.offset;
  for (const StateOutput& o : p_.state_outputs)
    p_.outputs[o.name] = view_of(o.type, static_cast<std::byte*>(bound_[o.state]) + o.offset, p_.arena);
}

// Runs steps on one thread. Aligned because plans of tiny steps run 10 % slower if the loop crosses a cache line.
[[gnu::aligned(64)]] void CompiledPlan::run_steps(const KernelStep* step, const KernelStep* end) {
  for (; step != end; ++step)
    for (uint32_t phase = 0; phase < step->phases; ++phase)
      for (uint32_t part = 0; part < step->parts[phase]; ++part) step->run(step->context, step->buffers, phase, part);
}

void CompiledPlan::run_turned_steps(const KernelStep* step, const KernelStep* end) {
  for (; step != end; ++step)
    for (uint32_t phase = 0; phase < step->phases; ++phase)
      for (uint32_t part = 0, parts = step->parts[phase]; part < parts; ++part)
        step->run(step->context, step->buffers, phase, step->turns ? parts - 1 - part : part);
}

void CompiledPlan::run_waves(const KernelStep* steps, size_t phase, size_t end) {
  for (; phase != end; ++phase) {
    const WavePhase& p = waves_.phases[phase];
    PhaseJobs& at = jobs_[turned_][phase];
    if (at.steps != steps) at.steps = steps;  // not stored again in steady state, so that the cache line stays shared
    if (p.parallel)
      executor_.run(p.count, run_job, &at, next_[phase]);
    else
      for (uint32_t i = 0; i < p.count; ++i) run_job(&at, i);
  }
}

void CompiledPlan::run_first(const KernelStep* steps) {
  if (executor_.threads() > 1) return run_waves(steps, 0, waves_.rest);
  turned_ ? run_turned_steps(steps, steps + p_.rest) : run_steps(steps, steps + p_.rest);
}

void CompiledPlan::run_second(const KernelStep* steps) {
  if (executor_.threads() > 1)
    run_waves(steps, waves_.rest, waves_.phases.size());
  else if (turned_)
    run_turned_steps(steps + p_.rest, steps + p_.steps.size());
  else
    run_steps(steps + p_.rest, steps + p_.steps.size());
  turned_ = turns_ && !turned_;
}

void CompiledPlan::run(const void* const* inputs) {
  run_forward(inputs);
  run_second(p_.steps.data());
}

void CompiledPlan::run_forward(const void* const* inputs) {
  if (p_.poison) std::memset(p_.arena->data(), 0xff, p_.arena->bytes());
  point_at(inputs);
  run_first(p_.steps.data());
}

void CompiledPlan::run_rest(const void* const* inputs) {
  point_at(inputs);
  run_second(p_.steps.data());
}

const HTensor& named_output(const Program& program, const std::map<std::string, HTensor, std::less<>>& outputs,
                            const std::string& name) {
  const auto it = outputs.find(name);
  if (it != outputs.end()) return it->second;
  std::vector<std::string> known;
  for (const auto& [n, value] : outputs) known.push_back(n);
  Error error(ErrorKind::Name, fmt::format("program '{}' has no output '{}'", program.name, name));
  if (auto near = nearest(name, known)) error.note("did you mean '" + *near + "'?");
  throw error;
}

}  // namespace harmonics::engine
