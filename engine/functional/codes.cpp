// Quantises rows to codes of eight bits with one scale per row, and finds the largest magnitudes for such scales.
#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

constexpr double kLeastMagnitude = 1e-30;  // smallest magnitude of a row, so that rows of zeros have codes of 0

HTensor largest(const HTensor& x, bool of_rows) {
  std::vector<int64_t> axes;
  const auto rank = static_cast<int64_t>(x.rank());
  for (int64_t axis = of_rows ? rank - 1 : 0; axis < rank; ++axis) axes.push_back(axis);
  return axes.empty() ? abs(x) : reduce_max(abs(x), axes);
}

Values abs_max(const AttributeMap& a, Inputs in) {
  const bool of_rows = a.flag("rows");
  expect(!of_rows || in[0].rank() > 0, "abs_max", "a scalar has no rows");
  return {largest(in[0], of_rows)};
}

Values rms_norm_quantize(const AttributeMap& a, Inputs in) {
  const HTensor x = wide(in[0]);
  const auto last = static_cast<int64_t>(x.rank()) - 1;
  expect(
      last >= 0 && in[1].shape() == Shape{x.shape()[static_cast<uint32_t>(last)]}, "rms_norm_quantize",
      "gain " + text_of(in[1]) + " does not fit x " + text_of(in[0]) + ": it has one number for each of the last axis");
  Shape row = x.shape();
  row[static_cast<uint32_t>(last)] = 1;
  const HTensor rstd = reshape(rsqrt(reduce_mean(square(x), {last}) + a.number("epsilon", 1e-5)), row);
  const HTensor y = x * rstd * wide(in[1], x);
  const bool whole = a.text("out_dtype", "i8") == "i8";
  const HTensor magnitude = largest(y, true);
  const HTensor scale =
      maximum(magnitude, full(magnitude.dtype(), magnitude.shape(), kLeastMagnitude)) / (whole ? 127.0 : 448.0);
  if (!whole) return {cast(y / reshape(scale, row), DType::F8_E4M3), scale};
  const int64_t rows = scale.size();
  const HTensor flat = reshape(y, Shape{rows, x.shape().back()}), zero = full(DType::I8, Shape{rows}, 0);
  const HTensor codes = call1("quantize", {flat, reshape(scale, Shape{rows}), zero},
                              Attributes().set("axis", int64_t{0}).set("dtype", static_cast<int64_t>(DType::I8)));
  return {reshape(codes, x.shape()), scale};
}

}  // namespace

std::vector<Functional> codes() {
  return {
      {"abs_max", "largest absolute value of all elements, or of each row", "x [...] {rows = false} -> m [] or [...]",
       abs_max, nullptr},
      {"rms_norm_quantize",
       "rms_norm with quantised rows: y = codes scale, where scale is the row's largest magnitude divided by 127 (i8, "
       "rounded half to even) or 448 (f8_e4m3)",
       "x [..., n], gain [n] {epsilon = 1e-5, out_dtype = \"i8\" in i8|f8_e4m3 (the type of the codes)} -> codes [..., "
       "n], scale [...]",
       rms_norm_quantize, nullptr},
  };
}

}  // namespace harmonics::engine::reference
