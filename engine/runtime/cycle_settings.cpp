#include "engine/runtime/cycle_settings.hpp"

#include "engine/base/spelling.hpp"
#include "engine/training/optimizer.hpp"

namespace harmonics {

namespace {

double number_of(const CycleCondition& c) {
  const auto* n = std::get_if<Number>(&c.value.value);
  if (!n) throw Error(ErrorKind::Type, "'" + c.setting.text + "' wants a number", c.value.span);
  return n->value;
}

int64_t whole_of(const CycleCondition& c, int64_t least) {
  const double v = number_of(c);
  if (v != static_cast<double>(static_cast<int64_t>(v)) || v < static_cast<double>(least))
    throw Error(ErrorKind::Type, "'" + c.setting.text + "' wants a whole number of at least " + std::to_string(least), c.value.span);
  return static_cast<int64_t>(v);
}

std::string text_of(const CycleCondition& c) {
  if (const auto* s = std::get_if<std::string>(&c.value.value)) return *s;
  if (const auto* w = std::get_if<Word>(&c.value.value)) return w->text;
  throw Error(ErrorKind::Type, "'" + c.setting.text + "' wants a text in quotes", c.value.span);
}

template <typename T> void once(std::optional<T>& slot, T value, const char* what, Span span) {
  if (slot) throw Error(ErrorKind::Name, std::string("'") + what + "' is given twice", span, {"keep one of them"});
  slot = std::move(value);
}

}  // namespace

void apply_condition(const CycleCondition& c, CycleSettings& s) {
  switch (c.kind) {
    case CycleCondition::Kind::For: return once(s.seconds, c.seconds, "for", c.span);
    case CycleCondition::Kind::Epochs: return once(s.epochs, c.count, "epochs", c.span);
    case CycleCondition::Kind::Steps: return once(s.steps, c.count, "steps", c.span);
    case CycleCondition::Kind::Until: s.until.push_back(c.until); return;
    case CycleCondition::Kind::Setting: break;
  }
  const std::string& name = c.setting.text;
  if (name == "batch") return once(s.batch, whole_of(c, 1), "batch", c.setting.span);
  if (name == "seed") return once(s.seed, whole_of(c, 0), "seed", c.setting.span);
  if (name == "lr") {
    const double lr = number_of(c);
    if (!(lr > 0)) throw Error(ErrorKind::Type, "'lr' must be above zero", c.value.span);
    return once(s.lr, lr, "lr", c.setting.span);
  }
  if (name == "optimizer") {
    try {
      parse_optimizer(text_of(c));
    } catch (const Error& e) {
      throw Error(e.kind(), e.what(), c.value.span, e.notes());
    }
    return once(s.optimizer, text_of(c), "optimizer", c.setting.span);
  }
  Error e(ErrorKind::Name, "unknown setting '" + name + "' of a cycle", c.setting.span);
  if (auto near = nearest(name, {"batch", "optimizer", "lr", "seed", "epochs", "steps"})) e.note("did you mean '" + *near + "'?");
  else e.note("settings are batch, optimizer, lr and seed");
  throw e;
}

}  // namespace harmonics
