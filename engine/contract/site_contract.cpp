#include "engine/contract/site_contract.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// The first minor with stored types and with mixed floating-point types of inputs.
constexpr uint16_t kFreeOperands = 5;

bool has_stored(const std::vector<TensorType>& types) {
  return std::any_of(types.begin(), types.end(), [](const TensorType& t) { return is_stored(t.dtype); });
}

// Returns whether the first two inputs have different floating-point types and the functional allows this only since a
// contract later than `minor`.
bool is_mixed(const Functional& functional, uint16_t minor, const std::vector<TensorType>& inputs) {
  if (functional.traits.free_types <= minor || inputs.size() < 2 || !is_float(inputs[0].dtype)) return false;
  return inputs[0].dtype != inputs[1].dtype;
}

// Returns whether the call is a product with mixed operand types, or with attributes for the types of its sums or
// result: features of contract 1.5.
bool is_free_product(std::string_view op, const AttributeMap& attributes, const std::vector<TensorType>& inputs) {
  const OpRow* primitive = find_op(op);
  return primitive && primitive->op == Op::dot && inputs.size() == 2 &&
         (inputs[0].dtype != inputs[1].dtype || attributes.has("out_dtype") || attributes.has("accumulate"));
}

}  // namespace

std::string beyond_contract(const Item& item, std::string_view op, const AttributeMap& attributes,
                            const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs) {
  const FunctionalPtr functional = FunctionalTable::global().find(op);
  const uint16_t needed = functional ? contract_minor(functional->signature, attributes) : uint16_t{0};
  if (needed > item.contract_minor)
    return fmt::format("it is built for contract {}.{}, but attributes of this call need contract {}.{}", HX_ABI_MAJOR,
                       item.contract_minor, HX_ABI_MAJOR, needed);
  if (item.contract_minor >= kFreeOperands) return "";
  const bool mixed =
      (functional && is_mixed(*functional, item.contract_minor, inputs)) || is_free_product(op, attributes, inputs);
  if (!has_stored(inputs) && !has_stored(outputs) && !mixed) return "";
  return fmt::format("its library is built for contract {}.{}, but such element types need contract {}.{}",
                     HX_ABI_MAJOR, item.contract_minor, HX_ABI_MAJOR, kFreeOperands);
}

}  // namespace harmonics::engine
