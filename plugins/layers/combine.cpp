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

// A condition with one number per sample, or per position, selects all features of it.
HTensor select(Scope& scope, const HTensor& x, const Arguments& a) {
  const HTensor on_true = a.tensor("on_true"), on_false = a.tensor("on_false");
  const Shape& to = on_true.shape();
  if (to != on_false.shape())
    throw Error(ErrorKind::Shape, "select takes two layers of one shape; " + sample_of(on_true) + " and " +
                                      sample_of(on_false) + " differ");
  Shape shape = x.shape();
  const uint32_t leading = scope.leading();
  if (shape.from(leading).count() == 1 && leading <= to.rank()) {
    shape = shape.slice(0, leading);
    while (shape.rank() < to.rank()) shape.push_back(1);
  }
  bool fits = shape.rank() == to.rank();
  for (uint32_t i = 0; fits && i < shape.rank(); ++i) fits = shape[i] == to[i] || (i > 0 && shape[i] == 1);
  if (!fits)
    throw Error(ErrorKind::Shape, "select takes a condition of the shape " + sample_of(on_true) +
                                      ", or with axes of one number; the source is " + sample_of(x));
  const HTensor condition = less(a.number("above"), reshape(x, shape));
  return harmonics::select(condition, on_true, on_false);
}

}  // namespace layers
