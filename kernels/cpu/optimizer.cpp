#include "optimizer.hpp"

#include "families.hpp"

namespace harmonics::cpu {
namespace {

// Reads the settings of `update`, whose moments begin at input `first`. False: not such an update, or the moments, the
// learning rate or the step number do not fit.
bool rule_of(const Site& site, std::string_view update, uint32_t first, OptimizerContext& c) {
  const bool is_sgd = update == "sgd", is_lion = update == "lion";
  if (!is_sgd && !is_lion && update != "adam" && update != "adamw") return false;
  c.counts_steps = !is_sgd && !is_lion;
  const uint32_t shared = c.counts_steps ? 2 : 1;
  if (site.inputs() < first + shared) return false;
  const uint32_t lr = site.inputs() - shared, moments = lr - first;
  if ((is_sgd ? moments > 1 : moments != (is_lion ? 1u : 2u))) return false;
  for (uint32_t i = first; i < lr; ++i)
    if (!is_f32(site.in(i)) || !same_shape(site.in(i), site.in(0))) return false;
  if (!is_f32(site.in(0)) || !is_f32(site.in(lr)) || count(site.in(lr)) != 1) return false;
  if (c.counts_steps && site.in(lr + 1).dtype != HX_I64 && site.in(lr + 1).dtype != HX_I32) return false;
  c.count = count(site.in(0));
  c.has_velocity = is_sgd && moments == 1;
  c.nesterov = site.flag("nesterov");
  c.decoupled = update == "adamw";
  c.wide_step = c.counts_steps && site.in(lr + 1).dtype == HX_I64;
  c.momentum = site.number("momentum");
  c.beta1 = site.number("beta1", 0.9);
  c.beta2 = site.number("beta2", is_lion ? 0.99 : 0.999);
  c.epsilon = site.number("epsilon", 1e-8);
  c.weight_decay = site.number("weight_decay");
  return true;
}

double nanoseconds_of(const OptimizerContext& c) {
  return static_cast<double>(c.count) * (c.counts_steps ? 0.6 : c.has_velocity ? 0.4 : 0.3);
}

}  // namespace

// Besides in_place (w' = w), further outputs may share the memory of the moments they replace.
bool plan_optimizer(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<OptimizerContext>();
  if (!rule_of(site, site.op(), 2, *c) || !is_f32(site.in(1)) || !same_shape(site.in(1), site.in(0))) return false;
  c->parts = parts_for(nanoseconds_of(*c), (c->count + 63) / 64);
  const bool is_sgd = site.op() == "sgd", is_lion = site.op() == "lion";
  const Run run = is_sgd ? isa().sgd : is_lion ? isa().lion : isa().adam;
  answer(out, std::move(c), run, is_sgd ? "sgd" : is_lion ? "lion" : "adam").in_place = 1;
  return true;
}

// w [m, n], a [..., m], b [..., n], moments [m, n]..., lr, step? for a single sample.
bool plan_update_outer(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<OuterUpdateContext>();
  const std::string update = site.text("update"), input_gradient = site.text("input_gradient");
  if (site.inputs() < 4 || site.in(0).rank != 2 || !is_f32(site.in(1)) || !is_f32(site.in(2))) return false;
  if (!rule_of(site, update, 3, c->rule)) return false;
  c->rows = site.in(0).dims[0];
  c->columns = site.in(0).dims[1];
  if (count(site.in(1)) != c->rows || count(site.in(2)) != c->columns) return false;
  c->kind = update == "sgd"    ? OuterUpdateContext::sgd
            : update == "lion" ? OuterUpdateContext::lion
                               : OuterUpdateContext::adam;
  c->gradient = !input_gradient.empty();
  c->active = input_gradient == "active";
  c->parts = parts_for(nanoseconds_of(c->rule), c->rows);
  answer(out, std::move(c), isa().update_outer, "outer product and update").in_place = 1;
  return true;
}

}  // namespace harmonics::cpu
