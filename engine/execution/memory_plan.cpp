#include "engine/execution/memory_plan.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "engine/passes/pass.hpp"

namespace harmonics::engine {

namespace {

constexpr uint32_t kNone = ~0u;

// Returns the byte offset of a slice that is contiguous in its input.
std::optional<uint64_t> contiguous_offset(const Program& program, const Node& node) {
  const TensorType &from = program.type(node.inputs[0]), &to = program.type(node.outputs[0]);
  const auto &starts = node.attributes.integers("starts"), &strides = node.attributes.integers("strides");
  int64_t offset = 0, stride = 1;
  bool whole = true;  // axes after this one are complete
  for (uint32_t axis = from.shape.rank(); axis-- > 0;) {
    if (to.shape[axis] > 1 && (strides[axis] != 1 || !whole)) return std::nullopt;
    whole = whole && to.shape[axis] == from.shape[axis];
    offset += starts[axis] * stride;
    stride *= from.shape[axis];
  }
  return static_cast<uint64_t>(offset) * element_bytes(from.dtype);
}

std::optional<uint64_t> view_offset(const Program& program, const Node& node) {
  if (node.op == Op::reshape || node.op == Op::stop_gradient || node.op == Op::bitcast) return 0;
  if (node.op != Op::slice) return std::nullopt;
  const auto offset = contiguous_offset(program, node);
  return offset && *offset % kArenaAlignment == 0 ? offset : std::nullopt;
}

// Memory shared by one or more values, identified by the value that created it.
struct Block {
  uint64_t bytes = 0;
  uint32_t maker = kNone;  // step that writes it, or kNone
  uint32_t last = 0;       // last step that reads it
  Location home;           // fixed location; Place::nowhere for the arena
  ValueId joined = kNone;  // the block whose memory it shares
};

class Planner {
 public:
  Planner(const Program& program, const std::vector<PlannedStep>& steps, uint32_t rest)
      : program_(program),
        steps_(steps),
        rest_(rest),
        end_(static_cast<uint32_t>(steps.size())),
        block_of_(program.values.size()),
        offset_(program.values.size(), 0),
        blocks_(program.values.size()) {}

  MemoryPlan run() {
    for (const NamedValue& update : program_.updates) updated_.insert(update.name);
    find_blocks();
    find_lifetimes();
    for (const NamedValue& output : program_.outputs) keep_output(output);
    for (const NamedValue& update : program_.updates) place_update(update);
    plan_.in_place.resize(steps_.size());
    for (uint32_t s = 0; s < steps_.size(); ++s) plan_.in_place[s] = join_dying_input(s);
    lay_out();
    return std::move(plan_);
  }

 private:
  const TensorType& type(ValueId v) const { return program_.type(v); }
  ValueId root_of(ValueId v) const {
    ValueId b = block_of_[v];
    while (blocks_[b].joined != kNone) b = blocks_[b].joined;
    return b;
  }
  Block& block(ValueId v) { return blocks_[root_of(v)]; }
  bool covers(ValueId v) { return offset_[v] == 0 && type(v).bytes() == block(v).bytes; }

  uint32_t state_index(const std::string& name, const TensorType& type) {
    const auto [at, fresh] = state_numbers_.emplace(name, static_cast<uint32_t>(plan_.states.size()));
    if (fresh) plan_.states.push_back({name, type});
    return at->second;
  }

  Location leaf_home(uint32_t index) {
    const Node& node = program_.nodes[index];
    if (node.op == Op::input) {
      plan_.inputs.push_back(index);
      return {Place::input, static_cast<uint32_t>(plan_.inputs.size() - 1), 0};
    }
    if (is_leaf(node.op)) return {Place::state, state_index(node.callee, type(node.outputs[0])), 0};
    return is_constant(node.op) ? Location{Place::constant, index, 0} : Location{};
  }

  void find_blocks() {
    for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      if (const auto offset = node.inputs.size() == 1 ? view_offset(program_, node) : std::nullopt) {
        block_of_[node.outputs[0]] = block_of_[node.inputs[0]];
        offset_[node.outputs[0]] = offset_[node.inputs[0]] + *offset;
        continue;
      }
      for (ValueId v : node.outputs) {
        block_of_[v] = v;
        blocks_[v] = {type(v).bytes(), kNone, 0, leaf_home(i), kNone};
      }
    }
    state_read_.assign(plan_.states.size(), -1);
  }

