#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "engine/execution/input_prefetch.hpp"
#include "engine/execution/device_plan.hpp"

namespace harmonics::engine {

namespace {

uint64_t aligned(uint64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

class DeviceAssembler : AssemblerOf<DevicePlanParts> {
 public:
  DeviceAssembler(Program program, TensorBinding* binding, KernelSource& kernels, KernelSource* host,
                  const CompileBody& compile_body)
      : AssemblerOf(std::move(program), binding, kernels, compile_body), host_source_(host) {}

  DevicePlanParts run() {
    p_.queue = binding_ ? binding_->queue_on(source_.device()) : std::make_shared<DeviceQueue>(source_.device());
    choose_kernels();
    plan_steps();
    expect_alignment();
    bind_states();
    place_inputs();
    place_constants();
    p_.arena = std::make_unique<DeviceBuffer>(p_.queue, plan_.placement.bytes);
    lay_out_host();
    for (const PlannedCopy& c : plan_.saves) add_copy(c, "keep");
    for (uint32_t s = 0; s < planned_.size(); ++s) add_step(s);
    for (const PlannedCopy& c : plan_.commits) add_copy(c, "store");
    mark_rest();
    name_outputs();
    find_state_places();
    report();
    return std::move(p_);
  }

 private:
  // Returns the kernel of the device, or else of the host device. Null: the function of a plugin or the reference runs
  // the node on the host.
  KernelPtr kernel_for(const Node& node) {
    KernelPtr kernel = source_.find(program(), node);
    if (!kernel && host_source_) kernel = host_source_->find(program(), node);
    return kernel;
  }

  void choose_kernels() {
    for (uint32_t i = 0; i < program().nodes.size(); ++i) {
      const Node& node = program().nodes[i];
      if (!needs_step(program(), node)) continue;
      PlannedStep step{i, 0, 0, false};
      p_.kernels.push_back(kernel_for(node));
      p_.host_kernels.emplace_back();
      const KernelPtr& kernel = p_.kernels.back();
      if (!kernel) p_.host_kernels.back() = host_kernel_of(program(), node, compile_body_);
      if (kernel && kernel->is_queued()) {
        step.workspace = kernel->raw().workspace;
        step.in_place = kernel->raw().in_place;
        step.update_results = update_results(node);
        step.gradient_operands = gradient_operands(node);
      }
      planned_.push_back(step);
    }
  }

  void expect_alignment() const {
    const uint32_t wanted = info_of(*source_.device()).alignment;
    if (wanted > kArenaAlignment)
      throw Error(ErrorKind::Device, fmt::format("device '{}' requires an alignment of {} bytes; the maximum is {}",
                                                 source_.device()->name, wanted, kArenaAlignment));
  }

  void bind_states() {
    for (const MemoryPlan::State& s : plan_.states) {
      states_.push_back(binding_of(s).parameter_on(p_.queue, s.name, s.type));
      p_.updated.push_back(is_updated(program(), s.name));
      p_.used.push_back(states_.back());
      if (p_.updated.back()) p_.changed.push_back(states_.back());
    }
  }

  void place_inputs() {
    name_inputs();
    uint64_t bytes = 0;
    for (const TensorType& t : p_.input_types) bytes += aligned(t.bytes());
    p_.input_buffer = std::make_unique<DeviceBuffer>(p_.queue, bytes);
    uint64_t at = 0;
    for (const TensorType& t : p_.input_types) {
      p_.inputs.push_back({p_.input_buffer->at(at), t.bytes()});
      at += aligned(t.bytes());
    }
  }

  // Packs adjacent small inputs, such as learning rate and step number, for one upload each. Returns the bytes needed.
  // The first call, before host memory exists, only computes them.
  uint64_t pack_inputs(bool has_memory) {
    uint64_t packed = 0;
    const auto is_small = [&](size_t i) { return i < p_.inputs.size() && p_.inputs[i].bytes <= kSmallInput; };
    for (size_t first = 0; first < p_.inputs.size(); ++first) {
      size_t end = first;
      while (is_small(end)) ++end;
      if (end < first + 2) continue;
      for (size_t i = first; i < end; ++i) {
        if (has_memory)
          p_.inputs[i].packed = host_at(packed + p_.inputs[i].place.offset - p_.inputs[first].place.offset);
      }
      p_.inputs[first].packed_bytes =
          p_.inputs[end - 1].place.offset + p_.inputs[end - 1].bytes - p_.inputs[first].place.offset;
      packed += aligned(p_.inputs[first].packed_bytes);
      first = end;
    }
    return packed;
  }

  void place_constants() {
    make_constants();
    constant_offsets_.resize(constants_.size());
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < constants_.size(); ++i) {
      if (!constants_[i]) continue;
      constant_offsets_[i] = bytes;
      bytes += aligned(type_of(constants_[i]).bytes());
    }
    p_.constant_buffer = std::make_unique<DeviceBuffer>(p_.queue, bytes);
    for (uint32_t i = 0; i < constants_.size(); ++i)
      if (constants_[i]) {
        p_.queue->upload(p_.constant_buffer->at(constant_offsets_[i]), constants_[i].bytes(),
                         type_of(constants_[i]).bytes());
        p_.constants.push_back(constants_[i]);
      }
    p_.queue->synchronize();
  }

  hx_place place_of(const Location& l) const {
    switch (l.place) {
      case Place::arena:
        return p_.arena->at(l.offset);
      case Place::constant:
        return p_.constant_buffer->at(constant_offsets_[l.index] + l.offset);
      case Place::state: {
        const hx_place at = states_[l.index]->place();
        return {at.buffer, at.offset + l.offset};
      }
      case Place::input:
        return {p_.inputs[l.index].place.buffer, p_.inputs[l.index].place.offset + l.offset};
      case Place::nowhere:
        break;
    }
    refuse_nowhere();
  }

  bool is_hosted(uint32_t s) const { return !p_.kernels[s] || !p_.kernels[s]->is_queued(); }
  uint64_t host_workspace(uint32_t s) const {
    return p_.kernels[s] ? p_.kernels[s]->raw().workspace : p_.host_kernels[s].workspace;
  }

  // Lays out host memory: a region for packed inputs, one for each result, and one scratch region shared by all hosted
  // steps.
  void lay_out_host() {
    results_ = pack_inputs(false);
    uint64_t results = results_, most = 0;
    for (const NamedValue& output : program().outputs) results += aligned(program().type(output.value).bytes());
    for (uint32_t s = 0; s < planned_.size(); ++s) {
      if (!is_hosted(s)) continue;
      uint64_t bytes = aligned(host_workspace(s));
      for (ValueId v : node_of(s).inputs) bytes += aligned(program().type(v).bytes());
      for (ValueId v : node_of(s).outputs) bytes += aligned(program().type(v).bytes());
      most = std::max(most, bytes);
    }
    p_.host = std::make_shared<HostMemory>(p_.queue, results + most);
    scratch_ = results;
    pack_inputs(true);
  }
  std::byte* host_at(uint64_t offset) const { return p_.host->at(offset); }

  void add_step(uint32_t s) {
    const Node& node = node_of(s);
    PlanStep text = text_of_step(s);
    text.on_host = is_hosted(s);
    text.phases = text.parts = 1;
    DeviceStep step;
    if (is_hosted(s)) {
      step.hosted = host_step(s);
    } else {
      step.kernel = &p_.kernels[s]->raw();
      for (ValueId v : node.inputs) step.places.push_back(place_of(plan_.values[v]));
      for (ValueId v : node.outputs) step.places.push_back(place_of(plan_.values[v]));
      step.places.push_back(place_of(plan_.workspaces[s]));
    }
    step.changes = std::any_of(node.outputs.begin(), node.outputs.end(),
                               [&](ValueId v) { return plan_.values[v].place == Place::state; });
    describe(std::move(text), plan_.values[node.outputs.at(0)], plan_.in_place[s]);
    p_.steps.push_back(std::move(step));
  }

  const HostedStep* host_step(uint32_t s) {
    const Node& node = node_of(s);
    auto hosted = std::make_unique<HostedStep>();
    if (const KernelPtr& kernel = p_.kernels[s]) {
      const hx_kernel& raw = kernel->raw();
      hosted->run = raw.run;
      hosted->context = raw.context;
      hosted->phases = raw.phases;
      std::copy_n(raw.parts, HX_MAX_PHASES, hosted->parts);
    } else {
      hosted->run = p_.host_kernels[s].run;
      hosted->context = p_.host_kernels[s].context.get();
      hosted->phases = hosted->parts[0] = 1;
    }
    uint64_t at = scratch_;
    const auto add = [&](ValueId v, std::vector<Transfer>& transfers) {
      const uint64_t bytes = program().type(v).bytes();
      hosted->buffers.push_back(host_at(at));
      if (bytes) transfers.push_back({place_of(plan_.values[v]), host_at(at), bytes});
      at += aligned(bytes);
    };
    for (ValueId v : node.inputs) add(v, hosted->in);
    for (ValueId v : node.outputs) add(v, hosted->out);
    hosted->buffers.push_back(host_at(at));
    p_.hosted.push_back(std::move(hosted));
    return p_.hosted.back().get();
  }

  void add_copy(const PlannedCopy& copy, const char* what) {
    DeviceStep step;
    step.places = {place_of(copy.from), place_of(copy.to)};
    step.bytes = copy.bytes;
    step.changes = copy.to.place == Place::state;
    p_.steps.push_back(std::move(step));
    PlanStep text = text_of_copy(copy, what);
    text.phases = text.parts = 1;
    describe(std::move(text), copy.to, false);
  }

  // Returns whether the value is computed after the forward pass. Other values are available between the halves of a
  // run.
  bool is_later(ValueId v) const {
    const Node* maker = &program().producer(v);
    while (is_view(program(), *maker)) maker = &program().producer(maker->inputs[0]);
    const auto node = static_cast<uint32_t>(maker - program().nodes.data());
    const auto step =
        std::find_if(planned_.begin(), planned_.end(), [&](const PlannedStep& s) { return s.node == node; });
    return step != planned_.end() && step - planned_.begin() >= rest_;
  }

  void name_outputs() {
    uint64_t at = results_;
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const NamedValue& output = program().outputs[i];
      const TensorType& type = program().type(output.value);
      const Transfer t{place_of(plan_.outputs[i]), host_at(at), type.bytes()};
      (is_later(output.value) ? p_.later : p_.results).push_back(t);
      p_.outputs.emplace(output.name, view_of(type, t.host, p_.host));
      at += aligned(type.bytes());
    }
  }

