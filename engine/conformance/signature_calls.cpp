#include "engine/conformance/signature_calls.hpp"

#include <array>
#include <map>
#include <optional>

#include "engine/conformance/gradient_check.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

constexpr std::array<int64_t, 5> kSizes{5, 3, 4, 2, 7};

// Assigns sizes to axis names in the order of their appearance.
class Axes {
 public:
  explicit Axes(std::vector<int64_t> any) : any_(std::move(any)) {}

  std::optional<Shape> shape(const OperandSpec& operand) {
    const auto axes = operand.axes();
    if (!axes) return std::nullopt;
    Shape shape;
    for (const std::string& axis : *axes) {
      if (axis == "...") {
        for (const int64_t size : any_) shape.push_back(size);
      } else if (const auto number = parse_argument(HX_ARG_INT, axis)) {
        shape.push_back(std::get<int64_t>(*number));
      } else if (axis.find_first_of("/*+- 0123456789") == std::string::npos) {
        shape.push_back(sizes_.try_emplace(axis, kSizes[sizes_.size() % kSizes.size()]).first->second);
      } else {
        return std::nullopt;
      }
      if (shape.rank() > 6) return std::nullopt;
    }
    return shape;
  }

 private:
  std::vector<int64_t> any_;
  std::map<std::string, int64_t> sizes_;
};

// Returns the element type at the beginning of the operand's type, `otherwise` if there is only a shape, and none if it
// is unknown.
std::optional<DType> dtype_of(const OperandSpec& operand, DType otherwise) {
  const std::string word = operand.type.substr(0, operand.type.find_first_of(" ["));
  if (word.empty()) return otherwise;
  try {
    return dtype_named(word);
  } catch (const Error&) {
    return std::nullopt;
  }
}

HTensor indices_below(int64_t limit, const Shape& shape, DType dtype) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < shape.count(); ++i) values.push_back((3 * i + 1) % limit);
  return cast(HTensor::from(shape, values), dtype);
}

// Returns the call with the axes `any` for "...". Returns none if an input is not fully described or the body rejects
// the call.
std::optional<CallExample> call_with(const std::string& op, const Signature& s, const AttributeMap& attributes,
                                     std::vector<int64_t> any, bool optional, DType type, uint64_t seed) {
  Axes axes(std::move(any));
  CallExample call{op, attributes, {}};
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    const OperandSpec& operand = s.inputs[i];
    if (operand.optional && !optional) continue;
    const bool indices = !operand.below.empty();
    const auto shape = axes.shape(operand);
    const auto dtype = dtype_of(operand, indices ? DType::I64 : type);
    if (!shape || !dtype) return std::nullopt;
    const std::optional<int64_t> limit = index_limit(s, i, attributes, types_of(call.inputs));
    if (indices && (!limit || *limit < 1)) return std::nullopt;
    call.inputs.push_back(limit ? indices_below(*limit, *shape, *dtype)
                                : random_tensor(*shape, seed + i, 0.1, 0.9, *dtype));
  }
  try {
    apply(op, attributes, call.inputs);
  } catch (const Error&) {
    return std::nullopt;
  }
  return call;
}

}  // namespace

std::vector<CallExample> calls_by_signature(const std::string& op, const Signature& signature,
                                            const AttributeMap& attributes, DType type, uint64_t seed) {
  std::vector<CallExample> calls;
  if (!signature.known || signature.more_inputs) return calls;
  const size_t least = signature.fewest_inputs();
  for (const std::vector<int64_t>& any : {std::vector<int64_t>{3}, {2, 3}, {}})
    for (const bool optional : {false, true}) {
      if (optional && signature.inputs.size() == least) continue;
      if (auto call = call_with(op, signature, attributes, any, optional, type, seed))
        calls.push_back(std::move(*call));
    }
  return calls;
}

}  // namespace harmonics::engine