  void find_lifetimes() {
    for (uint32_t s = 0; s < steps_.size(); ++s) {
      const Node& node = program_.nodes[steps_[s].node];
      for (ValueId v : node.inputs) {
        Block& b = block(v);
        b.last = s;
        if (b.home.place == Place::state) state_read_[b.home.index] = s;
      }
      for (ValueId v : node.outputs) blocks_[v].maker = blocks_[v].last = s;
    }
  }

  bool is_updated(uint32_t state) const { return updated_.count(plan_.states[state].name) != 0; }

  // Adds a copy before the first step that saves an old value.
  Location save(ValueId v) {
    const Block& b = block(v);
    Location from = b.home;
    from.offset = offset_[v];
    // `index` is the buffer until lay_out()
    const Location to{Place::arena, static_cast<uint32_t>(plan_.buffers.size()), 0};
    plan_.buffers.push_back({type(v).bytes(), 0, end_});
    plan_.saves.push_back({from, to, type(v).bytes()});
    return to;
  }

  void keep_output(const NamedValue& output) {
    Block& b = block(output.value);
    b.last = end_;
    const bool changes = b.home.place == Place::input || (b.home.place == Place::state && is_updated(b.home.index));
    plan_.outputs.push_back(changes ? save(output.value) : Location{});
  }

  void place_update(const NamedValue& update) {
    const uint32_t state = state_index(update.name, type(update.value));
    state_read_.resize(plan_.states.size(), -1);
    Block& b = block(update.value);
    const Location target{Place::state, state, 0};
    Location from = b.home;
    from.offset = offset_[update.value];
    if (b.home.place == Place::nowhere && may_replace(update.value, state)) {
      b.home = target;
      return;
    }
    b.last = end_;
    if (b.home.place == Place::state) {
      if (b.home.index == state && offset_[update.value] == 0) return;  // unchanged
      // In the memory of another state: copy it before the first step, unless a step has written the new value there.
      if (b.maker == kNone) from = save(update.value);
    }
    commits_.push_back({update.value, from, target});
  }

  // Returns whether the step that computes `v` may write directly into the memory of the state.
  bool may_replace(ValueId v, uint32_t state) {
    const Block& b = block(v);
    if (!covers(v) || b.maker == kNone) return false;
    const auto maker = static_cast<int64_t>(b.maker);
    if (rest_ < end_ && b.maker < rest_) return false;
    if (state_read_[state] != maker) return state_read_[state] < maker;
    const PlannedStep& step = steps_[b.maker];
    const Node& node = program_.nodes[step.node];
    const uint32_t output = program_.values[block_of_[v]].output;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Block& in = block(node.inputs[i]);
      if (in.home.place != Place::state || in.home.index != state || in.maker != kNone) continue;
      const bool allowed =
          step.update_results > 0 ? i == replaced_by(output, step) : output == 0 && i < 32 && (step.in_place >> i & 1);
      if (!allowed || !covers(node.inputs[i]) || in.bytes != b.bytes) return false;
    }
    return true;
  }

  // Returns the index of the operand that an optimizer's result replaces. Operands per parameter are w, its gradient or
  // the factors of the gradient (never replaced), and the moments.
  static size_t replaced_by(uint32_t output, const PlannedStep& step) {
    const size_t parameter = output / step.update_results, own = output % step.update_results;
    return parameter * (step.update_results + step.gradient_operands) + (own == 0 ? 0 : own + step.gradient_operands);
  }

  bool join_dying_input(uint32_t s) {
    const PlannedStep& step = steps_[s];
    const Node& node = program_.nodes[step.node];
    const ValueId out = node.outputs.empty() ? kNone : node.outputs[0];
    if (out == kNone) return false;
    if (blocks_[out].home.place != Place::nowhere) return replaces_state(node, blocks_[out]);
    // Prefer the latest candidate: it is most likely still in cache.
    std::optional<ValueId> latest;
    for (size_t i = 0; i < node.inputs.size() && i < 32; ++i) {
      if (!(step.in_place >> i & 1)) continue;
      const Block& in = block(node.inputs[i]);
      if (in.home.place != Place::nowhere || in.last != s || !covers(node.inputs[i]) || in.bytes != blocks_[out].bytes)
        continue;
      if (read_otherwise(step, node, in)) continue;
      if (!latest || in.maker > blocks_[*latest].maker) latest = root_of(node.inputs[i]);
    }
    if (!latest) return false;
    blocks_[*latest].last = std::max(blocks_[*latest].last, blocks_[out].last);
    blocks_[out].joined = *latest;
    return true;
  }

