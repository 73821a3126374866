#include "engine/tensor/type.hpp"

#include <harmonics/checked.hpp>

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

DType dtype_named(std::string_view name) {
  std::vector<std::string> known;
  for (const ElementType& row : detail::element_types) {
    if (row.name == name) return row.dtype;
    known.emplace_back(row.name);
  }
  Error error(ErrorKind::Type, "unknown element type '" + std::string(name) + "'");
  const auto n = nearest(name, known);
  error.note(n ? "did you mean '" + *n + "'?" : "types are " + comma_separated(known));
  throw error;
}

std::string TensorType::str() const { return std::string(dtype_name(dtype)) + shape.str(); }

TensorType from_c(const hx_type& type) {
  if (type.rank > HX_MAX_RANK)
    throw Error(ErrorKind::Shape, "a tensor has at most 8 dimensions, not " + std::to_string(type.rank));
  TensorType t{static_cast<DType>(type.dtype), Shape(type.dims, type.dims + type.rank)};
  for (int64_t d : t.shape)
    if (d < 0) throw Error(ErrorKind::Shape, "negative dimension in " + t.shape.str());
  const ElementType& element = element_type(t.dtype);
  const auto count = checked_count<int64_t>(t.shape);
  if (!count || !checked_product<int64_t>(*count, static_cast<int64_t>(element.block_bytes)))
    throw Error(ErrorKind::Shape, "the size of a tensor of shape " + t.shape.str() + " overflows");
  expect_whole_blocks(t.dtype, t.shape);
  return t;
}

hx_type to_c(const TensorType& type) { return make_type(type.dtype, type.shape); }

}  // namespace harmonics::engine
