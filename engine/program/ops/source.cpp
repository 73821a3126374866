// Sources: constants from attributes, and random numbers from a counter.
#include <algorithm>

#include "engine/base/philox.hpp"
#include "engine/program/ops/check.hpp"
#include "engine/program/ops/fill.hpp"
#include "engine/program/ops/dispatch.hpp"

namespace harmonics::engine {

namespace {

std::vector<TensorType> infer_full(const AttributeMap& a, std::span<const TensorType> in) {
  expect_operands(Op::full, in, 0);
  a.number("value");
  return {checked_type(Op::full, a.dtype(), a.shape())};
}

void evaluate_full(const AttributeMap& a, std::span<const ConstView>, std::span<const View> out) {
  fill_elements(out[0].type.dtype, out[0].data, out[0].type.shape.count(), a.number("value"));
}

std::vector<TensorType> infer_iota(const AttributeMap& a, std::span<const TensorType> in) {
  expect_operands(Op::iota, in, 0);
  const TensorType out = checked_type(Op::iota, a.dtype(), a.shape());
  if (out.dtype == DType::Bool) throw Error(ErrorKind::Type, "iota: the element type must be a number, not bool");
  const int64_t axis = a.integer("axis");
  if (axis < 0 || axis >= static_cast<int64_t>(out.shape.rank()))
    throw Error(ErrorKind::Shape, "iota: axis " + std::to_string(axis) + " does not exist in " + out.str());
  return {out};
}

void evaluate_iota(const AttributeMap& a, std::span<const ConstView>, std::span<const View> out) {
  const Shape& shape = out[0].type.shape;
  const auto axis = static_cast<uint32_t>(a.integer("axis"));
  const int64_t inner = shape.from(axis + 1).count(), n = shape.count();
  visit_dtype(out[0].type.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* y = static_cast<T*>(out[0].data);
    for (int64_t i = 0; i < n; ++i) y[i] = convert_element<T>(i / inner % shape[axis]);
  });
}

std::vector<TensorType> infer_random(const AttributeMap& a, std::span<const TensorType> in) {
  expect_operands(Op::random_uniform, in, 1);
  if (in[0] != TensorType{DType::I64, {2}})
    misfit(Op::random_uniform, ErrorKind::Shape, in, "it must be the counter i64[2] of seed and step");
  a.integer("stream");
  return {checked_type(Op::random_uniform, DType::F32, a.shape())};
}

void evaluate_random(const AttributeMap& a, std::span<const ConstView> in, std::span<const View> out) {
  const auto* counter = static_cast<const int64_t*>(in[0].data);
  const auto key = philox_key(static_cast<uint64_t>(counter[0]), static_cast<uint64_t>(a.integer("stream")));
  const auto step = static_cast<uint64_t>(counter[1]);
  auto* y = static_cast<float*>(out[0].data);
  const auto n = static_cast<uint64_t>(out[0].type.shape.count());
  for (uint64_t i = 0; i < n; i += 4) {
    const uint64_t block = i / 4;
    const auto words = philox({static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
                               static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)},
                              key);
    for (uint64_t k = 0; k < std::min<uint64_t>(4, n - i); ++k) y[i + k] = unit_float(words[k]);
  }
}

}  // namespace

OpRow source_row(Op op) {
  OpRow row{};
  switch (op) {
    case Op::full:
      row.infer = infer_full;
      row.evaluate = evaluate_full;
      break;
    case Op::iota:
      row.infer = infer_iota;
      row.evaluate = evaluate_iota;
      break;
    case Op::random_uniform:
      row.infer = infer_random;
      row.evaluate = evaluate_random;
      break;
    default:
      throw Error(ErrorKind::Internal, std::string(op_name(op)) + " is not a source");
  }
  return row;
}

}  // namespace harmonics::engine
