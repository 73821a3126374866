// Marks: identity operations that convey information, such as stop_gradient.
#include <cstring>

#include "engine/program/ops/check.hpp"

namespace harmonics::engine {

OpRow mark_row(Op op) {
  OpRow row{};
  if (op != Op::stop_gradient) throw Error(ErrorKind::Internal, std::string(op_name(op)) + " is not a mark");
  row.infer = [](const AttributeMap&, std::span<const TensorType> in) -> std::vector<TensorType> {
    expect_operands(Op::stop_gradient, in, 1);
    return {in[0]};
  };
  row.evaluate = [](const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
    if (const size_t bytes = out[0].type.bytes()) std::memcpy(out[0].data, in[0].data, bytes);
  };
  return row;
}

}  // namespace harmonics::engine
