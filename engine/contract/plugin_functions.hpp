// Calls registered activations, losses and layers while a program is traced.
//
// A body written with library operations is traced into the program. A body that reads numbers cannot be traced; the
// first use of a signature (function, arguments, types) detects this in a scratch program. It becomes an opaque node,
// whose result type comes from a run on zeros. A body with its own gradient is opaque too, so that its gradient is
// used.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/contract/plugin_body.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/plugin/scope.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

// All throw the plugin's error, with its kind, naming the function and the plugin.

// The result must have x's shape and type; else ErrorKind::Plugin with both.
HTensor call_activation(const ItemPtr& item, const AttributeMap& arguments, const HTensor& x);

// `layers`: values of arguments that name further sources. Throws detail::NeedsWidth if the body asks for a width that
// is not known yet. Layers are always traced: one that reads numbers is rejected.
HTensor call_layer(const ItemPtr& item, const AttributeMap& arguments,
                   const std::vector<std::pair<std::string, HTensor>>& layers, hx_scope& scope, const HTensor& x);

// Calls a functional as a layer without parameters: the first input is x, further ones are sources named by arguments.
// Returns the first result, whose first axis is the batch.
HTensor call_functional(const ItemPtr& item, const AttributeMap& arguments, const std::vector<HTensor>& inputs);

// `activation`: identity of the function that computed `prediction` from `logits`; "" if there is none and both are the
// same. `layers`: values of arguments that name further sources, as they are: class numbers stay whole numbers. Prefers
// the fused form. The result is a scalar or has leading axes of the prediction.
// `figures` receives what a traced loss reports.
HTensor call_loss(const ItemPtr& item, const AttributeMap& arguments, const std::string& activation,
                  const HTensor& logits, const HTensor& prediction, const HTensor& target,
                  const std::vector<std::pair<std::string, HTensor>>& layers = {},
                  std::vector<ReportedFigure>* figures = nullptr);

}  // namespace harmonics::engine
