#include "engine/execution/compiled_plan.hpp"

#include <cstring>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"

namespace harmonics {

namespace {

struct PhaseOfStep {
  const Step* step;
  uint32_t phase;
};

void run_part(const void* context, uint32_t part) {
  const auto& at = *static_cast<const PhaseOfStep*>(context);
  at.step->run(at.step->context, at.step->buffers, at.phase, part);
}

}  // namespace

void CompiledPlan::point_at(const void* const* inputs) {
  for (const InputSlot& s : p_.inputs)
    p_.pointers[s.slot] = const_cast<std::byte*>(static_cast<const std::byte*>(inputs[s.input])) + s.offset;
}

void CompiledPlan::run_steps(const Step* step, const Step* end) {
  for (; step != end; ++step)
    for (uint32_t phase = 0; phase < step->phases; ++phase) {
      const uint32_t parts = step->parts[phase];
      if (parts == 1) {
        step->run(step->context, step->buffers, phase, 0);
        continue;
      }
      const PhaseOfStep at{step, phase};
      executor_.run(parts, run_part, &at);
    }
}

void CompiledPlan::run(const void* const* inputs) {
  run_forward(inputs);
  run_steps(p_.steps.data() + p_.rest, p_.steps.data() + p_.steps.size());
}

void CompiledPlan::run_forward(const void* const* inputs) {
  if (p_.poison) std::memset(p_.arena->data(), 0xff, p_.arena->bytes());
  point_at(inputs);
  run_steps(p_.steps.data(), p_.steps.data() + p_.rest);
}

void CompiledPlan::run_rest(const void* const* inputs) {
  point_at(inputs);
  run_steps(p_.steps.data() + p_.rest, p_.steps.data() + p_.steps.size());
}

const HTensor& CompiledPlan::output(const std::string& name) const {
  const auto it = p_.outputs.find(name);
  if (it != p_.outputs.end()) return it->second;
  std::vector<std::string> known;
  for (const auto& [n, value] : p_.outputs) known.push_back(n);
  Error error(ErrorKind::Name, fmt::format("program '{}' has no output '{}'", p_.program.name, name));
  if (auto near = nearest(name, known)) error.note("did you mean '" + *near + "'?");
  throw error;
}

}  // namespace harmonics
