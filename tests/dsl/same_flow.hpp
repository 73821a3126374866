// Equality of flows, ignoring positions.
#pragma once

#include <algorithm>

#include "engine/flow/flow.hpp"

namespace harmonics::engine {

inline bool same(const std::string& a, const std::string& b) { return a == b; }
inline bool same(bool a, bool b) { return a == b; }
inline bool same(const Word& a, const Word& b) { return a.text == b.text; }
inline bool same(const Number& a, const Number& b) { return a.value == b.value && a.integral == b.integral; }
inline bool same(const Name& a, const Name& b) { return a.text == b.text; }
inline bool same(const Dim& a, const Dim& b) { return a.size == b.size; }
inline bool same(const ArgumentValue& a, const ArgumentValue& b);
inline bool same(const CallArgument& a, const CallArgument& b);
inline bool same(const Call& a, const Call& b);
inline bool same(const Arrow& a, const Arrow& b);
inline bool same(const Declaration& a, const Declaration& b);
inline bool same(const FlowLine& a, const FlowLine& b);
inline bool same(const std::shared_ptr<Conditional>& a, const std::shared_ptr<Conditional>& b);
inline bool same(const CycleCondition& a, const CycleCondition& b);
inline bool same(const Cycle& a, const Cycle& b);
inline bool same(const Harmonic& a, const Harmonic& b);

template <typename T>
bool same(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() == b.has_value() && (!a || same(*a, *b));
}
template <typename... T>
bool same(const std::variant<T...>& a, const std::variant<T...>& b);
template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) { return same(x, y); });
}
inline bool same(const Comparison& a, const Comparison& b) {
  return a.metric == b.metric && a.op == b.op && a.value == b.value;
}
inline bool same(const Ratio& a, const Ratio& b) {
  return a.numerator == b.numerator && a.denominator == b.denominator && same(a.of, b.of);
}
template <typename... T>
bool same(const std::variant<T...>& a, const std::variant<T...>& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&](const auto& x) { return same(x, std::get<std::decay_t<decltype(x)>>(b)); }, a);
}
inline bool same(const ArgumentValue& a, const ArgumentValue& b) { return same(a.value, b.value); }
inline bool same(const CallArgument& a, const CallArgument& b) {
  return same(a.name, b.name) && same(a.value, b.value);
}
inline bool same(const Call& a, const Call& b) {
  return same(a.name, b.name) && same(a.arguments, b.arguments) && a.has_parentheses == b.has_parentheses;
}
inline bool same(const Declaration& a, const Declaration& b) {
  return a.kind == b.kind && same(a.name, b.name) && same(a.shape, b.shape) && a.has_shape == b.has_shape &&
         same(a.ratio, b.ratio);
}
inline bool same(const Arrow& a, const Arrow& b) {
  return a.backward == b.backward && same(a.tag, b.tag) && same(a.target, b.target) && a.piped == b.piped;
}
inline bool same(const FlowLine& a, const FlowLine& b) { return same(a.source, b.source) && same(a.arrows, b.arrows); }
inline bool same(const std::shared_ptr<Conditional>& a, const std::shared_ptr<Conditional>& b) {
  return same(a->predicate, b->predicate) && same(a->then_steps, b->then_steps) && same(a->else_steps, b->else_steps) &&
         a->has_else == b->has_else;
}
inline bool same(const CycleCondition& a, const CycleCondition& b) {
  return a.kind == b.kind && a.seconds == b.seconds && a.count == b.count && same(a.until, b.until) &&
         same(a.setting, b.setting) && same(a.value, b.value);
}
inline bool same(const Cycle& a, const Cycle& b) { return same(a.conditions, b.conditions) && same(a.steps, b.steps); }
inline bool same(const Harmonic& a, const Harmonic& b) {
  return same(a.name, b.name) && same(a.declarations, b.declarations) && same(a.flows, b.flows) &&
         same(a.cycles, b.cycles);
}
inline bool same_flow(const Flow& a, const Flow& b) { return same(a.harmonics, b.harmonics); }

}  // namespace harmonics::engine
