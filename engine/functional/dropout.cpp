#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

// Scales kept elements to preserve the expectation; `random` is uniform in [0, 1).
Values masked(const char* name, const AttributeMap& a, const HTensor& random, const HTensor& x) {
  const double rate = a.number("rate");
  expect(random.shape() == x.shape(), name, "the random numbers " + text_of(random) + " do not fit " + text_of(x));
  return {select(less(random, rate), zeros_like(x), x * (1 / (1 - rate)))};
}

Values dropout(const AttributeMap& a, Inputs in) { return masked("dropout", a, in[1], in[0]); }
Values dropout_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs gradients) {
  return {one("dropout_grad", a, {in[1], gradients[0]}), {}};
}
Values dropout_grad(const AttributeMap& a, Inputs in) { return masked("dropout_grad", a, in[0], in[1]); }

}  // namespace

std::vector<Functional> dropouts() {
  return {
      {"dropout", "0 where the random number is below the rate, x / (1 - rate) elsewhere",
       "x [...], random f32 [...] {rate: float in 0..<1} -> y [...]", dropout, dropout_gradient},
      {"dropout_grad", "gradient of dropout", "random f32 [...], dy [...] {rate: float in 0..<1} -> dx [...]",
       dropout_grad, nullptr},
  };
}

}  // namespace harmonics::engine::reference
