// select, the only elementwise operation with three operands.
#include <harmonics/ops.hpp>

#include "engine/program/ops/check.hpp"
#include "engine/program/ops/dispatch.hpp"

namespace harmonics::engine {

namespace {

std::vector<TensorType> infer_select(const AttributeMap&, std::span<const TensorType> in) {
  expect_operands(Op::select, in, 3);
  expect_bool(Op::select, in, 0);
  expect_same_dtype(Op::select, in, 1, 2);
  expect_same_shape(Op::select, in, 0, 1);
  expect_same_shape(Op::select, in, 1, 2);
  return {in[1]};
}

void evaluate_select(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  visit_dtype(out[0].type.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* condition = static_cast<const bool*>(in[0].data);
    const auto *a = static_cast<const T*>(in[1].data), *b = static_cast<const T*>(in[2].data);
    auto* y = static_cast<T*>(out[0].data);
    const int64_t n = out[0].type.shape.count();
    for (int64_t i = 0; i < n; ++i) y[i] = condition[i] ? a[i] : b[i];
  });
}

std::vector<HTensor> gradient_select(const AttributeMap&, std::span<const HTensor> in, std::span<const HTensor>,
                                     std::span<const HTensor> dy) {
  const HTensor zero = zeros_like(dy[0]);
  return {{}, select(in[0], dy[0], zero), select(in[0], zero, dy[0])};
}

}  // namespace

OpRow ternary_row(Op op) {
  if (op != Op::select) throw Error(ErrorKind::Internal, std::string(op_name(op)) + " is not ternary");
  OpRow row{};
  row.infer = infer_select;
  row.evaluate = evaluate_select;
  row.gradient = gradient_select;
  return row;
}

}  // namespace harmonics::engine
