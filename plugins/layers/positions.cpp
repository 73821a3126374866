// Layers that select one position of a sequence.
#include <harmonics/ops.hpp>

#include "layers.hpp"

namespace layers {

void expect_positions(const char* layer, const Scope& scope, const HTensor& x) {
  if (scope.leading() > 1 && x.rank() >= 2) return;
  throw Error(ErrorKind::Shape, std::string(layer) + " works on sequences; a sample here is " + x.shape().from(1).str())
      .note("use a producer of sequences (file:PATH?window=256), or declare one: {*, 64}");
}

HTensor position_of(const HTensor& x, int64_t at) {
  const Shape s = x.shape();
  Shape shape{s[0]};
  for (int64_t d : s.from(2)) shape.push_back(d);
  return harmonics::reshape(harmonics::slice_axis(x, 1, at, at + 1), shape);
}

HTensor last(Scope& scope, const HTensor& x, const Arguments&) {
  expect_positions("last", scope, x);
  scope.set_leading(1);
  return position_of(x, x.shape()[1] - 1);
}

HTensor mean(Scope& scope, const HTensor& x, const Arguments&) {
  expect_positions("mean", scope, x);
  scope.set_leading(1);
  return harmonics::reduce_mean(x, {1});
}

}  // namespace layers
