#include <algorithm>
#include <map>
#include <set>

#include <fmt/core.h>

#include "engine/execution/compiled_plan.hpp"
#include "engine/execution/step_order.hpp"
#include "engine/execution/work.hpp"

namespace harmonics::engine {

uint32_t update_results(const Node& node) {
  const auto results = static_cast<uint32_t>(node.outputs.size());
  const FunctionalPtr f = called_by(node);
  switch (f ? f->traits.update : UpdateKind::none) {
    case UpdateKind::none:
      return 0;
    case UpdateKind::one:
      return results;
    case UpdateKind::several:
      return results / static_cast<uint32_t>(node.attributes.integer("parameters"));
    case UpdateKind::factored:
      return results - (node.attributes.text("input_gradient", "").empty() ? 0 : 1);
  }
  return 0;
}
uint32_t gradient_operands(const Node& node) {
  const FunctionalPtr f = called_by(node);
  return f && f->traits.update == UpdateKind::factored ? 2 : 1;
}
bool needs_step(const Program& program, const Node& node) {
  return !is_leaf(node.op) && !is_constant(node.op) && !is_view(program, node);
}
bool is_updated(const Program& program, const std::string& name) {
  return std::any_of(program.updates.begin(), program.updates.end(),
                     [&](const NamedValue& update) { return update.name == name; });
}
uint32_t first_of_rest(const Program& program, const std::vector<PlannedStep>& steps) {
  const auto later = std::find_if(steps.begin(), steps.end(),
                                  [&](const PlannedStep& s) { return !is_forward(program, program.nodes[s.node]); });
  return static_cast<uint32_t>(later - steps.begin());
}

namespace {

class Assembler : AssemblerOf<PlanParts> {
 public:
  Assembler(Program program, TensorBinding* binding, KernelSource& kernels, const CompileBody& compile_body,
            int threads, bool plan_only)
      : AssemblerOf(std::move(program), binding, kernels, compile_body), threads_(threads), plan_only_(plan_only) {}

  PlanParts run() {
    turns_ = changed_bytes(program()) <= kMostTurned;
    choose_kernels();
    if (threads_ > 1 && constant_bytes() >= kBeyondCaches) order_for_threads();
    plan_steps();
    allocate();
    for (const PlannedCopy& c : plan_.saves) add_copy(c, "keep");
    for (uint32_t s = 0; s < planned_.size(); ++s) add_step(s);
    for (const PlannedCopy& c : plan_.commits) add_copy(c, "store");
    mark_rest();
    bind_packed();
    point_steps();
    name_inputs();
    name_outputs();
    report();
    return std::move(p_);
  }

 private:
  // Returns the parameter node that produces the value if no program changes the parameter; otherwise null.
  const Node* constant_parameter(ValueId v) const {
    const Node& maker = program().producer(v);
    const bool fixed = maker.op == Op::parameter && binding_ && !is_updated(program(), maker.callee) &&
                       binding_->is_constant(maker.callee);
    return fixed ? &maker : nullptr;
  }
  uint64_t constants_of(const Node& node) const {
    uint64_t bits = 0;
    for (size_t i = 0; i < std::min<size_t>(node.inputs.size(), 64); ++i)
      if (constant_parameter(node.inputs[i])) bits |= uint64_t{1} << i;
    return bits;
  }

  uint64_t constant_bytes() const {
    std::map<std::string, uint64_t> bytes;
    for (const PlannedStep& s : planned_)
      for (const ValueId v : program().nodes[s.node].inputs)
        if (const Node* parameter = constant_parameter(v)) bytes[parameter->callee] = program().type(v).bytes();
    uint64_t all = 0;
    for (const auto& [name, one] : bytes) all += one;
    return all;
  }

  void choose_kernels() {
    for (uint32_t i = 0; i < program().nodes.size(); ++i) {
      const Node& node = program().nodes[i];
      if (!needs_step(program(), node)) continue;
      PlannedStep step{i, 0, 0, false};
      p_.kernels.push_back(source_.find(program(), node, constants_of(node)));
      p_.host_kernels.emplace_back();
      if (const KernelPtr& kernel = p_.kernels.back()) {
        step.workspace = kernel->raw().workspace;
        step.in_place = kernel->raw().in_place;
        step.update_results = update_results(node);
        step.gradient_operands = gradient_operands(node);
      } else {
        p_.host_kernels.back() = host_kernel_of(program(), node, compile_body_);
        step.workspace = p_.host_kernels.back().workspace;
      }
      planned_.push_back(step);
    }
  }

