// Program -> Program functions and the small tool they share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/program/functional.hpp"
#include "engine/program/program.hpp"

namespace harmonics {

// Each keeps the meaning: same outputs, same updates. Updates count as uses.
Program cse(const Program& program);  // equal nodes once; literals and constants compared by content; random nodes by stream
Program dce(const Program& program);  // nodes nothing uses go; input, parameter and state leaves stay only when used
// Algebra that keeps bits: x+0... is NOT done; folds nodes over constants of at most 4096 elements, removes
// identity reshape/transpose/broadcast/cast, reshape of reshape, double transpose.
Program simplify(const Program& program);
// {linear -> relu/tanh/logistic} into one linear{activation}; residual+norm etc. as rows of one table. Used before
// differentiation only when the fused functional has its own gradient; `accepts` says whether the device has a kernel.
Program fuse_calls(const Program& program, const std::function<bool(const std::string& callee, const AttributeMap&,
                                                                    const std::vector<TensorType>&)>& accepts);
// Forward nodes in scopes that match a pattern ("*/attention") are cloned before their first use by "gradient/..." nodes,
// so that their results need not be kept.
Program recompute(const Program& program, const std::vector<std::string>& scope_patterns);
// Calls for which `has_kernel` is false are replaced by their body, recursively.
Program inline_calls(const Program& program, const std::function<bool(const Program&, const Node&)>& has_kernel);
// Chains of elementwise nodes (and broadcasts of their inputs) into fused_elementwise nodes; single-use or recomputed cheaply.
Program fuse_elementwise(const Program& program);

// Copies a program node by node with replacements; what passes are written with.
class Rewriter {
 public:
  explicit Rewriter(const Program& from) : from_(from), map_(from.values.size(), kNone) { to_.name = from.name; }
  static constexpr ValueId kNone = ~0u;
  Program& to() { return to_; }
  ValueId mapped(ValueId old) const { return map_[old]; }
  void map(ValueId old, ValueId now) { map_[old] = now; }
  void copy(const Node& node);                                       // with its inputs mapped
  void splice(const Program& body, const Node& call);                // a body in the place of a call node
  Program finish();                                                  // outputs and updates mapped, verified

 private:
  const Program& from_;
  Program to_;
  std::vector<ValueId> map_;
};

}  // namespace harmonics
