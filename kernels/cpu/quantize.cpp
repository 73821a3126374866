#include "quantize.hpp"

#include "families.hpp"

namespace harmonics::cpu {

bool plan_quantize(const Site& site, hx_kernel& out) {
  const bool back = site.op() == "dequantize";
  const hx_type &x = site.in(0), &scale = site.in(1), &real = back ? site.out() : x;
  const uint32_t whole = back ? x.dtype : site.out().dtype;
  if (!is_f32(real) || !is_f32(scale) || x.rank == 0) return false;
  auto c = std::make_unique<QuantizeContext>();
  c->dtype = whole;
  c->outer = 1;
  c->channels = count(scale);
  c->inner = count(x);
  if (scale.rank > 0) {
    c->inner = strides(x)[static_cast<size_t>(site.integer("axis"))];
    c->outer = count(x) / (c->channels * c->inner);
  }
  c->parts = parts_for(0.3 * static_cast<double>(count(x)), scale.rank > 0 ? c->outer * c->channels : count(x));
  answer(out, std::move(c), back ? isa().dequantize : isa().quantize, back ? "dequantize" : "quantize");
  return true;
}

}  // namespace harmonics::cpu
