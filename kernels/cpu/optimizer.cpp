#include "optimizer.hpp"

#include "families.hpp"

namespace harmonics::cpu {

// Besides in_place (w' = w), further outputs may share the memory of the moments they replace.
bool plan_optimizer(const Site& site, hx_kernel& out) {
  const bool is_sgd = site.op() == "sgd";
  const uint32_t tensors = is_sgd ? site.inputs() - 1 : 4;
  if (site.inputs() != (is_sgd ? tensors + 1 : 6)) return false;
  for (uint32_t i = 0; i < tensors; ++i)
    if (!is_f32(site.in(i)) || !same_shape(site.in(i), site.in(0))) return false;
  if (!is_f32(site.in(tensors)) || count(site.in(tensors)) != 1) return false;
  if (!is_sgd && site.in(5).dtype != HX_I64 && site.in(5).dtype != HX_I32) return false;

  auto c = std::make_unique<OptimizerContext>();
  c->count = count(site.in(0));
  c->has_velocity = is_sgd && tensors == 3;
  c->nesterov = site.flag("nesterov");
  c->decoupled = site.op() == "adamw";
  c->wide_step = !is_sgd && site.in(5).dtype == HX_I64;
  c->momentum = site.number("momentum");
  c->beta1 = site.number("beta1", 0.9);
  c->beta2 = site.number("beta2", 0.999);
  c->epsilon = site.number("epsilon", 1e-8);
  c->weight_decay = site.number("weight_decay");
  c->parts = parts_for(static_cast<double>(c->count) * (is_sgd ? 0.3 : 0.6), (c->count + 63) / 64);
  answer(out, std::move(c), is_sgd ? isa().sgd : isa().adam, is_sgd ? "sgd" : "adam").in_place = 1;
  return true;
}

}  // namespace harmonics::cpu
