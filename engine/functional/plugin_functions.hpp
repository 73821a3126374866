// Calling registered activations, losses and layers while a program is traced.
//
// A body written with library operations is traced straight into the program. A body that reads numbers cannot be: the
// first use of each signature (function, arguments, types) finds that out in a program of its own, and such a body
// becomes one opaque node whose result type comes from one run on zeros. A body that brings a gradient of its own is
// opaque too, so that its gradient is the one that counts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/plugin/scope.hpp"
#include "engine/program/attributes.hpp"

namespace harmonics {

// All throw what the plugin says, with the kind it gives, naming the function and its plugin.

// The result has x's shape and type, or ErrorKind::Plugin names both.
HTensor call_activation(const ItemPtr& item, const AttributeMap& arguments, const HTensor& x);

// `layers`: values of arguments that name further sources. Throws detail::NeedsWidth when the body asks for a width
// that is not settled. Layers are always traced: one that reads numbers is refused.
HTensor call_layer(const ItemPtr& item, const AttributeMap& arguments,
                   const std::vector<std::pair<std::string, HTensor>>& layers, hx_scope& scope, const HTensor& x);

// As a layer without parameters: the first input is x, further ones the sources that arguments name. Its first result, with the
// batch axis first.
HTensor call_functional(const ItemPtr& item, const AttributeMap& arguments, const std::vector<HTensor>& inputs);

// `activation`: identity of what made `prediction` from `logits` ("": nothing, and both are the same). The fused form
// is preferred. The result has leading axes of the prediction, or is a scalar.
HTensor call_loss(const ItemPtr& item, const AttributeMap& arguments, const std::string& activation,
                  const HTensor& logits, const HTensor& prediction, const HTensor& target);

}  // namespace harmonics
