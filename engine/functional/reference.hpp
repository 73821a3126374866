// Shared by the functionals of the library: tables of families, checks of inputs, common compositions.
//
// Bodies and gradients are functions on HTensor: they compute on tensors and are recorded on traced values. 16-bit
// inputs are widened to f32. Statistics (mean, rstd, lse, and losses computed from lse) stay wide; other results have
// the type of the input.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine::reference {

using Inputs = std::span<const HTensor>;

// One table per family: name, description, formula, body, gradient.
std::vector<Functional> activations();
std::vector<Functional> rectifiers();
std::vector<Functional> losses();
std::vector<Functional> linears();
std::vector<Functional> fusions();
std::vector<Functional> norms();
std::vector<Functional> codes();
std::vector<Functional> convolutions();
std::vector<Functional> pools();
std::vector<Functional> embeddings();
std::vector<Functional> dropouts();
std::vector<Functional> attentions();
std::vector<Functional> sequences();
std::vector<Functional> recurrences();
std::vector<Functional> experts();
std::vector<Functional> heads();
std::vector<Functional> optimizers();
void add_reference_functionals(FunctionalTable& table);  // all of them

// Throws ErrorKind::Shape, or `kind`, with the message "NAME: text" unless `holds`.
inline void expect(bool holds, const char* name, const std::string& text, ErrorKind kind = ErrorKind::Shape) {
  if (!holds) throw Error(kind, std::string(name) + ": " + text);
}
inline std::string text_of(const HTensor& x) { return type_of(x).str(); }

// Optional inputs after the first `fixed` ones. The attribute `operands` names them ("lengths" or "lengths,bias").
class OptionalInputs {
 public:
  OptionalInputs(const char* name, const AttributeMap& attributes, Inputs in, size_t fixed,
                 std::initializer_list<std::string_view> known);
  const HTensor& find(std::string_view operand) const;  // empty if not given
  bool has(std::string_view operand) const { return !find(operand).empty(); }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  Inputs values_;
};

// Applies an operation or functional with a single result.
inline HTensor one(std::string_view op, const AttributeMap& attributes, const std::vector<HTensor>& inputs) {
  return apply(op, attributes, inputs).at(0);
}

inline HTensor wide(const HTensor& x) {
  return x.dtype() == DType::F16 || x.dtype() == DType::BF16 ? cast(x, DType::F32) : x;
}
inline HTensor wide(const HTensor& x, const HTensor& like) { return cast(x, wide(like).dtype()); }
inline HTensor as_type_of(const HTensor& x, const HTensor& like) { return cast(x, like.dtype()); }
inline HTensor square(const HTensor& x) { return mul(x, x); }

// An absent gradient is zero.
inline HTensor or_zero(const HTensor& gradient, const HTensor& like) { return gradient ? gradient : zeros_like(like); }

inline std::vector<int64_t> last_axis(const HTensor& x) { return {static_cast<int64_t>(x.rank()) - 1}; }
inline std::vector<int64_t> leading_axes(const HTensor& x, int64_t but_last = 1) {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i + but_last < static_cast<int64_t>(x.rank()); ++i) axes.push_back(i);
  return axes;
}
// Adds a last axis of size 1 to `x`.
inline HTensor column(const HTensor& x) {
  Shape s = x.shape();
  s.push_back(1);
  return reshape(x, s);
}
// Reshapes a vector to lie along one of `rank` axes.
inline HTensor along(const HTensor& vector, uint32_t rank, uint32_t axis) {
  std::vector<int64_t> dims(rank, 1);
  dims[axis] = vector.size();
  return reshape(vector, Shape(dims));
}
// Applies the activation fused into linear and conv: "", "relu", "tanh", "logistic" or "gelu".
HTensor activate(const AttributeMap& attributes, const HTensor& x);
// Returns the gradient before the activation, from its result y, or from its input if the derivative cannot be computed
// from y.
HTensor before_activation(const AttributeMap& attributes, const HTensor& y, const HTensor& dy,
                          const std::function<HTensor()>& before);
// Appends the gradient of a, where sum(a b^T) is the gradient of w [m, n]. Value "all" of the attribute: b w^T;
// "active": the same only where a > 0; "": nothing is appended.
void append_input_gradient(const char* attribute, const AttributeMap& attributes, const HTensor& w, const HTensor& a,
                           const HTensor& b, Values& results);

// Returns the window attributes of conv and pooling for `patches`. Strides and dilation default to 1, padding to 0.
AttributeMap window(const char* name, const AttributeMap& attributes, const std::vector<int64_t>& kernel, double fill);

}  // namespace harmonics::engine::reference
