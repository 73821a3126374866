// Calls registered activations, losses and layers while a program is traced.
//
// A body written with library operations is traced into the program. A body that reads values cannot be traced; the
// first use of a signature (function, arguments, types) detects this in a scratch program. The body then becomes an
// opaque node, whose result type comes from a run on zeros. A body with its own gradient is opaque too, so that its
// gradient is used.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/contract/plugin_body.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/plugin/scope.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

// All functions throw the plugin's error with its kind and the names of the function and the plugin.

// Throws ErrorKind::Plugin if the result does not have the shape and element type of x.
HTensor call_activation(const ItemPtr& item, const AttributeMap& arguments, const HTensor& x);

// `layers` are the values of arguments that name further sources. Throws detail::NeedsWidth if the body requests a
// width that is not known yet. Throws ErrorKind::Plugin if the body reads values, because layers are always traced.
HTensor call_layer(const ItemPtr& item, const AttributeMap& arguments,
                   const std::vector<std::pair<std::string, HTensor>>& layers, hx_scope& scope, const HTensor& x);

// Calls a functional as a layer without parameters: the first input is x, further ones are sources named by arguments.
// Returns the first result, whose first axis is the batch.
HTensor call_functional(const ItemPtr& item, const AttributeMap& arguments, const std::vector<HTensor>& inputs);

// Calls the fused form of the loss, or the plain form if that declines. `activation` is the identity of the function
// that computed `prediction` from `logits`; "" if there is none and both are the same. `layers` are the values of
// arguments that name further sources, unconverted: class indices stay integers. The result is a scalar or has the
// batch axis of the prediction. `figures` receives the figures that a traced loss reports.
HTensor call_loss(const ItemPtr& item, const AttributeMap& arguments, const std::string& activation,
                  const HTensor& logits, const HTensor& prediction, const HTensor& target,
                  const std::vector<std::pair<std::string, HTensor>>& layers = {},
                  std::vector<ReportedFigure>* figures = nullptr);

}  // namespace harmonics::engine
