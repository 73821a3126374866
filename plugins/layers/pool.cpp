#include <harmonics/ops.hpp>

#include "layers.hpp"

namespace layers {

namespace {

HTensor pool(const char* layer, const char* functional, const HTensor& x, const Arguments& a) {
  expect_image(layer, x);
  const std::vector<int64_t> kernel = pair_of(a, "size", {2}, 1), padding = pair_of(a, "padding", {0}, 0);
  for (size_t i = 0; i < 2; ++i)
    if (2 * padding[i] > kernel[i])
      throw Error(ErrorKind::Type, "padding is " + std::to_string(padding[i]) + "; at most half of the window's " +
                                       std::to_string(kernel[i]));
  const Window w{kernel, pair_of(a, "stride", kernel, 1), {1, 1}, padding, padding};
  return harmonics::call(functional, {x}, attributes_of(layer, x, w).set("kernel", kernel)).at(0);
}

}  // namespace

HTensor maxpool(Scope&, const HTensor& x, const Arguments& a) { return pool("maxpool", "max_pool", x, a); }
HTensor avgpool(Scope&, const HTensor& x, const Arguments& a) { return pool("avgpool", "avg_pool", x, a); }

}  // namespace layers
