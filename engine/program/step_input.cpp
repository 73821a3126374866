#include "engine/program/step_input.hpp"

#include <array>
#include <charconv>
#include <cstring>

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

namespace {

// Indexed by StepInput.
const std::array<StepInputRow, 5>& rows() {
  static const std::array<StepInputRow, 5> table{{
      {StepInput::rate, "@lr", {DType::F32, {}}, false},
      {StepInput::step, "@step", {DType::I64, {}}, false},
      {StepInput::counter, "@counter", {DType::I64, {2}}, false},
      {StepInput::keep, "@keep", {DType::Bool, {}}, false},
      {StepInput::scale, "@scale", {DType::F32, {}}, true},
  }};
  return table;
}

constexpr size_t kMostParts = 1 << 16;

}  // namespace

const StepInputRow& step_input_row(StepInput input) { return rows().at(static_cast<size_t>(input)); }

HTensor step_input(Tracer& tracer, StepInput input, size_t part) {
  const StepInputRow& row = step_input_row(input);
  if (part != 0 && !row.has_parts)
    throw Error(ErrorKind::Internal, "the step input '" + std::string(row.name) + "' has no parts");
  return tracer.input(part == 0 ? std::string(row.name) : std::string(row.name) + ":" + std::to_string(part), row.type);
}

std::optional<StepInputPart> step_input_of(std::string_view name) {
  if (!name.starts_with('@')) return std::nullopt;
  const size_t colon = name.find(':');
  std::vector<std::string> known;
  for (const StepInputRow& row : rows()) {
    known.emplace_back(row.name);
    if (row.name == name) return StepInputPart{row.input, 0};
    if (!row.has_parts || colon == std::string_view::npos || row.name != name.substr(0, colon)) continue;
    size_t part = 0;
    const auto [end, error] = std::from_chars(name.data() + colon + 1, name.data() + name.size(), part);
    if (error == std::errc() && end == name.data() + name.size() && part > 0 && part < kMostParts)
      return StepInputPart{row.input, part};
  }
  Error error(ErrorKind::Name, "there is no step input '" + std::string(name) + "'");
  if (const auto near = nearest(std::string(name), known)) error.note("did you mean '" + *near + "'?");
  throw error;
}

void StepValues::set(float rate, int64_t step, uint64_t seed) {
  rate_ = rate;
  step_ = step;
  std::memcpy(&counter_[0], &seed, sizeof seed);
  counter_[1] = step;
}

const void* StepValues::address(const StepInputPart& of) {
  switch (of.input) {
    case StepInput::rate:
      return &rate_;
    case StepInput::step:
      return &step_;
    case StepInput::counter:
      return counter_;
    case StepInput::keep:
      return &keep_;
    case StepInput::scale:
      break;
  }
  if (scales_.size() <= of.part) scales_.resize(of.part + 1, 1);
  return &scales_[of.part];
}

}  // namespace harmonics::engine