  // Records all operands that are part of a state. Each state has its own buffer, which contains nothing else. The
  // recorded pointers stay valid when the parts are moved.
  void find_state_places() {
    std::map<uint64_t, uint32_t> state_in;
    for (uint32_t i = 0; i < states_.size(); ++i)
      if (const uint64_t buffer = states_[i]->place().buffer) state_in.emplace(buffer, i);
    const auto look_at = [&](hx_place& place) {
      if (const auto at = state_in.find(place.buffer); at != state_in.end())
        p_.state_places.push_back({&place, at->second, place.offset - states_[at->second]->place().offset});
    };
    for (DeviceStep& step : p_.steps)
      for (hx_place& place : step.places) look_at(place);
    for (const auto& hosted : p_.hosted)
      for (std::vector<Transfer>* transfers : {&hosted->in, &hosted->out})
        for (Transfer& t : *transfers) look_at(t.place);
    for (std::vector<Transfer>* transfers : {&p_.results, &p_.later})
      for (Transfer& t : *transfers) look_at(t.place);
  }

  KernelSource* host_source_;
  std::vector<uint64_t> constant_offsets_;  // by node
  std::vector<std::shared_ptr<DeviceTensor>> states_;
  uint64_t results_ = 0, scratch_ = 0;  // offsets in host memory: results, scratch of hosted steps
};

}  // namespace

DevicePlanParts assemble_on_device(Program program, TensorBinding* binding, KernelSource& kernels, KernelSource* host,
                                   const CompileBody& compile_body) {
  return DeviceAssembler(std::move(program), binding, kernels, host, compile_body).run();
}

}  // namespace harmonics::engine
