// Patterns of operations: functions bool(program, value) that match the value's producer and its operands. Captures are
// set during matching, so they are valid only if the whole pattern matched.
//
//   ValueId x, y;
//   op(Op::select, op(Op::less_equal, any(x), zero()), zero(), any(y))(program, v)
#pragma once

#include "engine/passes/pass.hpp"

namespace harmonics::engine::match {

inline auto any(ValueId& found) {
  return [&found](const Program&, ValueId v) { return found = v, true; };
}
inline auto same(const ValueId& wanted) {
  return [&wanted](const Program&, ValueId v) { return v == wanted; };
}
auto same(ValueId&&) = delete;  // would dangle
// Matches all zeros, possibly broadcast.
inline auto zero() {
  return [](const Program& p, ValueId v) { return is_zero(p, v); };
}

// Matches the first operands, one per pattern.
template <typename... Operands>
bool operands(const Program& p, const Node& node, const Operands&... patterns) {
  size_t i = 0;
  return node.inputs.size() >= sizeof...(patterns) && (patterns(p, node.inputs[i++]) && ...);
}
template <typename... Operands>
auto op(Op wanted, Operands... patterns) {
  return [=](const Program& p, ValueId v) {
    return p.producer(v).op == wanted && operands(p, p.producer(v), patterns...);
  };
}
template <typename... Operands>
auto call(std::string_view callee, Operands... patterns) {
  return [=](const Program& p, ValueId v) {
    const Node& node = p.producer(v);
    return node.op == Op::call && node.callee == callee && operands(p, node, patterns...);
  };
}
// Matches an operation with two operands in either order.
template <typename First, typename Second>
auto commuted(Op wanted, First first, Second second) {
  return
      [=](const Program& p, ValueId v) { return op(wanted, first, second)(p, v) || op(wanted, second, first)(p, v); };
}

}  // namespace harmonics::engine::match
