// Policies of plugins, which decide about the precision of each product.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/execution/kernel_source.hpp"
#include "engine/passes/precision_recipe.hpp"

namespace harmonics::engine {

// PrecisionRecipe::policy for the policy `text`, "NAME(setting=value)". `kernels` say what the device rounds to, and
// are used during this call only. Throws ErrorKind::Name for a policy that no plugin has. What it returns throws
// ErrorKind::Plugin, with the product, for a rounding that the device lacks or rows that cannot be quantised.
std::function<std::optional<ProductDecision>(const Program&, const Node&)> decisions_of(const std::string& text,
                                                                                        Registry& registry,
                                                                                        const KernelSource& kernels);

}  // namespace harmonics::engine
