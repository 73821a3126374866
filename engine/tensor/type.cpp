#include "engine/tensor/type.hpp"

#include <harmonics/checked.hpp>

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

namespace {
constexpr DTypeRow kRows[] = {
    {DType::Bool, "bool", 1, false, false, false}, {DType::U8, "u8", 1, false, true, false},
    {DType::I8, "i8", 1, false, true, true},       {DType::I16, "i16", 2, false, true, true},
    {DType::U16, "u16", 2, false, true, false},    {DType::I32, "i32", 4, false, true, true},
    {DType::U32, "u32", 4, false, true, false},    {DType::I64, "i64", 8, false, true, true},
    {DType::U64, "u64", 8, false, true, false},    {DType::F16, "f16", 2, true, false, true},
    {DType::BF16, "bf16", 2, true, false, true},   {DType::F32, "f32", 4, true, false, true},
    {DType::F64, "f64", 8, true, false, true},
};
}  // namespace

const DTypeRow& dtype_row(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  if (i >= std::size(kRows)) throw Error(ErrorKind::Type, "unknown element type number " + std::to_string(i));
  return kRows[i];
}

DType dtype_named(std::string_view name) {
  std::vector<std::string> known;
  for (const DTypeRow& row : kRows) {
    if (row.name == name) return row.dtype;
    known.emplace_back(row.name);
  }
  Error error(ErrorKind::Type, "unknown element type '" + std::string(name) + "'");
  if (auto n = nearest(name, known)) error.note("did you mean '" + *n + "'?");
  throw error;
}

std::string TensorType::str() const { return std::string(dtype_name(dtype)) + shape.str(); }

TensorType from_c(const hx_type& type) {
  if (type.rank > HX_MAX_RANK)
    throw Error(ErrorKind::Shape, "a tensor has at most 8 dimensions, not " + std::to_string(type.rank));
  TensorType t{static_cast<DType>(type.dtype), Shape(type.dims, type.dims + type.rank)};
  for (int64_t d : t.shape)
    if (d < 0) throw Error(ErrorKind::Shape, "negative dimension in " + t.shape.str());
  const auto count = checked_count<int64_t>(t.shape);
  if (!count || !checked_product<int64_t>(*count, static_cast<int64_t>(dtype_bytes(t.dtype))))
    throw Error(ErrorKind::Shape, "the size of a tensor of shape " + t.shape.str() + " overflows");
  return t;
}

hx_type to_c(const TensorType& type) { return make_type(type.dtype, type.shape); }

}  // namespace harmonics::engine
