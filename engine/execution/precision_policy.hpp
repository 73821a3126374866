// Policies of plugins, which decide the precision of each product.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/execution/kernel_source.hpp"
#include "engine/passes/precision_recipe.hpp"

namespace harmonics::engine {

// Returns PrecisionRecipe::policy for the policy `text`, "NAME(setting=value)". `kernels` supplies the roundings of the
// device and is used during this call only. Throws ErrorKind::Name if no plugin has the policy. The returned function
// throws ErrorKind::Plugin, with the product, for roundings that the device lacks and for rows that cannot be
// quantised.
std::function<std::optional<ProductDecision>(const Program&, const Node&)> decisions_of(const std::string& text,
                                                                                        Registry& registry,
                                                                                        const KernelSource& kernels);

}  // namespace harmonics::engine
