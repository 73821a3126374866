// Plans optimizer updates of one or many parameters, and the global norm. Besides in_place (w' = w), the other results
// may share the memory of the moments they replace.
#include <optional>

#include "families.hpp"

namespace harmonics::cuda {
namespace {

// Inputs of a rule: `tensors` per parameter, beginning with w and g; the learning rate; for some rules, the step
// number.
struct Rule {
  UpdateRule rule;
  uint32_t tensors;
  bool with_step = false;
  OptimizerParameters settings{};
};

OptimizerParameters settings_of(const Site& site, double epsilon = 1e-8, double beta2 = 0.999) {
  OptimizerParameters p{};
  p.nesterov = site.flag("nesterov");
  p.momentum = site.number("momentum");
  p.beta1 = site.number("beta1", 0.9);
  p.beta2 = site.number("beta2", beta2);
  p.epsilon = site.number("epsilon", epsilon);
  p.weight_decay = site.number("weight_decay");
  p.alpha = site.number("alpha", 0.99);
  return p;
}

std::optional<Rule> rule_of(const Site& site, std::string_view update, uint32_t parameters) {
  if (update == "sgd") {
    const bool moving = site.inputs() == 3 * parameters + 1;
    return Rule{moving ? UpdateRule::sgd_momentum : UpdateRule::sgd, moving ? 3u : 2u, false, settings_of(site)};
  }
  if (update == "adam" || update == "adamw") {
    Rule rule{UpdateRule::adam, 4, true, settings_of(site)};
    rule.settings.decoupled = update == "adamw";
    return rule;
  }
  if (update == "rmsprop") {
    const bool moving = site.number("momentum") != 0, centered = site.flag("centered");
    const UpdateRule rule = moving     ? centered ? UpdateRule::rmsprop_both : UpdateRule::rmsprop_moving
                            : centered ? UpdateRule::rmsprop_centered
                                       : UpdateRule::rmsprop;
    return Rule{rule, 3u + moving + centered, false, settings_of(site)};
  }
  if (update == "lion") return Rule{UpdateRule::lion, 3, false, settings_of(site, 1e-8, 0.99)};
  return std::nullopt;
}

bool takes(const Site& site, uint32_t parameters, uint32_t tensors, bool with_step) {
  const uint32_t all = parameters * tensors;
  if (parameters == 0 || site.inputs() != all + 1 + with_step || site.outputs() != all - parameters)
    return declined("other operands than it knows");
  for (uint32_t i = 0; i < all; ++i)
    if (!is_f32(site.in(i)) || !same_shape(site.in(i), site.in(i / tensors * tensors))) return declined("updates f32");
  if (!is_f32(site.in(all)) || count(site.in(all)) != 1) return declined("takes the learning rate in f32");
  return !with_step || site.in(all + 1).dtype == HX_I64 || site.in(all + 1).dtype == HX_I32 ||
         declined("counts steps in i32 and i64");
}

// Launches a kernel for many tensors, with as many launches as tables of addresses are needed.
class TableStep final : public Step {
 public:
  struct Tensor {
    uint32_t count;
    std::vector<Operand> at;
  };
  // `run`: elements per block. `sums`: one sum per block, if the kernel writes sums.
  TableStep(Function function, const OptimizerParameters& settings, uint32_t run, const std::vector<Tensor>& tensors,
            std::optional<Operand> lr, std::optional<Operand> step, std::optional<Operand> sums)
      : function_(function), lr_(lr), step_(step), sums_(sums) {
    for (const Tensor& t : tensors) {
      if (launches_.empty() || launches_.back().table.tensors == kMostTensors) {
        const uint32_t before = launches_.empty() ? 0 : launches_.back().first + launches_.back().blocks;
        launches_.push_back({});
        launches_.back().first = before;
        launches_.back().table.settings = settings;
      }
      Launch& l = launches_.back();
      l.at.push_back(t.at);
      TensorRow& row = l.table.rows[l.table.tensors++];
      row.count = t.count;
      row.first_block = l.blocks;
      l.blocks += (t.count + run - 1) / run;
    }
  }
  uint32_t blocks() const { return launches_.back().first + launches_.back().blocks; }

  void enqueue(Machine& machine, void* stream, const hx_place* places) const override {
    enqueue_looking(machine, stream, places, nullptr);
  }
  void enqueue_looking(Machine& machine, void* stream, const hx_place* places, const char* number) const override {
    for (const Launch& l : launches_) {
      TensorTable table = l.table;
      for (size_t t = 0; t < l.at.size(); ++t)
        for (size_t i = 0; i < l.at[t].size(); ++i)
          table.rows[t].at[i] = reinterpret_cast<float*>(l.at[t][i].at(places));
      if (lr_) table.lr = reinterpret_cast<const float*>(lr_->at(places));
      if (step_) table.step = step_->at(places);
      table.number = reinterpret_cast<const float*>(number);
      if (sums_) table.sums = reinterpret_cast<double*>(sums_->at(places)) + l.first;
      void* arguments[] = {&table};
      machine.check(machine.driver().launch(function_, {l.blocks, 1, 1, kThreads}, arguments, stream),
                    "start a kernel");
    }
  }

