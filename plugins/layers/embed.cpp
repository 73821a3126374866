#include <harmonics/ops.hpp>

#include "layers.hpp"

namespace layers {

HTensor embed(Scope& scope, const HTensor& x, const Arguments& a) {
  if (x.dtype() < DType::U8 || x.dtype() > DType::U64)
    throw Error(ErrorKind::Type, "embed looks up rows by number, but its input is not a stream of whole numbers")
        .note("write it directly after a producer of text, tokens or labels");
  const int64_t rows = a.has("vocabulary") ? a.integer("vocabulary") : scope.classes();
  if (rows < 1)
    throw Error(ErrorKind::Shape, "embed needs the number of different tokens").note("write it: embed(vocabulary=256)");
  const int64_t width = a.has("width") ? a.integer("width") : scope.width();
  const HTensor table =
      scope.parameter("weight", {rows, width}, harmonics::normal_init(0, a.number("deviation", 0.02)));
  return harmonics::call1("embedding", {table, x});
}

}  // namespace layers
