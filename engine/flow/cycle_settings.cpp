#include "engine/flow/cycle_settings.hpp"

#include "engine/base/spelling.hpp"
#include "engine/flow/unpaired.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"

namespace harmonics::engine {

namespace {

// Returns an example such as "batch=64".
std::string example_of(const std::string& setting) {
  return setting + (setting == "lr" ? "=0.001" : setting == "batch" ? "=64" : "=1");
}

double number_of(const CycleCondition& c) {
  const auto* n = std::get_if<Number>(&c.value.value);
  if (!n)
    throw Error(ErrorKind::Type, "'" + c.setting.text + "' must be a number", c.value.span,
                {"write for example " + example_of(c.setting.text)});
  return n->value;
}

int64_t whole_of(const CycleCondition& c, int64_t least) {
  const double v = number_of(c);
  if (v != static_cast<double>(static_cast<int64_t>(v)) || v < static_cast<double>(least))
    throw Error(ErrorKind::Type, "'" + c.setting.text + "' must be a whole number of at least " + std::to_string(least),
                c.value.span, {"write for example " + example_of(c.setting.text)});
  return static_cast<int64_t>(v);
}

std::string text_of(const CycleCondition& c) {
  if (const auto* s = std::get_if<std::string>(&c.value.value)) return *s;
  if (const auto* w = std::get_if<Word>(&c.value.value)) return w->text;
  throw Error(ErrorKind::Type, "'" + c.setting.text + "' must be a string in quotes", c.value.span);
}

double above_zero(const CycleCondition& c) {
  const double v = number_of(c);
  if (!(v > 0))
    throw Error(ErrorKind::Type, "'" + c.setting.text + "' must be above zero", c.value.span,
                {"write for example " + example_of(c.setting.text)});
  return v;
}

std::string unpaired_of(const CycleCondition& c) {
  const std::string text = text_of(c);
  if (!parse_unpaired(text))
    throw Error(ErrorKind::Type, "'unpaired' must be \"drop\", \"last\", \"stop\" or \"refuse\"", c.value.span);
  return text;
}

// Returns the text of a setting; throws if `parse` does not accept it.
template <typename T>
std::string checked_text(const CycleCondition& c, T (*parse)(std::string_view, Registry&), Registry& registry) {
  const std::string text = text_of(c);
  try {
    parse(text, registry);
  } catch (const Error& e) {
    throw Error(e.kind(), e.what(), c.value.span, e.notes());
  }
  return text;
}

template <typename T>
void once(std::optional<T>& slot, T value, const char* what, Span span) {
  if (slot) throw Error(ErrorKind::Name, std::string("'") + what + "' is given twice", span, {"keep one of them"});
  slot = std::move(value);
}

}  // namespace

void apply_condition(const CycleCondition& c, CycleSettings& s, Registry& registry) {
  switch (c.kind) {
    case CycleCondition::Kind::For:
      return once(s.seconds, c.seconds, "for", c.span);
    case CycleCondition::Kind::Epochs:
      return once(s.epochs, c.count, "epochs", c.span);
    case CycleCondition::Kind::Steps:
      return once(s.steps, c.count, "steps", c.span);
    case CycleCondition::Kind::Until:
      s.until.push_back(c.until);
      return;
    case CycleCondition::Kind::Setting:
      break;
  }
  const std::string& name = c.setting.text;
  if (name == "batch") return once(s.batch, whole_of(c, 1), "batch", c.setting.span);
  if (name == "seed") return once(s.seed, whole_of(c, 0), "seed", c.setting.span);
  if (name == "accumulate") return once(s.accumulate, whole_of(c, 1), "accumulate", c.setting.span);
  if (name == "lr") return once(s.lr, above_zero(c), "lr", c.setting.span);
  if (name == "clip") return once(s.clip, above_zero(c), "clip", c.setting.span);
  if (name == "clip_value") return once(s.clip_value, above_zero(c), "clip_value", c.setting.span);
  if (name == "optimizer")
    return once(s.optimizer, checked_text(c, parse_optimizer, registry), "optimizer", c.setting.span);
  if (name == "schedule")
    return once(s.schedule, checked_text(c, parse_schedule, registry), "schedule", c.setting.span);
  if (name == "unpaired") return once(s.unpaired, unpaired_of(c), "unpaired", c.setting.span);
  if (name == "epochs" || name == "steps")
    throw Error(ErrorKind::Type, "'" + name + "' must be a whole number", c.value.span,
                {"write for example '" + name + "=10'"});
  if (name == "for")
    throw Error(ErrorKind::Type, "'for' must be a duration: a number and a unit", c.value.span,
                {"write for example 'for=10m'; units are ms, s, m, h and d"});
  if (name == "until")
    throw Error(ErrorKind::Type, "'until' must be a comparison", c.span, {"write for example 'until loss < 0.05'"});
  Error e(ErrorKind::Name, "unknown setting '" + name + "' of a cycle", c.setting.span);
  if (auto near = nearest(name, {"batch", "optimizer", "lr", "schedule", "clip", "clip_value", "accumulate", "seed",
                                 "unpaired", "epochs", "steps"}))
    e.note("did you mean '" + *near + "'?");
  else
    e.note("settings are batch, optimizer, lr, schedule, clip, clip_value, accumulate, seed and unpaired");
  throw e;
}

}  // namespace harmonics::engine