  // Steps of one kernel that may run at the same time get kernels of their own.
  void order_for_threads() {
    std::vector<bool> alone;
    for (const KernelPtr& kernel : p_.kernels) alone.push_back(!kernel);
    std::vector<PlannedStep> planned;
    std::vector<KernelPtr> kernels;
    std::vector<HostKernel> host_kernels;
    std::map<const Kernel*, uint32_t> beside;  // by kernel: steps that it runs of those that may run at the same time
    for (const auto [s, joins] : order_steps(program(), planned_, alone, first_of_rest(program(), planned_))) {
      if (!joins) beside.clear();
      const Node& node = node_of(s);
      KernelPtr& kernel = p_.kernels[s];
      const uint32_t instance = kernel ? beside[kernel.get()]++ : 0;
      planned.push_back(planned_[s]);
      planned.back().joins = joins;
      kernels.push_back(instance == 0 ? kernel : source_.find(program(), node, constants_of(node), instance));
      host_kernels.push_back(std::move(p_.host_kernels[s]));
    }
    planned_ = std::move(planned), p_.kernels = std::move(kernels), p_.host_kernels = std::move(host_kernels);
  }

  void allocate() {
    p_.arena = plan_only_ ? Storage::reserved(plan_.placement.bytes) : std::make_shared<Storage>(plan_.placement.bytes);
    make_constants();
    for (const MemoryPlan::State& s : plan_.states) {
      TensorBinding& binding = binding_of(s);
      states_.push_back(binding.parameter(s.name, s.type));
      p_.users.push_back(binding.user_of(s.name));
    }
    p_.homes = states_;
  }

  // Returns the address of a location. Null for an input: each run sets its pointer.
  void* address(const Location& l) const {
    switch (l.place) {
      case Place::arena:
        return static_cast<std::byte*>(p_.arena->data()) + l.offset;
      case Place::state:
        return static_cast<std::byte*>(states_[l.index]) + l.offset;
      case Place::constant:
        return static_cast<std::byte*>(const_cast<void*>(constants_[l.index].bytes())) + l.offset;
      case Place::input:
        return nullptr;
      case Place::nowhere:
        break;
    }
    refuse_nowhere();
  }

  void add_pointer(const Location& l, uint64_t bytes, bool written) {
    if (l.place == Place::input) p_.inputs.push_back({static_cast<uint32_t>(p_.pointers.size()), l.index, l.offset});
    if (l.place == Place::state)
      p_.state_slots.push_back({static_cast<uint32_t>(p_.pointers.size()), l.index, l.offset});
    p_.pointers.push_back(address(l));
    // read-only or empty memory causes no conflicts
    if (l.place == Place::input || l.place == Place::constant || bytes == 0) return;
    const auto* begin = static_cast<const std::byte*>(p_.pointers.back());
    p_.access.back().spans.push_back({begin, begin + bytes, written});
  }
  void add_pointer(ValueId v, bool written) { add_pointer(plan_.values[v], program().type(v).bytes(), written); }

  void begin_step(KernelStep step, double nanoseconds, bool alone) {
    firsts_.push_back(p_.pointers.size());
    p_.steps.push_back(step);
    p_.access.push_back({{}, nanoseconds, alone});
  }
  static KernelStep host_step(const HostKernel& kernel) {
    return {kernel.run, kernel.context.get(), nullptr, 1, {1, 0, 0, 0}};
  }

  // Estimates nanoseconds at 20 operations or 10 bytes of memory traffic per nanosecond.
  double estimate(const Node& node) const {
    const Work work = work_of(program(), node);
    return std::max(work.flops() / 20, work.bytes / 10);
  }

