// Activations that own parameters or change the shape.
#include <harmonics/ops.hpp>

#include "layers.hpp"

namespace layers {

HTensor prelu(Scope& scope, const HTensor& x, const Arguments& a) {
  const uint32_t axis = scope.leading();
  const bool channels = a.flag("channels");
  if (channels && x.rank() <= axis)
    throw Error(ErrorKind::Shape, "prelu(channels=true) needs channels; a sample here is a single number");
  const HTensor slope =
      scope.parameter("weight", {channels ? x.shape()[axis] : 1}, harmonics::constant_init(a.number("slope", 0.25)));
  return harmonics::call1("prelu", {x, slope}, Attributes().set("axis", int64_t{axis}));
}

// Splits along the first feature axis: the channels of images, else the features.
HTensor glu(Scope& scope, const HTensor& x, const Arguments&) {
  const uint32_t axis = scope.leading();
  const int64_t n = x.rank() > axis ? x.shape()[axis] : 1;
  if (n % 2)
    throw Error(ErrorKind::Shape, "glu halves the first axis of features, which is " + std::to_string(n) + " long")
        .note("write a map of an even width before it: -(affine(256), glu)-> gives 128");
  return harmonics::slice_axis(x, axis, 0, n / 2) * harmonics::logistic(harmonics::slice_axis(x, axis, n / 2, n));
}

}  // namespace layers
