#include <harmonics/ops.hpp>

#include "layers.hpp"

namespace layers {

namespace {

std::string sample_of(const HTensor& x) { return x.shape().from(1).str(); }

}  // namespace

HTensor skip(Scope&, const HTensor& x, const Arguments&) { return x; }

// Joins along the first feature axis: the channels of images, else the features.
HTensor concat(Scope& scope, const HTensor& x, const Arguments& a) {
  const HTensor other = a.tensor("with");
  const uint32_t axis = scope.leading();
  Shape expected = x.shape();
  if (axis < x.rank() && other.rank() == x.rank()) expected[axis] = other.shape()[axis];
  if (axis >= x.rank() || other.shape() != expected)
    throw Error(ErrorKind::Shape, "concat joins along the first axis of features; " + sample_of(x) + " and " +
                                      sample_of(other) + " differ in others");
  return harmonics::concat({x, other}, axis);
}

HTensor mul(Scope&, const HTensor& x, const Arguments& a) {
  const HTensor other = a.tensor("with");
  if (x.shape() != other.shape())
    throw Error(ErrorKind::Shape,
                "mul multiplies element by element; " + sample_of(x) + " and " + sample_of(other) + " differ in shape");
  return harmonics::mul(x, other);
}

}  // namespace layers
