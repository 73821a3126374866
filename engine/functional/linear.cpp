#include "engine/functional/reference.hpp"

namespace harmonics::reference {
namespace {

Values linear(const AttributeMap& a, Inputs in) {
  expect_inputs("linear", in, 2, 3);
  const HTensor &x = in[0], &weight = in[1];
  expect(x.rank() >= 1 && weight.rank() == 2 && x.shape().back() == weight.shape()[1], "linear",
         "x " + text_of(x) + " and weight " + text_of(weight) + " do not fit: x is [..., in], the weight [out, in]");
  HTensor y = dot(x, weight, last_axis(x), {1});
  if (in.size() == 3) {
    expect(in[2].shape() == Shape{weight.shape()[0]}, "linear",
           "bias " + text_of(in[2]) + " does not fit the weight " + text_of(weight) + ": it needs its first axis");
    y = y + in[2];
  }
  return {activate("linear", a, y)};
}

Values linear_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  const HTensor &x = in[0], &weight = in[1];
  const HTensor dy = before_activation(a, out[0], gradients[0], [&] {
    return one("linear", {}, {in.begin(), in.end()});
  });
  const std::vector<int64_t> leading = leading_axes(x);
  Values result{dot(dy, weight, last_axis(dy), {0}), dot(dy, x, leading, leading)};
  if (in.size() == 3) result.push_back(leading.empty() ? dy : reduce_sum(dy, leading));
  return result;
}

}  // namespace

std::vector<Functional> linears() {
  return {{"linear", "affine map of the last axis",
           "x [..., in], weight [out, in], bias [out]? {activation = \"\"} -> y [..., out]", linear, linear_gradient}};
}

}  // namespace harmonics::reference
