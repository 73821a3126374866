#include <harmonics/ops.hpp>

#include "layers.hpp"

namespace layers {

HTensor flat(const Scope& scope, const HTensor& x) {
  const Shape shape = x.shape();
  Shape wanted = shape.slice(0, scope.leading());
  wanted.push_back(shape.from(scope.leading()).count());
  return harmonics::reshape(x, wanted);
}

HTensor project(Scope& scope, const HTensor& x, const std::string& name, int64_t width, bool bias) {
  if (width < 1)
    throw Error(ErrorKind::Shape, "a width of " + std::to_string(width) + " is not possible; the minimum is 1");
  const int64_t features = x.shape().back();
  const std::string prefix = name.empty() ? "" : name + ".";
  const HTensor weight =
      scope.parameter((prefix + "weight").c_str(), {width, features}, harmonics::kaiming_init(features));
  if (!bias) return harmonics::linear(x, weight);
  return harmonics::linear(x, weight,
                           scope.parameter((prefix + "bias").c_str(), {width}, harmonics::kaiming_init(features)));
}

// With a sequence axis, each position is mapped separately; otherwise the whole sample is one vector.
HTensor affine(Scope& scope, const HTensor& x, const Arguments& a) {
  const bool sequence = scope.leading() > 1 && x.rank() > scope.leading();
  const int64_t width = a.has("width") ? a.integer("width") : scope.width();
  return project(scope, sequence ? x : flat(scope, x), "", width, a.flag("bias", true));
}

HTensor flatten(Scope& scope, const HTensor& x, const Arguments&) { return flat(scope, x); }

}  // namespace layers
