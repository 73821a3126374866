#include "engine/transformer/ndsl_block.hpp"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/program/functional.hpp"
#include "engine/transformer/named_activation.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr int kDeepestNeuron = 16;
constexpr size_t kMostParts = 1000;  // per layer

struct StepRow {
  const char* op;
  const char* group;  // name of its tensor group; "": a norm or a residual sum
  NdslFamily family;
  std::vector<std::string> expands_to;
};

const std::vector<StepRow>& step_rows() {
  using F = NdslFamily;
  static const std::vector<StepRow> kRows = {
      {"RMSNorm", "", F::norm, {}},
      {"LayerNorm", "", F::norm, {}},
      {"CausalSelfAttention", "attention", F::attention, {"QKV", "RoPE", "Attention", "AttnOut"}},
      {"SelfAttention", "attention", F::attention, {"QKV", "Attention", "AttnOut"}},
      {"SwiGLU_FFN", "mlp", F::feed_forward, {"MLPUp", "SwiGLU", "MLPDown"}},
      {"GEGLU_FFN", "mlp", F::feed_forward, {"MLPUp", "GEGLU", "MLPDown"}},
      {"GELU_FFN", "mlp", F::feed_forward, {"MLPUp", "GELU", "MLPDown"}},
      {"ReLU_FFN", "mlp", F::feed_forward, {"MLPUp", "ReLU", "MLPDown"}},
      {"MoE_FFN", "moe", F::experts, {"Router", "Experts", "Combine"}}};
  return kRows;
}

const BlockRow* block_row(const std::string& name) {
  for (const BlockRow& row : block_rows())
    if (name == row.name) return &row;
  return nullptr;
}

bool is_norm_step(const ndsl::Operation& step) { return step.op.text == "RMSNorm" || step.op.text == "LayerNorm"; }

}  // namespace

NdslBlock::NdslBlock(const ndsl::ModelFile& file, const ndsl::Block& block, const NdslSettings& settings, bool experts,
                     NdslFaults& faults)
    : file_(file), settings_(settings), experts_(experts), faults_(faults), variant_(file.variant.text) {
  const size_t before = faults_.count();
  expand(block, 0);
  sound_ = sound_ && faults_.count() == before && !faults_.doubts("operations");
  if (!sound_) faults_.doubt("operations");
  if (parts_.empty()) return;
  // The residual sum at the end of a block may be omitted.
  const Part& last = parts_.back();
  const bool sums = last.kind == Kind::residual || (last.step.output && last.step.output->text == "residual");
  if (!sums) {
    ndsl::Operation sum;
    sum.op = {"ResidualAdd", last.step.place};
    sum.place = last.step.place;
    add(sum);
  }
  if (variant_ != "parallel" && parts_.back().kind == Kind::residual) parts_.back().printed = false;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!fuses(i)) continue;
    parts_[i - 1].printed = false;
    parts_[i].ops.front().name = "ResidualLN2";
  }
  if (variant_ == "moe" && !has_experts_) variant_ = "dense";
  check_hints();
}

// Returns whether this part is the block's second norm directly after a residual sum: both form one operation.
bool NdslBlock::fuses(size_t part) const {
  if (part == 0 || variant_ == "parallel" || parts_[part].kind != Kind::norm) return false;
  const Part& norm = parts_[part];
  return parts_[part - 1].kind == Kind::residual && norm.ops.front().name == "LN2" && !norm.step.reads_from &&
         !norm.step.output;
}

void NdslBlock::expand(const ndsl::Block& block, int depth) {
  for (const ndsl::Operation& step : block) {
    const auto neuron = file_.neurons.find(step.op.text);
    if (neuron == file_.neurons.end()) {
      add(step);
    } else if (depth >= kDeepestNeuron) {
      faults_.add(step.place,
                  fmt::format("the neuron {} contains itself, or too many others", shown_name(step.op.text)));
    } else {
      expand(neuron->second, depth + 1);
    }
    if (parts_.size() > kMostParts) {
      faults_.add(step.place, fmt::format("a layer has more than {} operations", kMostParts));
      faults_.throw_any();
    }
  }
}