  // Return the first and the last of the steps that may run at the same time as step s.
  uint32_t first_beside(uint32_t s) const {
    while (s < end_ && steps_[s].joins) --s;
    return s;
  }
  uint32_t last_beside(uint32_t s) const {
    while (s + 1 < end_ && steps_[s + 1].joins) ++s;
    return s;
  }

  bool replaces_state(const Node& node, const Block& out) {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
      return block(v).home.place == Place::state && out.home.place == Place::state &&
             block(v).home.index == out.home.index;
    });
  }

  // Returns whether the step also reads the block through an input that must not be overwritten.
  bool read_otherwise(const PlannedStep& step, const Node& node, const Block& in) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (&block(node.inputs[i]) == &in && (i >= 32 || !(step.in_place >> i & 1) || !covers(node.inputs[i])))
        return true;
    return false;
  }

  void lay_out() {
    const size_t saved = plan_.buffers.size();
    std::vector<std::pair<ValueId, uint32_t>> homes;  // block, buffer
    for (ValueId v = 0; v < blocks_.size(); ++v) {
      const Block& b = blocks_[v];
      if (block_of_[v] != v || b.home.place != Place::nowhere || b.maker == kNone) continue;
      plan_.unshared_bytes += b.bytes;
      if (b.joined != kNone) continue;
      homes.emplace_back(v, static_cast<uint32_t>(plan_.buffers.size()));
      plan_.buffers.push_back({b.bytes, first_beside(b.maker), last_beside(b.last)});
    }
    const size_t scratch = plan_.buffers.size();
    for (uint32_t s = 0; s < steps_.size(); ++s) {
      plan_.buffers.push_back({steps_[s].workspace, first_beside(s), last_beside(s)});
      plan_.workspace_bytes = std::max(plan_.workspace_bytes, steps_[s].workspace);
      plan_.unshared_bytes += steps_[s].workspace;
    }
    for (size_t i = 0; i < saved; ++i) plan_.unshared_bytes += plan_.buffers[i].bytes;
    plan_.placement = place_buffers(plan_.buffers);

    const auto at = [&](size_t buffer) { return Location{Place::arena, 0, plan_.placement.offsets[buffer]}; };
    const auto settle = [&](Location& l) {
      if (l.place == Place::arena) l = at(l.index);
    };
    for (const auto& [v, buffer] : homes) blocks_[v].home = at(buffer);
    for (uint32_t s = 0; s < steps_.size(); ++s) plan_.workspaces.push_back(at(scratch + s));
    for (PlannedCopy& c : plan_.saves) settle(c.to);
    for (ValueId v = 0; v < program_.values.size(); ++v) plan_.values.push_back(location(v));
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      settle(plan_.outputs[i]);
      if (plan_.outputs[i].place == Place::nowhere) plan_.outputs[i] = location(program_.outputs[i].value);
    }
    for (Commit& c : commits_) {
      settle(c.from);
      const Location from = block(c.value).maker != kNone ? location(c.value) : c.from;
      plan_.commits.push_back({from, c.to, type(c.value).bytes()});
    }
  }

  Location location(ValueId v) {
    Location l = block(v).home;
    l.offset += offset_[v];
    return l;
  }

  struct Commit {
    ValueId value;
    Location from, to;
  };

  const Program& program_;
  const std::vector<PlannedStep>& steps_;
  const uint32_t rest_, end_;
  std::vector<ValueId> block_of_;    // by value
  std::vector<uint64_t> offset_;     // by value, within its block
  std::vector<Block> blocks_;        // by value
  std::vector<int64_t> state_read_;  // by state: last step that reads the old value; -1 if none
  std::vector<Commit> commits_;
  std::unordered_map<std::string_view, uint32_t> state_numbers_;  // keys refer to the program's names
  std::unordered_set<std::string_view> updated_;
  MemoryPlan plan_;
};

}  // namespace

bool is_view(const Program& program, const Node& node) {
  return node.inputs.size() == 1 && view_offset(program, node).has_value();
}

MemoryPlan plan_memory(const Program& program, const std::vector<PlannedStep>& steps, uint32_t rest) {
  return Planner(program, steps, rest).run();
}

}  // namespace harmonics::engine
