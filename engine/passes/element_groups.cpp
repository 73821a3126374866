#include "engine/passes/element_groups.hpp"

#include <algorithm>

#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// Limits of a fused node, whose values devices keep in registers or small buffers per block of elements.
constexpr size_t kMaxOps = 32, kMaxInputs = 12, kMaxOutputs = 8;

bool contains(const std::vector<uint32_t>& sorted, uint32_t node) {
  return std::binary_search(sorted.begin(), sorted.end(), node);
}
void add_once(std::vector<ValueId>& list, ValueId v) {
  if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
}

}  // namespace

ElementGroups::ElementGroups(const Program& program, const HasKernel& accepts)
    : program_(program), uses_(program), group_(program.nodes.size(), kNone), stamp_(program.nodes.size(), 0) {
  for (uint32_t i = 0; i < program.nodes.size(); ++i) {
    if (!fits(i, accepts)) continue;
    group_[i] = static_cast<int32_t>(groups_.size());
    groups_.push_back(joined({{i}, {}, {}}, {}));
    for (ValueId v : program.nodes[i].inputs) {
      const uint32_t maker = program.values[v].node;
      if (group_[maker] != kNone && group_[maker] != group_[i]) try_join(group_[maker], group_[i]);
    }
  }
}

bool ElementGroups::fits(uint32_t node, const HasKernel& accepts) const {
  const Node& n = program_.nodes[node];
  if (!is_elementwise(n.op) || (n.op != Op::cast && !n.attributes.empty())) return false;
  if (converts_stored(program_, n)) return false;
  return !accepts || accepts(program_, n);
}

ElementGroup ElementGroups::joined(const ElementGroup& a, const ElementGroup& b) const {
  ElementGroup both;
  std::merge(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(), std::back_inserter(both.members));
  for (uint32_t m : both.members) {
    const Node& node = program_.nodes[m];
    for (ValueId v : node.inputs)
      if (!contains(both.members, program_.values[v].node)) add_once(both.inputs, behind_broadcasts(program_, v));
    const ValueId made = node.outputs[0];
    const auto outside = [&](uint32_t reader) { return !contains(both.members, reader); };
    const auto readers = uses_.readers(made);
    if (uses_.is_result(made) || std::any_of(readers.begin(), readers.end(), outside)) both.outputs.push_back(made);
  }
  return both;
}

void ElementGroups::try_join(int32_t a, int32_t b) {
  const ElementGroup &x = group(a), &y = group(b);
  if (is_forward(program_, program_.nodes[x.members[0]]) != is_forward(program_, program_.nodes[y.members[0]])) return;
  ElementGroup both = joined(x, y);
  if (both.members.size() > kMaxOps || both.inputs.size() > kMaxInputs || both.outputs.size() > kMaxOutputs) return;
  if (would_cycle(a, b, both)) return;
  for (uint32_t m : both.members) group_[m] = b;
  groups_[static_cast<size_t>(a)] = {};
  groups_[static_cast<size_t>(b)] = std::move(both);
}

// Returns whether a node outside both groups depends on one and feeds the other, so that they cannot run together. A
// group counts as one node.
bool ElementGroups::would_cycle(int32_t a, int32_t b, const ElementGroup& both) {
  ++search_;
  std::vector<uint32_t> open;
  const auto reach = [&](ValueId v) {
    const uint32_t maker = program_.values[v].node;
    if (stamp_[maker] == search_) return;
    stamp_[maker] = search_;
    open.push_back(maker);
  };
  for (ValueId v : both.inputs) reach(v);
  while (!open.empty()) {
    const uint32_t node = open.back();
    open.pop_back();
    const int32_t g = group_[node];
    if (g == kNone) {
      for (ValueId v : program_.nodes[node].inputs) reach(v);
      continue;
    }
    if (g == a || g == b) return true;
    for (uint32_t m : group(g).members) stamp_[m] = search_;
    for (ValueId v : group(g).inputs) reach(v);
  }
  return false;
}

}  // namespace harmonics::engine
