#include <algorithm>

#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "layers.hpp"

namespace layers {

void expect_image(const char* layer, const HTensor& x) {
  const Shape s = x.shape();
  if (s.rank() == 4) return;
  const std::string sample = s.from(1).str();
  Error error(ErrorKind::Shape,
              std::string(layer) + " works on images [channels, height, width]; a sample here is " + sample);
  if (s.rank() == 3)
    throw error.note("declare the channels where the stream begins: producer NAME {1, " + std::to_string(s[1]) + ", " +
                     std::to_string(s[2]) + "};");
  throw error.note("declare the shape where the stream begins, e.g. producer NAME {1, 28, 28};");
}

std::vector<int64_t> pair_of(const Arguments& a, const char* name, std::vector<int64_t> otherwise, int64_t least) {
  std::vector<int64_t> v = a.has(name) ? a.integers(name) : std::move(otherwise);
  if (v.size() == 1) v.push_back(v[0]);
  if (v.size() != 2)
    throw Error(ErrorKind::Type,
                std::string(name) + " has " + std::to_string(v.size()) + " numbers; give one, or [height, width]");
  if (v[0] < least || v[1] < least)
    throw Error(ErrorKind::Type, std::string(name) + " is [" + std::to_string(v[0]) + ", " + std::to_string(v[1]) +
                                     "]; the minimum is " + std::to_string(least));
  constexpr int64_t most = int64_t{1} << 30;  // the product of two does not overflow
  if (v[0] > most || v[1] > most)
    throw Error(ErrorKind::Type, std::string(name) + " is [" + std::to_string(v[0]) + ", " + std::to_string(v[1]) +
                                     "]; the maximum is " + std::to_string(most));
  return v;
}

Attributes attributes_of(const char* layer, const HTensor& x, const Window& w) {
  const Shape s = x.shape();
  for (uint32_t i = 0; i < 2; ++i) {
    const int64_t reach = (w.kernel[i] - 1) * w.dilation[i] + 1, size = s[i + 2] + w.low[i] + w.high[i];
    if (reach > size)
      throw Error(ErrorKind::Shape, std::string(layer) + ": a window that reaches over " + std::to_string(reach) +
                                        " does not fit an image of " + s.from(1).str() + ", padded to " +
                                        std::to_string(size))
          .note("make the kernel smaller, or pad: padding=\"same\"");
  }
  return Attributes()
      .set("strides", w.strides)
      .set("dilation", w.dilation)
      .set("padding_low", w.low)
      .set("padding_high", w.high);
}

namespace {

// "same": ceil(size / stride) outputs; odd padding goes to the end.
void pad_same(const Shape& shape, Window& w) {
  for (uint32_t i = 0; i < 2; ++i) {
    const int64_t size = shape[i + 2], outputs = (size + w.strides[i] - 1) / w.strides[i];
    const int64_t total =
        std::max<int64_t>(0, (outputs - 1) * w.strides[i] + (w.kernel[i] - 1) * w.dilation[i] + 1 - size);
    w.low.push_back(total / 2);
    w.high.push_back(total - total / 2);
  }
}

void set_padding(const std::string& padding, const Shape& shape, Window& w) {
  if (padding == "same") return pad_same(shape, w);
  int64_t n = padding == "valid" ? 0 : -1;
  if (!padding.empty() && padding.size() < 6 && padding.find_first_not_of("0123456789") == std::string::npos)
    n = std::stoll(padding);
  if (n < 0)
    throw Error(ErrorKind::Type, "padding is \"" + padding + "\"; it can be \"same\", \"valid\" or a whole number");
  w.low = w.high = {n, n};
}

}  // namespace

HTensor conv(Scope& scope, const HTensor& x, const Arguments& a) {
  expect_image("conv", x);
  const Shape s = x.shape();
  const int64_t channels = a.integer("channels"), groups = a.integer("groups", 1);
  if (s[1] % groups || channels % groups)
    throw Error(ErrorKind::Shape, "groups is " + std::to_string(groups) + "; it must divide the " +
                                      harmonics::quantity(s[1], "input channel") + " and the " +
                                      harmonics::quantity(channels, "output channel"));
  Window w{pair_of(a, "kernel", {3}, 1), pair_of(a, "stride", {1}, 1), pair_of(a, "dilation", {1}, 1), {}, {}};
  set_padding(a.text("padding", "same"), s, w);
  const int64_t fan_in = Shape{s[1] / groups, w.kernel[0], w.kernel[1]}.count();
  const Attributes attributes = attributes_of("conv", x, w).set("groups", groups);
  const HTensor weight =
      scope.parameter("weight", {channels, s[1] / groups, w.kernel[0], w.kernel[1]}, harmonics::kaiming_init(fan_in));
  if (!a.flag("bias", true)) return harmonics::call1("conv", {x, weight}, attributes);
  return harmonics::call1("conv", {x, weight, scope.parameter("bias", {channels}, harmonics::kaiming_init(fan_in))},
                          attributes);
}

}  // namespace layers
