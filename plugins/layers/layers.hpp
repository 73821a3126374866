// The layers of the catalogue: shape rules, parameters, arguments and help. Their meaning is defined by the functionals
// that they call.
#pragma once

#include <harmonics/function.hpp>

namespace layers {

using harmonics::Argument;
using harmonics::Arguments;
using harmonics::Attributes;
using harmonics::DType;
using harmonics::Error;
using harmonics::ErrorKind;
using harmonics::HTensor;
using harmonics::Scope;
using harmonics::Shape;

using Body = HTensor (*)(Scope& scope, const HTensor& x, const Arguments& arguments);

HTensor affine(Scope&, const HTensor&, const Arguments&);
HTensor attention(Scope&, const HTensor&, const Arguments&);
HTensor avgpool(Scope&, const HTensor&, const Arguments&);
HTensor concat(Scope&, const HTensor&, const Arguments&);
HTensor conv(Scope&, const HTensor&, const Arguments&);
HTensor dropout(Scope&, const HTensor&, const Arguments&);
HTensor noise(Scope&, const HTensor&, const Arguments&);
HTensor embed(Scope&, const HTensor&, const Arguments&);
HTensor flatten(Scope&, const HTensor&, const Arguments&);
HTensor glu(Scope&, const HTensor&, const Arguments&);
HTensor gru(Scope&, const HTensor&, const Arguments&);
HTensor last(Scope&, const HTensor&, const Arguments&);
HTensor lstm(Scope&, const HTensor&, const Arguments&);
HTensor maxpool(Scope&, const HTensor&, const Arguments&);
HTensor mean(Scope&, const HTensor&, const Arguments&);
HTensor mul(Scope&, const HTensor&, const Arguments&);
HTensor norm(Scope&, const HTensor&, const Arguments&);
HTensor prelu(Scope&, const HTensor&, const Arguments&);
HTensor select(Scope&, const HTensor&, const Arguments&);
HTensor skip(Scope&, const HTensor&, const Arguments&);

// Applies the weight "NAME.weight" [width, features] and the bias "NAME.bias" to the last axis. Without a name:
// "weight", "bias".
HTensor project(Scope& scope, const HTensor& x, const std::string& name, int64_t width, bool bias);
// Flattens all axes after the leading ones.
HTensor flat(const Scope& scope, const HTensor& x);
// Returns one position of a sequence [batch, positions, ...], without that axis.
HTensor position_of(const HTensor& x, int64_t at);
// Throws unless x is [batch, channels, height, width]; the error explains how to declare it.
void expect_image(const char* layer, const HTensor& x);
// Returns an argument of one number for both axes, or one for each.
std::vector<int64_t> pair_of(const Arguments& arguments, const char* name, std::vector<int64_t> otherwise,
                             int64_t least);
// The window as attributes of a functional. Throws if no window fits.
struct Window {
  std::vector<int64_t> kernel, strides, dilation, low, high;
};
Attributes attributes_of(const char* layer, const HTensor& x, const Window& window);

}  // namespace layers
