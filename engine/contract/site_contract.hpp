// Which contract a library must know to be asked about a call site.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/type.hpp"

namespace harmonics::engine {

// Why the item's library, built for an earlier minor of contract 1, is not asked about such a call; "": it is asked.
std::string too_new_for(const Item& item, std::string_view op, const std::vector<TensorType>& inputs,
                        const std::vector<TensorType>& outputs);

}  // namespace harmonics::engine