std::string NdslBlock::group_of(const ndsl::Operation& step, const char* usual) {
  const std::string group = step.name.empty() ? usual : step.name;
  if (std::find(groups_.begin(), groups_.end(), group) != groups_.end())
    faults_.add(step.place, fmt::format("two operations of a layer are called {}", shown_name(group)),
                "give one of them another 'name'");
  groups_.push_back(group);
  return group;
}

void NdslBlock::add(const ndsl::Operation& step) {
  const std::string& op = step.op.text;
  if (is_norm_step(step)) return add_norm(step);
  if (op == "ResidualAdd") {
    parts_.push_back({Kind::residual, step, {}, {}, true});
    return;
  }
  if (op == "Select") {
    parts_.push_back({Kind::select, step, ndsl_level(step.config, true, faults_), {}, true});
    return;
  }
  for (const StepRow& row : step_rows()) {
    if (op != row.op) continue;
    const bool feeds = row.family == NdslFamily::feed_forward || row.family == NdslFamily::experts;
    if (feeds) add_implied(step);
    if (row.family != NdslFamily::experts) return add_sublayer(step, row.group, row.expands_to, row.family);
    if (experts_) {
      has_experts_ = true;
      return add_sublayer(step, row.group, row.expands_to, row.family);
    }
    ndsl::Operation dense = step;  // in a layer without experts
    dense.op.text = "SwiGLU_FFN";
    dense.expands_to.clear();
    for (const char* key : {"num_experts",
                            "top_k",
                            "num_experts_per_tok",
                            "norm_topk_prob",
                            "moe_intermediate_size",
                            "scoring_func",
                            "routed_scaling_factor",
                            "use_router_bias",
                            "n_group",
                            "topk_group",
                            "num_shared_experts",
                            "n_shared_experts",
                            "shared_expert_intermediate_size",
                            "use_shared_expert_gate",
                            "routing",
                            "capacity_factor",
                            "expert_capacity_factor",
                            "moe_expert_capacity_factor",
                            "router_aux_loss_coef",
                            "router_z_loss_coef"})
      dense.config.erase(key);
    return add_sublayer(dense, "mlp", {"MLPUp", "SwiGLU", "MLPDown"}, NdslFamily::feed_forward);
  }
  if (FunctionalTable::global().find(op) || activation_named(op)) {
    parts_.push_back({Kind::call, step, {}, {}, true});
    return;
  }
  std::vector<std::string> known{"ResidualAdd", "Select"};
  for (const StepRow& row : step_rows()) known.emplace_back(row.op);
  for (const auto& [name, steps] : file_.neurons) known.push_back(name);
  std::string meant = did_you_mean(op, known);
  if (meant.empty()) {
    std::string names = comma_separated(known);
    known = FunctionalTable::global().names();
    for (std::string& activation : Registry::global().names(HX_ACTIVATION)) known.push_back(std::move(activation));
    meant = did_you_mean(op, known);
    if (meant.empty())
      meant = "operations: " + names + ", and every functional and activation: harmonics list functionals, activations";
  }
  sound_ = false;
  if (!faults_.doubts({"extends", "import", "neurons"}))
    faults_.add(step.op.place, fmt::format("there is no operation {}", shown_name(op)), meant);
}

// Adds the residual sum and the second norm, which may be omitted between an attention and a feed-forward network.
void NdslBlock::add_implied(const ndsl::Operation& before) {
  if (variant_ == "parallel" || parts_.empty() || before.reads_from) return;
  const Part& last = parts_.back();
  if (last.kind != Kind::sublayer || last.ops.empty() ||
      block_row(last.ops.front().name)->family != NdslFamily::attention)
    return;
  if (last.step.branch || last.step.output) return;
  const auto norm = std::find_if(parts_.begin(), parts_.end(), [](const Part& p) { return p.kind == Kind::norm; });
  ndsl::Operation sum, second;
  sum.op = {"ResidualAdd", before.place};
  sum.place = second.place = before.place;
  second.op = {norm == parts_.end() ? "RMSNorm" : norm->step.op.text, before.place};
  second.name = "ln2";
  if (norm != parts_.end()) second.config = norm->step.config;
  add(sum);
  add(second);
}

