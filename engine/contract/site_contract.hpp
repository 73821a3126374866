// Decides which calls are offered to libraries built for an earlier contract.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"
#include "engine/tensor/type.hpp"

namespace harmonics::engine {

// Returns "" if the contract that the item's library was built for has the call's attributes and element types;
// otherwise the reason why the call is not offered to the item.
std::string beyond_contract(const Item& item, std::string_view op, const AttributeMap& attributes,
                            const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs);

}  // namespace harmonics::engine