 private:
  struct Launch {
    TensorTable table{};
    std::vector<std::vector<Operand>> at;  // by tensor
    uint32_t first = 0, blocks = 0;
  };
  Function function_;
  std::optional<Operand> lr_, step_, sums_;
  std::vector<Launch> launches_;
};

// Returns the elements per block: few, so that blocks occupy the device; more for large tensors.
uint32_t run_of(const std::vector<TableStep::Tensor>& tensors) {
  constexpr uint64_t kBusy = 2048;  // blocks
  uint64_t all = 0;
  for (const TableStep::Tensor& t : tensors) all += t.count;
  return static_cast<uint32_t>(std::clamp<uint64_t>(all / kBusy / kUpdateRun, 1, 4)) * kUpdateRun;
}

bool answer_updates(const Site& site, std::string_view update, uint32_t parameters, hx_kernel& out) {
  std::optional<Rule> rule = rule_of(site, update, parameters);
  if (!rule) return declined("takes steps of " + std::string(update) + " one by one");
  const uint32_t tensors = rule->tensors, all = parameters * tensors;
  if (!takes(site, parameters, tensors, rule->with_step)) return false;
  if (rule->with_step) rule->settings.wide_step = site.in(all + 1).dtype == HX_I64;
  std::vector<TableStep::Tensor> list;
  for (uint32_t p = 0; p < parameters; ++p) {
    TableStep::Tensor& t = list.emplace_back(TableStep::Tensor{static_cast<uint32_t>(count(site.in(p * tensors))), {}});
    for (uint32_t i = 0; i < tensors; ++i) t.at.push_back({p * tensors + i});
    for (uint32_t i = 0; i + 1 < tensors; ++i) t.at.push_back({site.inputs() + p * (tensors - 1) + i});
  }
  Work work(site.machine());
  rule->settings.run = run_of(list);
  work.add(std::make_unique<TableStep>(update_function(rule->rule), rule->settings, rule->settings.run, list,
                                       Operand{all}, rule->with_step ? std::optional(Operand{all + 1}) : std::nullopt,
                                       std::nullopt));
  work.set_looks();
  answer(out, std::move(work), parameters == 1 ? "update" : "joined updates").in_place = 1;
  return true;
}

}  // namespace

bool plan_update(const Site& site, hx_kernel& out) { return answer_updates(site, site.op(), 1, out); }
bool plan_update_all(const Site& site, hx_kernel& out) {
  const std::string update = site.text("update");
  return answer_updates(site, update, static_cast<uint32_t>(std::max<int64_t>(0, site.integer("parameters"))), out);
}

bool plan_lamb(const Site& site, hx_kernel& out) {
  if (!takes(site, 1, 4, true)) return false;
  OptimizerParameters p = settings_of(site, 1e-6);
  p.adapts = site.integer("adapt", 1) != 0;
  p.count = static_cast<uint32_t>(count(site.in(0)));
  p.wide_step = site.in(5).dtype == HX_I64;
  p.blocks = std::min<uint32_t>((p.count + kNormRun - 1) / kNormRun, 1024);
  Work work(site.machine());
  const Operand sums = work.take_workspace(site, uint64_t{p.blocks} * 2 * sizeof(double));
  work.launch(lamb_moments_function(), {p.blocks, 1, 1, kThreads}, {{0}, {1}, {2}, {3}, {5}, {7}, {8}, sums, {kLooked}},
              p);
  work.over(p.count, lamb_step_function(), {{0}, {7}, {8}, {4}, {5}, sums, {6}, {kLooked}}, p);
  work.set_looks();
  answer(out, std::move(work), "lamb").in_place = 1;
  return true;
}

bool plan_global_norm(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return declined("adds up f32");
  std::vector<TableStep::Tensor> tensors;
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < site.inputs(); ++i) {
    const auto n = static_cast<uint32_t>(count(site.in(i)));
    tensors.push_back({n, {Operand{i}}});
    blocks += (n + kNormRun - 1) / kNormRun;
  }
  Work work(site.machine());
  const Operand sums = work.take_workspace(site, blocks * sizeof(double));
  work.add(std::make_unique<TableStep>(squares_function(), OptimizerParameters{}, kNormRun, tensors, std::nullopt,
                                       std::nullopt, sums));
  work.launch(norm_function(), {1, 1, 1, kThreads}, {sums, {site.inputs()}},
              GlobalNormParameters{static_cast<uint32_t>(blocks)});
  answer(out, std::move(work), "global norm");
  return true;
}

HM_PLANS(optimizer, {"sgd", plan_update}, {"adam", plan_update}, {"adamw", plan_update}, {"rmsprop", plan_update},
         {"lion", plan_update}, {"update_all", plan_update_all}, {"lamb", plan_lamb}, {"global_norm", plan_global_norm})

}  // namespace harmonics::cuda