void NdslBlock::add_norm(const ndsl::Operation& step) {
  const std::map<std::string, std::string> names{
      {"ln1", "LN1"}, {"ln2", "LN2"}, {"post_attention_norm", "PostAttnNorm"}, {"post_mlp_norm", "PostMLPNorm"}};
  std::string usual = "ln1";
  for (const std::string& group : groups_)
    if (group == "ln1") usual = "ln2";
  const std::string group = group_of(step, usual.c_str());
  const auto at = names.find(group);
  Part part{Kind::norm, step, ndsl_level(step.config, true, faults_), {}, true};
  part.ops.push_back({at == names.end() ? "Norm" : at->second, nullptr, group});
  if (!step.expands_to.empty())
    faults_.add(step.expands_to.front().place, "a norm is one operation and expands to nothing");
  parts_.push_back(std::move(part));
}

void NdslBlock::add_sublayer(const ndsl::Operation& step, const char* group, const std::vector<std::string>& usual,
                             NdslFamily family) {
  Part part{Kind::sublayer, step, ndsl_level(step.config, true, faults_), {}, true};
  const std::string name = group_of(step, group);
  std::vector<std::string> ops = usual;
  if (!step.expands_to.empty()) ops.clear();
  for (const ndsl::Named& op : step.expands_to) {
    const BlockRow* row = block_row(op.text);
    if (row && row->family == family) {
      ops.push_back(op.text);
      continue;
    }
    std::vector<std::string> known;
    for (const BlockRow& one : block_rows())
      if (one.family == family) known.emplace_back(one.name);
    const std::string meant = did_you_mean(op.text, known);
    faults_.add(op.place,
                row ? fmt::format("{} is not a part of {}", op.text, step.op.text)
                    : fmt::format("there is no block operation {}", shown_name(op.text)),
                meant.empty() ? "its parts: " + comma_separated(known) : meant);
  }
  if (family == NdslFamily::attention) {
    const NdslSettings own = settings_.over(part.config, step.place, true);
    const bool given = std::find(ops.begin(), ops.end(), "QKNorm") != ops.end();
    if (own.truth("use_qk_norm", false) && !given && !ops.empty()) ops.insert(ops.begin() + 1, "QKNorm");
    qk_norm_ = qk_norm_ || given || own.truth("use_qk_norm", false);
  }
  if (family == NdslFamily::experts && !ops.empty()) {
    const NdslSettings own = settings_.over(part.config, step.place, true);
    const bool given = std::find(ops.begin(), ops.end(), "SharedExperts") != ops.end();
    if (has_shared_experts(own) && !given) ops.insert(ops.end() - 1, "SharedExperts");
  }
  for (const std::string& op : ops) part.ops.push_back({op, nullptr, name});
  parts_.push_back(std::move(part));
}

void NdslBlock::check_hints() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const ndsl::Operation& step = parts_[i].step;
    const bool is_call = parts_[i].kind == Kind::call;
    if (step.fused_with_next) {
      const ndsl::Named& next = *step.fused_with_next;
      const bool follows =
          i + 1 < parts_.size() && parts_[i + 1].kind == Kind::norm && parts_[i + 1].ops.front().group == next.text;
      if (!follows && sound_)
        faults_.add(next.place, fmt::format("the next operation is not a norm called {}", shown_name(next.text)));
      if (parts_[i].kind != Kind::residual)
        faults_.add(step.place,
                    fmt::format("{} cannot be fused with the next operation; a ResidualAdd can", step.op.text));
    }
    if (sound_ && step.fused_with_residual &&
        (parts_[i].kind != Kind::norm || i == 0 || parts_[i - 1].kind != Kind::residual))
      faults_.add(step.place, "fused_with_residual is for a norm directly behind a ResidualAdd");
    if (parts_[i].kind == Kind::residual && !step.config.empty())
      faults_.add(step.config.begin()->second.place, "ResidualAdd has no settings");
    const bool of_one = parts_[i].kind == Kind::residual || parts_[i].kind == Kind::select || is_call;
    if (of_one && !step.expands_to.empty())
      faults_.add(step.expands_to.front().place,
                  fmt::format("{} is one operation and expands to nothing", step.op.text));
    if (parts_[i].kind == Kind::select && step.inputs.size() != 2)
      faults_.add(step.place, fmt::format("Select takes two values, not {}", step.inputs.size()),
                  "inputs: [a, b]; the result is a where the value that it reads is above 'above', and b elsewhere");
    if (parts_[i].kind != Kind::residual && parts_[i].kind != Kind::select && !step.inputs.empty())
      faults_.add(step.inputs.front().place, "'inputs' is for ResidualAdd and Select",
                  "another operation has 'reads_from'");
    if (parts_[i].kind == Kind::residual && step.reads_from && !step.inputs.empty())
      faults_.add(step.reads_from->place, "'reads_from' has no effect beside 'inputs'", "leave one of them out");
    if (!is_call && !step.weights.empty())
      faults_.add(step.place, fmt::format("{} has its own weights; 'weights' is for functionals", step.op.text));
  }
}

