// Optimizer updates of one parameter, in place, with the operations and order of the functionals' bodies. One program
// contains all rules.
#include <cmath>

#include "families.hpp"

namespace harmonics::opencl {
namespace {

enum Rule : uint32_t { kSgd, kAdam, kAdamW, kRmsprop, kLion, kLamb, kLambStep };

// Buffers: w, g, up to three moments, lr, the step number, w', the next moments, and the checked number or null. A rule
// does not access the buffers it lacks. 1 - beta^step is computed as -expm1(step log beta), which is accurate in f32.
const char* kUpdate = R"(
#define OLD0 AT(float, 2)[i]
#define OLD1 AT(float, 3)[i]
#define OLD2 AT(float, 4)[i]
#define NEW_W AT(float, 7)[i]
#define NEW0 AT(float, 8)[i]
#define NEW1 AT(float, 9)[i]
#define NEW2 AT(float, 10)[i]
kernel void update(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), BUFFER(6), BUFFER(7),
    BUFFER(8), BUFFER(9), BUFFER(10), BUFFER(11), uint n, uint rule,
                   uint variant, float decay, float momentum, float keep1, float rest1, float keep2, float rest2,
                     float log1, float log2, float epsilon) {
  const uint i = get_global_id(0);
  if (i >= n || (b11 && !isfinite(AT(float, 11)[0]))) return;
  const float lr = AT(float, 5)[0];
  float w = AT(float, 0)[i], g = AT(float, 1)[i];
  if (rule == SGD) {  // variant: 0 without a velocity, 1 with it, 2 Nesterov's
    if (decay != 0) g = g + decay * w;
    float along = g;
    if (variant > 0) {
      const float velocity = momentum * OLD0 + g;
      along = variant == 2 ? g + momentum * velocity : velocity;
      NEW0 = velocity;
    }
    NEW_W = w - lr * along;
  } else if (rule == RMSPROP) {  // variant: 1 has a velocity, 2 a mean after it
    if (decay != 0) g = g + decay * w;
    const float square = keep2 * OLD0 + rest2 * (g * g);
    float spread = square;
    if (variant & 2) {
      const float old = variant & 1 ? OLD2 : OLD1, mean = old + (g - old) * rest2;
      spread = spread - mean * mean;
      spread = spread != spread || spread > 0 ? spread : 0;  // rounding could leave it below
      if (variant & 1) NEW2 = mean;
      else NEW1 = mean;
    }
    float along = g / (sqrt(spread) + epsilon);
    if (variant & 1) NEW1 = along = momentum * OLD1 + along;
    NEW0 = square;
    NEW_W = w - lr * along;
  } else if (rule == LION) {
    const float m = OLD0, mixed = keep1 * m + rest1 * g, sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
    if (decay != 0) w = w * (1.0f - lr * decay);
    NEW0 = keep2 * m + rest2 * g;
    NEW_W = w - lr * sign;
  } else if (rule == LAMB_STEP) {
    // Along G, made before. Buffer 2 has the norms of w and of G from index `variant` on.
    const float norm = AT(float, 2)[variant], reach = AT(float, 2)[variant + 1];
    NEW_W = w - (lr * (norm > 0 && reach > 0 ? norm / reach : 1.0f)) * g;
  } else {  // variant: 1 counts steps in 64 bits, 2 gives LAMB's direction in place of w
    const float step = variant & 1 ? (float)AT(long, 6)[0] : (float)AT(int, 6)[0];
    if (rule == ADAM && decay != 0) g = g + decay * w;
    if (rule == ADAMW && decay != 0) w = w * (1.0f - lr * decay);
    const float m = OLD0 + (g - OLD0) * rest1, v = OLD1 * keep2 + rest2 * (g * g);
    const float size = (rule == LAMB ? 1.0f : lr) / -expm1(step * log1), spread = sqrt(-expm1(step * log2));
    float along = size * (m / (sqrt(v) / spread + epsilon));
    if (rule == LAMB && decay != 0) along = along + decay * w;
    if (rule == LAMB && !(variant & 2)) along = lr * along;
    NEW_W = rule == LAMB && (variant & 2) ? along : w - along;
    NEW0 = m;
    NEW1 = v;
  }
}
)";

std::string program() {
  static const std::pair<const char*, Rule> names[] = {{"SGD", kSgd},           {"ADAM", kAdam}, {"ADAMW", kAdamW},
                                                       {"RMSPROP", kRmsprop},   {"LION", kLion}, {"LAMB", kLamb},
                                                       {"LAMB_STEP", kLambStep}};
  std::string text;
  for (const auto& [name, rule] : names) text += std::string("#define ") + name + " " + std::to_string(rule) + "\n";
  return text + kUpdate;
}

// Whether the first `tensors` inputs are f32 of one size, followed by lr and (with_step) the step number.
bool is_update(const Site& site, uint32_t tensors, bool with_step) {
  if (site.inputs() != tensors + 1 + with_step) return declined("steps with other operands");
  for (uint32_t i = 0; i < tensors; ++i)
    if (site.in(i).dtype != HX_F32 || count(site.in(i)) != count(site.in(0)))
      return declined("steps f32 parameters only");
  if (site.in(tensors).dtype != HX_F32 || count(site.in(tensors)) != 1) return declined("steps f32 parameters only");
  return !with_step || site.in(tensors + 1).dtype == HX_I64 || site.in(tensors + 1).dtype == HX_I32 ||
         declined("counts steps in i32 and i64");
}

struct Rates {
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 0;
};

