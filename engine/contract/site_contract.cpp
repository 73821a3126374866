#include "engine/contract/site_contract.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/program/functional.hpp"

namespace harmonics::engine {

namespace {

// The first minor with stored types, and with weights of another type than x.
constexpr uint16_t kFreeOperands = 5;

bool has_stored(const std::vector<TensorType>& types) {
  return std::any_of(types.begin(), types.end(), [](const TensorType& t) { return is_stored(t.dtype); });
}

bool is_mixed(std::string_view op, const std::vector<TensorType>& inputs) {
  return op == "linear" && inputs.size() >= 2 && is_float(inputs[0].dtype) && inputs[0].dtype != inputs[1].dtype;
}

}  // namespace

std::string beyond_contract(const Item& item, std::string_view op, const AttributeMap& attributes,
                            const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs) {
  if (const uint16_t needed = contract_minor_of(op, attributes); needed > item.contract_minor)
    return fmt::format("it is built for contract {}.{}, and attributes of this call are of contract {}.{}",
                       HX_ABI_MAJOR, item.contract_minor, HX_ABI_MAJOR, needed);
  if (item.contract_minor >= kFreeOperands) return "";
  if (!has_stored(inputs) && !has_stored(outputs) && !is_mixed(op, inputs)) return "";
  return fmt::format("its library is built for contract {}.{}, such element types came with {}.{}", HX_ABI_MAJOR,
                     item.contract_minor, HX_ABI_MAJOR, kFreeOperands);
}

}  // namespace harmonics::engine
