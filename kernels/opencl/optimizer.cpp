// One step of one parameter, in place: formulas in the order of the functionals' bodies.
#include <cmath>

#include "families.hpp"

namespace harmonics::opencl {
namespace {

// The first inputs are like the first, f32; then come lr and, where there is one, the step's number.
bool is_update(const Site& site, uint32_t tensors, bool with_step) {
  if (site.inputs() != tensors + 1 + with_step) return false;
  for (uint32_t i = 0; i < tensors; ++i)
    if (site.in(i).dtype != HX_F32 || count(site.in(i)) != count(site.in(0))) return false;
  return site.in(tensors).dtype == HX_F32 && count(site.in(tensors)) == 1 && (!with_step || site.in(tensors + 1).dtype == HX_I64 || site.in(tensors + 1).dtype == HX_I32);
}

std::string f32(double value) { return literal(HX_F32, value); }

const char* kHead = "  const uint i = get_global_id(0);\n  if (i >= n) return;\n";

bool answer_update(const Site& site, const std::string& body, const char* name, hx_kernel& out) {
  std::string head = "kernel void update(";
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < site.inputs() + site.outputs(); ++i) {
    head += "BUFFER(" + std::to_string(i) + "), ";
    all.push_back(i);
  }
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), head + "uint n) {\n" + kHead + body + "}\n", "update", all);
  launch.with(static_cast<cl_uint>(count(site.in(0)))).over(count(site.in(0)));
  answer(out, std::move(work), name).in_place = 1;  // and every further output may be the moment it replaces
  return true;
}

bool plan_sgd(const Site& site, hx_kernel& out) {
  const uint32_t tensors = site.inputs() - 1;
  if ((tensors != 2 && tensors != 3) || !is_update(site, tensors, false)) return declined("steps f32 parameters only");
  const double momentum = site.number("momentum"), decay = site.number("weight_decay");
  std::string body = "  const float w = AT(float, 0)[i], lr = AT(float, " + std::to_string(tensors) + ")[0];\n  float g = AT(float, 1)[i];\n";
  if (decay != 0) body += "  g = g + " + f32(decay) + " * w;\n";
  if (tensors == 2) return answer_update(site, body + "  AT(float, 3)[i] = w - lr * g;\n", "sgd", out);
  body += "  const float v = " + f32(momentum) + " * AT(float, 2)[i] + g;\n";
  body += site.flag("nesterov") ? "  AT(float, 4)[i] = w - lr * (g + " + f32(momentum) + " * v);\n" : "  AT(float, 4)[i] = w - lr * v;\n";
  return answer_update(site, body + "  AT(float, 5)[i] = v;\n", "sgd", out);
}

// 1 - beta^step keeps its digits as -expm1(step log beta), in f32 too.
bool plan_adam(const Site& site, hx_kernel& out) {
  if (!is_update(site, 4, true)) return declined("steps f32 parameters only");
  const double beta1 = site.number("beta1", 0.9), beta2 = site.number("beta2", 0.999), decay = site.number("weight_decay");
  const bool decoupled = site.op() == "adamw";
  const std::string step = site.in(5).dtype == HX_I64 ? "long" : "int";
  std::string body = "  float w = AT(float, 0)[i], g = AT(float, 1)[i];\n  const float m0 = AT(float, 2)[i], v0 = AT(float, 3)[i], lr = AT(float, 4)[0], step = (float)AT(" + step + ", 5)[0];\n";
  if (decay != 0) body += decoupled ? "  w = w * (1.0f - lr * " + f32(decay) + ");\n" : "  g = g + " + f32(decay) + " * w;\n";
  body += "  const float m = m0 + (g - m0) * " + f32(1 - beta1) + ", v = v0 * " + f32(beta2) + " + " + f32(1 - beta2) + " * (g * g);\n";
  body += "  const float size = lr / -expm1(step * " + f32(std::log(beta1)) + "), spread = sqrt(-expm1(step * " + f32(std::log(beta2)) + "));\n";
  body += "  AT(float, 6)[i] = w - size * (m / (sqrt(v) / spread + " + f32(site.number("epsilon", 1e-8)) + "));\n  AT(float, 7)[i] = m;\n  AT(float, 8)[i] = v;\n";
  return answer_update(site, body, decoupled ? "adamw" : "adam", out);
}

}  // namespace

bool plan_optimizer(const Site& site, hx_kernel& out) { return site.op() == "sgd" ? plan_sgd(site, out) : plan_adam(site, out); }

}  // namespace harmonics::opencl
