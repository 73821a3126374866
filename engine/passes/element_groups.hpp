// Groups elementwise nodes that can be fused into one node.
#pragma once

#include "engine/passes/pass.hpp"
#include "engine/passes/uses.hpp"

namespace harmonics::engine {

struct ElementGroup {
  std::vector<uint32_t> members;  // nodes, in order
  std::vector<ValueId> inputs;    // values read from outside the group; for a broadcast, its source
  std::vector<ValueId> outputs;   // results with readers outside the group
};

class ElementGroups {
 public:
  ElementGroups(const Program& program, const HasKernel& accepts);

  static constexpr int32_t kNone = -1;
  int32_t of(uint32_t node) const { return group_[node]; }
  const ElementGroup& group(int32_t g) const { return groups_[static_cast<size_t>(g)]; }

 private:
  bool fits(uint32_t node, const HasKernel& accepts) const;
  ElementGroup joined(const ElementGroup& a, const ElementGroup& b) const;
  void try_join(int32_t a, int32_t b);
  bool would_cycle(int32_t a, int32_t b, const ElementGroup& both);

  const Program& program_;
  const Uses uses_;
  std::vector<int32_t> group_;        // by node
  std::vector<ElementGroup> groups_;  // merged groups are left empty
  std::vector<uint32_t> stamp_;       // by node: the last search that visited it
  uint32_t search_ = 0;
};

}  // namespace harmonics::engine