  void add_step(uint32_t s) {
    const Node& node = node_of(s);
    if (const KernelPtr& kernel = p_.kernels[s]) {
      const hx_kernel& raw = kernel->raw();
      begin_step({raw.run, raw.context, nullptr, raw.phases, {raw.parts[0], raw.parts[1], raw.parts[2], raw.parts[3]}},
                 estimate(node), false);
      p_.steps.back().turns = p_.access.back().turns = turns_ && planned_[s].update_results > 0;
    } else {
      begin_step(host_step(p_.host_kernels[s]), 0, true);  // code of a plugin, or the reference
    }
    for (ValueId v : node.inputs) add_pointer(v, false);
    for (ValueId v : node.outputs) add_pointer(v, true);
    add_pointer(plan_.workspaces[s], planned_[s].workspace, true);
    if (p_.kernels[s] && p_.kernels[s]->raw().packed_bytes) add_packed(node, p_.kernels[s]->raw());
    describe_last(text_of_step(s), plan_.values[node.outputs.at(0)], plan_.in_place[s]);
  }

  // The pointer to the packed form is set by bind_packed().
  void add_packed(const Node& node, const hx_kernel& raw) {
    const Node* parameter = constant_parameter(node.inputs.at(raw.packed_input));
    const auto pack = [&raw](const void* elements, uint64_t piece, void* to) {
      raw.pack(raw.context, elements, piece, to);
    };
    wanted_.push_back({parameter->callee, {raw.packing, raw.packed_bytes, raw.packed_piece, pack}});
    p_.packed.push_back({static_cast<uint32_t>(p_.steps.size() - 1), nullptr});
    packed_pointers_.push_back(p_.pointers.size());
    p_.pointers.push_back(nullptr);
    for (size_t i = 0; i < plan_.states.size(); ++i)
      if (plan_.states[i].name == parameter->callee) p_.packed_states.push_back(i);
  }

  void bind_packed() {
    if (wanted_.empty()) return;
    const auto forms = binding_->packed(wanted_);
    std::set<const Storage*> counted;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (!forms[i])
        throw Error(ErrorKind::Internal, fmt::format("the binding of '{}' has no packed form", wanted_[i].name));
      p_.pointers[packed_pointers_[i]] = forms[i]->data();
      if (counted.insert(forms[i].get()).second) p_.memory.packed_bytes += wanted_[i].packing.bytes;
      p_.packed[i].form = forms[i];
    }
  }

  void add_copy(const PlannedCopy& copy, const char* what) {
    p_.host_kernels.push_back(copy_kernel(copy.bytes));
    begin_step(host_step(p_.host_kernels.back()), 0, false);
    add_pointer(copy.from, copy.bytes, false);
    add_pointer(copy.to, copy.bytes, true);
    describe_last(text_of_copy(copy, what), copy.to, false);
  }

  void describe_last(PlanStep text, const Location& l, bool in_place) {
    const KernelStep& step = p_.steps.back();
    text.phases = step.phases;
    text.parts = *std::max_element(step.parts, step.parts + step.phases);
    describe(std::move(text), l, in_place);
  }

  void point_steps() {
    for (size_t i = 0; i < p_.steps.size(); ++i) p_.steps[i].buffers = p_.pointers.data() + firsts_[i];
    for (HTensor& c : constants_)
      if (c) p_.constants.push_back(c);
  }

  void name_outputs() {
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const NamedValue& output = program().outputs[i];
      const TensorType& type = program().type(output.value);
      const Location& at = plan_.outputs[i];
      p_.outputs.emplace(output.name, view_of(type, address(at), p_.arena));
      if (at.place == Place::state) p_.state_outputs.push_back({output.name, type, at.index, at.offset});
    }
  }

  // Of more changed memory, a second-level cache keeps too little from run to run for turned_part() to gain.
  static constexpr uint64_t kMostTurned = 8u << 20;

  int threads_;
  bool plan_only_, turns_ = false;
  std::vector<void*> states_;
  std::vector<size_t> firsts_;  // by step: index of its first pointer
  std::vector<PackedParameter> wanted_;
  std::vector<size_t> packed_pointers_;  // by packed operand: index of its pointer
};

}  // namespace

PlanParts assemble(Program program, TensorBinding* binding, KernelSource& kernels, const CompileBody& compile_body,
                   int threads, bool plan_only) {
  return Assembler(std::move(program), binding, kernels, compile_body, threads, plan_only).run();
}

}  // namespace harmonics::engine