BlockSpec NdslBlock::spec() const {
  BlockSpec spec{variant_, {}, qk_norm_, variant_ == "dense"};
  for (const Part& part : parts_) {
    if (!part.printed) continue;
    if (part.kind == Kind::residual) spec.forward_ops.emplace_back("ResidualAdd");
    if (part.kind == Kind::call || part.kind == Kind::select) spec.forward_ops.push_back(part.step.op.text);
    for (const BlockOp& op : part.ops) spec.forward_ops.push_back(op.name);
  }
  return spec;
}

std::string NdslBlock::lower(NdslLayer& layer, const std::string& residual) const {
  std::map<std::string, std::string> values{{"residual", residual}};
  std::vector<std::string> branches;
  layer.set_sound(sound_);
  std::string current = residual;
  const auto value = [&](const ndsl::Named& name) {
    if (const auto at = values.find(name.text); at != values.end()) return at->second;
    std::vector<std::string> known;
    for (const auto& [other, of] : values) known.push_back(other);
    const std::string meant = did_you_mean(name.text, known);
    if (sound_)
      faults_.add(name.place, fmt::format("no earlier operation gives {}", shown_name(name.text)),
                  meant.empty() ? "values here: " + comma_separated(known) : meant);
    return residual;
  };
  for (const Part& part : parts_) {
    const ndsl::Operation& step = part.step;
    if (part.kind == Kind::residual) {
      std::vector<std::string> terms;
      for (const ndsl::Named& name : step.inputs) terms.push_back(value(name));
      if (terms.empty()) {
        terms.push_back(values["residual"]);
        if (variant_ == "parallel" && !branches.empty() && !step.reads_from)
          terms.insert(terms.end(), branches.begin(), branches.end());
        else
          terms.push_back(step.reads_from ? value(*step.reads_from) : current);
      }
      if (sound_ && (terms.size() < 2 || (terms.size() == 2 && terms[0] == terms[1])))
        faults_.add(step.place, "ResidualAdd has nothing to add to the residual stream");
      std::string sum = terms.front();
      layer.to.set_operation("ResidualAdd");
      for (size_t i = 1; i < terms.size(); ++i) {
        const std::string next = layer.to.fresh("x");
        layer.to.step("Add", step.place).fields = {{"a", sum}, {"b", terms[i]}, {"out", next}};
        sum = next;
      }
      layer.to.set_operation("");
      layer.observe("ResidualAdd", sum);
      current = sum;
      values[step.output ? step.output->text : "residual"] = sum;
      if (!step.name.empty()) values[step.name] = sum;
      branches.clear();
      if (step.branch) values[step.branch->text] = sum, branches.push_back(sum);
      continue;
    }
    layer.in = step.reads_from ? value(*step.reads_from) : current;
    const std::string from = layer.in;
    if (part.kind == Kind::call) {
      layer.call(step);
    } else if (part.kind == Kind::select) {
      if (step.inputs.size() == 2) layer.select(step, part.config, value(step.inputs[0]), value(step.inputs[1]));
    } else {
      layer.begin();
      for (BlockOp op : part.ops) {
        op.step = &step;
        layer.run(op, part.config);
      }
      values[part.ops.empty() ? step.name : part.ops.front().group] = layer.in;
    }
    if (layer.in == from && sound_ && part.kind != Kind::select)
      faults_.add(step.place, fmt::format("{} gives no result: its expansion lacks the last part", step.op.text));
    current = layer.in;
    if (!step.name.empty()) values[step.name] = current;
    if (step.branch) values[step.branch->text] = current, branches.push_back(current);
    if (step.output) values[step.output->text] = current;
  }
  return values["residual"];
}

}  // namespace harmonics::engine
