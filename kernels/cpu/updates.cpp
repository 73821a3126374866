#include "updates.hpp"

#include "families.hpp"

namespace harmonics::cpu {
namespace {

// The first `tensors` inputs have the same type, followed by lr and (with_step) the step number.
bool is_update(const Site& site, uint32_t tensors, bool with_step) {
  if (site.inputs() != tensors + 1 + with_step) return false;
  for (uint32_t i = 0; i < tensors; ++i)
    if (!is_f32(site.in(i)) || !same_shape(site.in(i), site.in(0))) return false;
  if (!is_f32(site.in(tensors)) || count(site.in(tensors)) != 1) return false;
  return !with_step || site.in(tensors + 1).dtype == HX_I64 || site.in(tensors + 1).dtype == HX_I32;
}

template <typename Context>
std::unique_ptr<Context> context_for(const Site& site, double nanoseconds) {
  auto c = std::make_unique<Context>();
  c->count = count(site.in(0));
  c->weight_decay = site.number("weight_decay");
  c->parts = parts_for(static_cast<double>(c->count) * nanoseconds, (c->count + 63) / 64);
  return c;
}

}  // namespace

// Besides in_place (w' = w), the other outputs may share the memory of the moments they replace.
bool plan_rmsprop(const Site& site, hx_kernel& out) {
  const bool moving = site.number("momentum") != 0, centered = site.flag("centered");
  if (!is_update(site, 3u + moving + centered, false)) return false;
  auto c = context_for<RmspropContext>(site, 0.6);
  c->has_velocity = moving;
  c->centered = centered;
  c->alpha = site.number("alpha", 0.99);
  c->epsilon = site.number("epsilon", 1e-8);
  c->momentum = site.number("momentum");
  answer(out, std::move(c), isa().rmsprop, "rmsprop").in_place = 1;
  return true;
}

bool plan_lamb(const Site& site, hx_kernel& out) {
  if (!is_update(site, 4, true)) return false;
  auto c = context_for<LambContext>(site, 0.8);
  c->parts = std::min(c->parts, kMostSums);
  c->adapt = site.integer("adapt", 1) != 0;
  c->wide_step = site.in(5).dtype == HX_I64;
  c->beta1 = site.number("beta1", 0.9);
  c->beta2 = site.number("beta2", 0.999);
  c->epsilon = site.number("epsilon", 1e-6);
  const uint32_t parts = c->parts;
  const bool adapt = c->adapt;
  hx_kernel& kernel =
      answer(out, std::move(c), isa().lamb, "lamb", adapt ? std::vector{parts, parts} : std::vector{parts});
  kernel.workspace = adapt ? parts * 2 * sizeof(double) : 0;
  kernel.in_place = 1;
  return true;
}

namespace {
struct GlobalNorm : GlobalNormContext {
  std::vector<NormBlock> storage;
};
}  // namespace

bool plan_global_norm(const Site& site, hx_kernel& out) {
  constexpr int64_t kBlock = 8192;
  if (!site.all_f32()) return false;
  auto c = std::make_unique<GlobalNorm>();
  double elements = 0;
  for (uint32_t t = 0; t < site.inputs(); ++t) {
    const int64_t n = count(site.in(t));
    elements += static_cast<double>(n);
    for (int64_t at = 0; at < n; at += kBlock) c->storage.push_back({t, at, std::min(kBlock, n - at)});
  }
  c->tensors = site.inputs();
  c->count = static_cast<int64_t>(c->storage.size());
  c->blocks = c->storage.data();
  c->parts = parts_for(elements * 0.1, c->count);
  const std::vector<uint32_t> parts{c->parts, 1};
  const uint64_t workspace = c->storage.size() * sizeof(double);
  answer<GlobalNormContext>(out, std::move(c), isa().global_norm, "global norm", parts).workspace = workspace;
  return true;
}

HM_PLANS(updates, {"rmsprop", plan_rmsprop}, {"lamb", plan_lamb}, {"global_norm", plan_global_norm})

}  // namespace harmonics::cpu
