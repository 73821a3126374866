// Uses: the readers of each value of a program. Valid until the program changes.
#pragma once

#include <span>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

class Uses {
 public:
  // `roots`: reads of views (reshape, slice) count as reads of the underlying value.
  enum class Of { values, roots };
  explicit Uses(const Program& program, Of of = Of::values);

  // Returns the nodes that read the value, in program order. A node that reads it twice occurs twice.
  std::span<const uint32_t> readers(ValueId v) const {
    return {readers_.data() + begins_[v], readers_.data() + begins_[v + 1]};
  }
  // Returns whether the value is an output or an update of the program.
  bool is_result(ValueId v) const { return results_[v] > 0; }
  // Returns whether the value is an output of the program.
  bool is_output(ValueId v) const { return outputs_[v]; }
  // Returns the number of reads by nodes, outputs and updates.
  size_t count(ValueId v) const { return readers(v).size() + results_[v]; }
  bool once(ValueId v) const { return count(v) == 1; }

 private:
  std::vector<uint32_t> begins_, readers_;  // readers of value v: readers_[begins_[v] .. begins_[v + 1])
  std::vector<uint32_t> results_;           // by value: number of outputs and updates
  std::vector<bool> outputs_;               // by value
};

}  // namespace harmonics::engine
