// Call sites for planning code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/device.hpp>

#include "kernels/shared/types.hpp"

namespace harmonics::kernels {

// Refers to a call site, which must outlive it.
class Site {
 public:
  explicit Site(const hx_call_site& raw) : raw_(raw) {}
  std::string_view op() const { return raw_.op; }
  const hx_call_site& raw() const { return raw_; }
  uint32_t inputs() const { return raw_.n_inputs; }
  uint32_t outputs() const { return raw_.n_outputs; }
  const hx_type& in(uint32_t i) const { return raw_.inputs[i]; }
  const hx_type& out(uint32_t i = 0) const { return raw_.outputs[i]; }
  // Index of the workspace: the buffers of a call are its inputs, its outputs, then the workspace.
  uint32_t workspace() const { return inputs() + outputs(); }
  const hx_type& buffer(uint32_t i) const { return i < inputs() ? in(i) : out(i - inputs()); }
  bool all_f32() const {
    return std::all_of(raw_.inputs, raw_.inputs + raw_.n_inputs, is_f32) &&
           std::all_of(raw_.outputs, raw_.outputs + raw_.n_outputs, is_f32);
  }
  // Whether an operand or result is of a stored type (q8_0 ...).
  bool has_stored() const {
    const auto stored = [](const hx_type& t) { return is_stored(t.dtype); };
    return std::any_of(raw_.inputs, raw_.inputs + raw_.n_inputs, stored) ||
           std::any_of(raw_.outputs, raw_.outputs + raw_.n_outputs, stored);
  }
  int64_t integer(const char* name, int64_t otherwise = 0) const {
    return int_attribute(raw_.attributes, name, otherwise);
  }
  double number(const char* name, double otherwise = 0) const {
    return float_attribute(raw_.attributes, name, otherwise);
  }
  bool flag(const char* name) const { return integer(name) != 0; }
  std::vector<int64_t> integers(const char* name) const { return ints_attribute(raw_.attributes, name); }
  std::string text(const char* name) const { return string_attribute(raw_.attributes, name, ""); }

 private:
  const hx_call_site& raw_;
};

// reduce_window: the last element covered by a window along an axis, counted from the first element of the padding.
inline int64_t last_of_windows(const Site& site, uint32_t axis) {
  const auto of = [&](const char* name) { return site.integers(name)[axis]; };
  return (site.out().dims[axis] - 1) * of("strides") + (of("window") - 1) * of("dilation");
}

// Whether a call of attention uses features of contract 1.5: optional inputs, a window or a soft cap of the scores.
// Reads numbers, since integers may be attributes of type float.
inline bool has_more_than_attention(const Site& site) {
  return !site.text("operands").empty() || site.number("window") != 0 || site.number("softcap") != 0;
}
inline bool has_more_than_rope(const Site& site) {
  return !site.text("operands").empty() || site.text("pairing") == "interleaved" || site.number("rotary_dims") != 0;
}

// Element type in which a product of floats is summed.
inline uint32_t sum_type(const Site& site, uint32_t a, uint32_t b) {
  return a == HX_F64 || b == HX_F64 || site.text("accumulate") == "f64" ? HX_F64 : HX_F32;
}
// Whether the rows of x are quantised before the product.
inline bool quantises_rows(const Site& site) { return !site.text("activation_type").empty(); }

}  // namespace harmonics::kernels