// `moments`: number of moments; `step`: input index of the step number, 0: none.
Launch update(const Site& site, Rule rule, uint32_t variant, const Rates& rates, uint32_t moments, uint32_t step = 0) {
  const uint32_t outputs = site.inputs(), lr = 2 + moments;
  std::vector<uint32_t> buffers{0, 1, 0, 0, 0, lr, step, outputs, outputs, outputs, outputs, kLooked};
  for (uint32_t k = 0; k < moments; ++k) {
    buffers[2 + k] = 2 + k;
    buffers[8 + k] = outputs + 1 + k;
  }
  if (rule == kLambStep)
    buffers = {0, site.workspace(), site.workspace(), 0, 0, lr, 0, outputs, outputs, outputs, outputs, kLooked};
  else if (rule == kLamb && (variant & 2))
    buffers[7] = site.workspace();
  Launch launch(site.machine(), program(), "update", buffers);
  launch.with(static_cast<cl_uint>(count(site.in(0)))).with(static_cast<cl_uint>(rule)).with(variant);
  for (const double v : {site.number("weight_decay"), rates.momentum, rates.beta1, 1 - rates.beta1, rates.beta2,
                         1 - rates.beta2, std::log(rates.beta1), std::log(rates.beta2), rates.epsilon})
    launch.with(static_cast<float>(v));
  launch.over(count(site.in(0)));
  return launch;
}

bool answer_update(hx_kernel& out, Launch launch, const char* name) {
  Work work;
  work.launches.push_back(std::move(launch));
  work.looks = true;
  answer(out, std::move(work), name).in_place = 1;  // other outputs may share the memory of the moments they replace
  return true;
}

bool plan_sgd(const Site& site, hx_kernel& out) {
  const uint32_t moments = site.inputs() == 4 ? 1 : 0;
  if (!is_update(site, 2 + moments, false)) return false;
  Rates rates;
  rates.momentum = site.number("momentum");
  return answer_update(out,
                       update(site, kSgd,
                              moments == 0            ? 0
                              : site.flag("nesterov") ? 2
                                                      : 1,
                              rates, moments),
                       "sgd");
}

bool plan_adam(const Site& site, hx_kernel& out) {
  if (!is_update(site, 4, true)) return false;
  const bool decoupled = site.op() == "adamw";
  const Rates rates{0, site.number("beta1", 0.9), site.number("beta2", 0.999), site.number("epsilon", 1e-8)};
  return answer_update(out, update(site, decoupled ? kAdamW : kAdam, site.in(5).dtype == HX_I64, rates, 2, 5),
                       decoupled ? "adamw" : "adam");
}

bool plan_rmsprop(const Site& site, hx_kernel& out) {
  const uint32_t moving = site.number("momentum") != 0, centred = site.flag("centered"), moments = 1 + moving + centred;
  if (!is_update(site, 2 + moments, false)) return false;
  const Rates rates{site.number("momentum"), 0.9, site.number("alpha", 0.99), site.number("epsilon", 1e-8)};
  return answer_update(out, update(site, kRmsprop, moving + 2 * centred, rates, moments), "rmsprop");
}

bool plan_lion(const Site& site, hx_kernel& out) {
  if (!is_update(site, 3, false)) return false;
  const Rates rates{0, site.number("beta1", 0.9), site.number("beta2", 0.99)};
  return answer_update(out, update(site, kLion, 0, rates, 1), "lion");
}

// Launches: moments and update direction; norms of w and of the direction; update.
bool plan_lamb(const Site& site, hx_kernel& out) {
  if (!is_update(site, 4, true)) return false;
  const uint32_t wide = site.in(5).dtype == HX_I64;
  const Rates rates{0, site.number("beta1", 0.9), site.number("beta2", 0.999), site.number("epsilon", 1e-6)};
  if (site.integer("adapt", 1) == 0) return answer_update(out, update(site, kLamb, wide, rates, 2, 5), "lamb");
  const int64_t n = count(site.in(0)), parts = norm_parts(n), norms = n + parts;
  Work work;
  work.launches.push_back(update(site, kLamb, wide | 2, rates, 2, 5));
  for (const uint32_t of : {0u, site.workspace()}) {
    work.launches.push_back(squares(site.machine(), HX_F32, of, HX_F32, n, site.workspace(), n));
    work.launches.push_back(
        root_of_sum(site.machine(), HX_F32, site.workspace(), n, parts, site.workspace(), norms + (of != 0)));
  }
  work.launches.push_back(update(site, kLambStep, static_cast<uint32_t>(norms), rates, 2));
  work.looks = true;
  hx_kernel& kernel = answer(out, std::move(work), "lamb");
  kernel.workspace = static_cast<uint64_t>(norms + 2) * sizeof(float);
  kernel.in_place = 1;
  return true;
}

}  // namespace

bool plan_optimizer(const Site& site, hx_kernel& out) {
  static const std::pair<std::string_view, Plan> rules[] = {{"sgd", plan_sgd},    {"adam", plan_adam},
                                                            {"adamw", plan_adam}, {"rmsprop", plan_rmsprop},
                                                            {"lion", plan_lion},  {"lamb", plan_lamb}};
  for (const auto& [name, plan] : rules)
    if (name == site.op()) return plan(site, out);
  return false;
}

HM_PLANS(optimizer, {"sgd", plan_optimizer}, {"adam", plan_optimizer}, {"adamw", plan_optimizer},
         {"rmsprop", plan_optimizer}, {"lion", plan_optimizer}, {"lamb", plan_optimizer})

}  // namespace harmonics::opencl
