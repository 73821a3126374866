// One step of one parameter, and the length of all gradients together. Besides in_place (w' = w), every further result may be the
// memory of the moment it replaces.
#include "families.hpp"

namespace harmonics::cuda {
namespace {

// The first `tensors` inputs are like the first, then comes lr, then (with_step) the step's number.
bool is_update(const Site& site, uint32_t tensors, bool with_step) {
  if (site.inputs() != tensors + 1 + with_step) return declined("other operands than it knows");
  for (uint32_t i = 0; i < tensors; ++i)
    if (!is_f32(site.in(i)) || !same_shape(site.in(i), site.in(0))) return declined("updates f32");
  if (!is_f32(site.in(tensors)) || count(site.in(tensors)) != 1) return declined("takes the learning rate in f32");
  return !with_step || site.in(tensors + 1).dtype == HX_I64 || site.in(tensors + 1).dtype == HX_I32 || declined("counts steps in i32 and i64");
}

OptimizerParameters parameters_of(const Site& site, double epsilon = 1e-8, double beta2 = 0.999) {
  OptimizerParameters p{};
  p.count = static_cast<uint32_t>(count(site.in(0)));
  p.nesterov = site.flag("nesterov");
  p.momentum = site.number("momentum");
  p.beta1 = site.number("beta1", 0.9);
  p.beta2 = site.number("beta2", beta2);
  p.epsilon = site.number("epsilon", epsilon);
  p.weight_decay = site.number("weight_decay");
  p.alpha = site.number("alpha", 0.99);
  return p;
}

// One kernel that takes the call's buffers as they are.
bool answer_update(const Site& site, Function function, const OptimizerParameters& p, const char* name, hx_kernel& out) {
  std::vector<Operand> all;
  for (uint32_t i = 0; i < site.inputs() + site.outputs(); ++i) all.push_back({i});
  Work work(site.machine());
  work.over(p.count, function, all, p);
  answer(out, std::move(work), name).in_place = 1;
  return true;
}

}  // namespace

bool plan_sgd(const Site& site, hx_kernel& out) {
  const bool moving = site.inputs() == 4;
  return is_update(site, moving ? 3 : 2, false) && answer_update(site, moving ? sgd_momentum_function() : sgd_function(), parameters_of(site), "sgd", out);
}

bool plan_adam(const Site& site, hx_kernel& out) {
  if (!is_update(site, 4, true)) return false;
  OptimizerParameters p = parameters_of(site);
  p.decoupled = site.op() == "adamw";
  p.wide_step = site.in(5).dtype == HX_I64;
  return answer_update(site, adam_function(), p, "adam", out);
}

bool plan_rmsprop(const Site& site, hx_kernel& out) {
  const bool moving = site.number("momentum") != 0, centered = site.flag("centered");
  return is_update(site, 3u + moving + centered, false) && answer_update(site, rmsprop_function(moving, centered), parameters_of(site), "rmsprop", out);
}

bool plan_lion(const Site& site, hx_kernel& out) {
  return is_update(site, 3, false) && answer_update(site, lion_function(), parameters_of(site, 1e-8, 0.99), "lion", out);
}

bool plan_lamb(const Site& site, hx_kernel& out) {
  if (!is_update(site, 4, true)) return false;
  if (site.integer("adapt", 1) == 0) return declined("steps of LAMB without adapt are left to its body");
  OptimizerParameters p = parameters_of(site, 1e-6);
  p.wide_step = site.in(5).dtype == HX_I64;
  p.blocks = std::min<uint32_t>((p.count + kNormRun - 1) / kNormRun, 1024);
  Work work(site.machine());
  const Operand sums = work.take_workspace(site, uint64_t{p.blocks} * 2 * sizeof(double));
  work.launch(lamb_moments_function(), {p.blocks, 1, 1, kThreads}, {{0}, {1}, {2}, {3}, {5}, {7}, {8}, sums}, p);
  work.over(p.count, lamb_step_function(), {{0}, {7}, {8}, {4}, {5}, sums, {6}}, p);
  answer(out, std::move(work), "lamb").in_place = 1;
  return true;
}

bool plan_global_norm(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return declined("adds up f32");
  std::vector<LengthParameters> parts;
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < site.inputs(); ++i) {
    const auto n = static_cast<uint32_t>(count(site.in(i)));
    parts.push_back({n, blocks});
    blocks += (n + kNormRun - 1) / kNormRun;
  }
  Work work(site.machine());
  const Operand sums = work.take_workspace(site, uint64_t{blocks} * sizeof(double));
  for (uint32_t i = 0; i < site.inputs(); ++i) work.launch(squares_function(), {(parts[i].count + kNormRun - 1) / kNormRun, 1, 1, kThreads}, {{i}, sums}, parts[i]);
  work.launch(length_function(), {1, 1, 1, kThreads}, {sums, {site.inputs()}}, LengthParameters{blocks, 0});
  answer(out, std::move(work), "global norm");
  return true;
}

}  // namespace harmonics::cuda
