#include "engine/training/step_memory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <harmonics/element_type.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/functional.hpp"

namespace harmonics::engine {

namespace {

struct UsualName {
  const char* operation;
  const char *result, *input;  // names of its result, and of the input of its maps; null: none
};
constexpr UsualName kUsualNames[] = {
    {"LN1", "ln1.output", nullptr},
    {"LN2", "ln2.output", nullptr},
    {"ResidualLN2", "ln2.output", nullptr},
    {"QKV", "qkv_output", "qkv_input"},
    {"QKNorm", "qkv_output", nullptr},
    {"RoPE", "qkv_output", nullptr},
    {"Attention", "attention_out", nullptr},
    {"AttnOut", "attention_residual", "attention_out"},
    {"ResidualAdd", "residual", nullptr},
    {"MLPUp", "mlp_up_output", "mlp_up_input"},
    {"SwiGLU", "mlp_down_input", nullptr},
    {"GEGLU", "mlp_down_input", nullptr},
    {"GELU", "mlp_down_input", nullptr},
    {"ReLU", "mlp_down_input", nullptr},
    {"MLPDown", "mlp_residual", "mlp_down_input"},
    {"Router", "router_output", "router_input"},
    {"Experts", "experts_output", "experts_input"},
    {"Combine", "experts_output", "experts_input"},
};

const UsualName* usual(const std::string& operation) {
  const auto at = std::find_if(std::begin(kUsualNames), std::end(kUsualNames),
                               [&](const UsualName& name) { return name.operation == operation; });
  return at == std::end(kUsualNames) ? nullptr : at;
}

bool is_map(const Node& node) {
  const BlockPart part = part_of(node);
  return node.op == Op::dot || part == BlockPart::map || part == BlockPart::product;
}

// Returns "mean", "rstd" or "lse" if the functional's signature names this result so; otherwise "".
std::string statistic_of(const Node& maker, uint32_t output) {
  const FunctionalPtr functional = called_by(maker);
  if (!functional || output >= functional->signature.results.size()) return "";
  const std::string& name = functional->signature.results[output].name;
  return name == "mean" || name == "rstd" || name == "lse" ? name : "";
}

std::string statistic_name(const std::string& statistic, const std::string& operation) {
  if (statistic == "lse") return statistic;
  const std::string of = operation == "LN1"                                 ? "ln1."
                         : operation == "LN2" || operation == "ResidualLN2" ? "ln2."
                         : operation.empty()                                ? ""
                                                                            : operation + ".";
  return of + statistic;
}

double per_layer(const std::vector<KeptValue>& kept, uint64_t (KeptValue::*bytes)() const) {
  std::set<std::string> layers;
  double sum = 0;
  for (const KeptValue& value : kept) {
    if (value.layer.empty()) continue;
    layers.insert(value.layer);
    sum += static_cast<double>((value.*bytes)());
  }
  return layers.empty() ? 0 : sum / static_cast<double>(layers.size());
}

}  // namespace

std::pair<std::string, std::string> layer_and_operation(const std::string& path) {
  constexpr std::string_view kBlock = "blk.";
  size_t at = 0;  // in a flow the arrow's scope precedes the block's
  if (!path.starts_with(kBlock)) {
    at = path.find(".blk.");
    if (at == std::string::npos) return {"", path};
    ++at;
  }
  const size_t end = path.find('.', at + kBlock.size());
  if (end == std::string::npos) return {path, ""};
  return {path.substr(0, end), path.substr(end + 1)};
}

uint64_t KeptValue::bytes_in_16_bits() const {
  if (statistic || !is_float(type.dtype)) return type.bytes();
  return std::min(type.bytes(), static_cast<uint64_t>(type.shape.count()) * 2);
}

std::vector<KeptValue> kept_values(const Program& program) {
  std::vector<bool> is_kept(program.values.size(), false);
  std::map<ValueId, std::set<std::string>> readers;  // by value: maps of the forward pass that read it
  for (const Node& node : program.nodes) {
    const bool forward = is_forward(program, node);
    for (const ValueId input : node.inputs) {
      const ValueId v = behind_views(program, input);
      const Node& maker = program.nodes[program.values[v].node];
      if (is_leaf(maker.op) || is_constant(maker.op) || !is_forward(program, maker)) continue;
      if (!forward)
        is_kept[v] = true;
      else if (is_map(node))
        readers[v].insert(layer_and_operation(program.scope_of(node).path).second);
    }
  }
  std::vector<KeptValue> all;
  for (ValueId v = 0; v < program.values.size(); ++v) {
    if (!is_kept[v]) continue;
    const ValueInfo& info = program.values[v];
    const Node& maker = program.nodes[info.node];
    KeptValue kept;
    std::tie(kept.layer, kept.operation) = layer_and_operation(program.scope_of(maker).path);
    kept.scope = program.scope_of(maker).text();
    kept.type = info.type;
    const std::string statistic = statistic_of(maker, info.output);
    kept.statistic = !statistic.empty();
    const UsualName* name = usual(kept.operation);
    kept.name = kept.statistic ? statistic_name(statistic, kept.operation) : name ? name->result : kept.operation;
    for (const std::string& reader : readers[v])
      if (const UsualName* of = usual(reader); of && of->input && !kept.statistic && of->input != kept.name)
        kept.inputs.emplace_back(of->input);
    all.push_back(std::move(kept));
  }
  return all;
}

uint64_t StepMemory::kept_bytes() const {
  uint64_t sum = 0;
  for (const KeptValue& value : kept) sum += value.bytes();
  return sum;
}

uint64_t StepMemory::bytes_per_layer() const { return static_cast<uint64_t>(per_layer(kept, &KeptValue::bytes)); }

uint64_t StepMemory::bytes_per_layer_in_16_bits() const {
  return static_cast<uint64_t>(per_layer(kept, &KeptValue::bytes_in_16_bits));
}

std::vector<StepMemory> step_memory(const Program& step, TensorBinding& binding, const CompileOptions& compile_as,
                                    const std::vector<std::string>& recompute) {
  std::vector<StepMemory> all;
  const auto executor = make_sequential_executor();
  for (const std::string& preset : recompute) {
    CompileOptions options = compile_as;
    options.recomputation = preset;
    options.training = options.plan_only = true;
    const auto plan = compile(step, &binding, *executor, options);
    all.push_back({preset, kept_values(plan->program()), plan->memory()});
  }
  return all;
}

Model planned_model(const Model& model, const EntrySizes& sizes) {
  Model planned = model;
  planned.parameters = std::make_shared<ParameterStore>();
  planned.parameters->reserve_only();
  planned.made = {};
  const auto declare = [&](const std::string& name, const TensorType& type) {
    const bool trained = is_float(type.dtype) && element_type(type.dtype).block == 1;
    StoredTensor& stored =
        planned.parameters->declare(name, type, trained ? Role::weight : Role::frozen, {HX_INIT_CONSTANT, 0, 0}, 0);
    stored.fixed = !trained;
  };
  for (const auto& [name, tensor] : model.parameters->all()) declare(name, tensor.type);
  const Program loss = planned.trace(planned.entry("loss"), sizes);
  for (const Node* leaf : loss.leaves(Op::parameter)) declare(leaf->callee, loss.type(leaf->outputs.at(0)));
  return planned;
}

}  // namespace harmonics::engine
