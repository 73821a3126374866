// The table of element types: names and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <harmonics/tensor.hpp>

namespace harmonics {

// Stored types exist only in memory and files. They are converted; no arithmetic is defined on them.
enum class ElementKind : uint8_t { Boolean, Integer, Float, Stored };

struct ElementType {
  DType dtype;
  std::string_view name;
  ElementKind kind;
  bool is_signed;
  uint32_t bits;         // of one element, without scales
  uint32_t block;        // elements per block
  uint32_t block_bytes;  // bytes per block, scales included
};

namespace detail {

// Indexed by number.
HARMONICS_FACE inline constexpr ElementType element_types[] = {
    {DType::Bool, "bool", ElementKind::Boolean, false, 8, 1, 1},
    {DType::U8, "u8", ElementKind::Integer, false, 8, 1, 1},
    {DType::I8, "i8", ElementKind::Integer, true, 8, 1, 1},
    {DType::I16, "i16", ElementKind::Integer, true, 16, 1, 2},
    {DType::U16, "u16", ElementKind::Integer, false, 16, 1, 2},
    {DType::I32, "i32", ElementKind::Integer, true, 32, 1, 4},
    {DType::U32, "u32", ElementKind::Integer, false, 32, 1, 4},
    {DType::I64, "i64", ElementKind::Integer, true, 64, 1, 8},
    {DType::U64, "u64", ElementKind::Integer, false, 64, 1, 8},
    {DType::F16, "f16", ElementKind::Float, true, 16, 1, 2},
    {DType::BF16, "bf16", ElementKind::Float, true, 16, 1, 2},
    {DType::F32, "f32", ElementKind::Float, true, 32, 1, 4},
    {DType::F64, "f64", ElementKind::Float, true, 64, 1, 8},
    {DType::F8_E4M3, "f8_e4m3", ElementKind::Stored, true, 8, 1, 1},
    {DType::F8_E5M2, "f8_e5m2", ElementKind::Stored, true, 8, 1, 1},
    {DType::NF4, "nf4", ElementKind::Stored, true, 4, 2, 1},
    {DType::I4, "i4", ElementKind::Stored, true, 4, 2, 1},
    {DType::Q8_0, "q8_0", ElementKind::Stored, true, 8, 32, 34},
    {DType::Q4_0, "q4_0", ElementKind::Stored, true, 4, 32, 18},
    {DType::Q4_K, "q4_k", ElementKind::Stored, true, 4, 256, 144},
    {DType::Q6_K, "q6_k", ElementKind::Stored, true, 6, 256, 210},
    {DType::Q4_1, "q4_1", ElementKind::Stored, true, 4, 32, 20},
    {DType::Q5_0, "q5_0", ElementKind::Stored, true, 5, 32, 22},
    {DType::Q5_1, "q5_1", ElementKind::Stored, true, 5, 32, 24},
    {DType::Q2_K, "q2_k", ElementKind::Stored, true, 2, 256, 84},
    {DType::Q3_K, "q3_k", ElementKind::Stored, true, 3, 256, 110},
    {DType::Q5_K, "q5_k", ElementKind::Stored, true, 5, 256, 176},
    {DType::IQ4_NL, "iq4_nl", ElementKind::Stored, true, 4, 32, 18},
    {DType::MXFP4, "mxfp4", ElementKind::Stored, true, 4, 32, 17},
    {DType::IQ4_XS, "iq4_xs", ElementKind::Stored, true, 4, 256, 136},
    {DType::NF4_64, "nf4_64", ElementKind::Stored, true, 4, 64, 36},
    {DType::FP4_64, "fp4_64", ElementKind::Stored, true, 4, 64, 36},
    {DType::E4M3_64, "e4m3_64", ElementKind::Stored, true, 8, 64, 68},
};
HARMONICS_FACE inline constexpr size_t element_type_count = sizeof element_types / sizeof element_types[0];

}  // namespace detail

// Returns null if no type has this number.
HARMONICS_FACE inline const ElementType* find_element_type(uint32_t number) {
  return number < detail::element_type_count ? &detail::element_types[number] : nullptr;
}

// Throws ErrorKind::Type if no type has this number.
HARMONICS_FACE inline const ElementType& element_type(DType dtype) {
  if (const ElementType* found = find_element_type(static_cast<uint32_t>(dtype))) return *found;
  throw Error(ErrorKind::Type, "unknown element type number " + std::to_string(static_cast<uint32_t>(dtype)));
}

HARMONICS_FACE inline bool is_stored(DType dtype) { return element_type(dtype).kind == ElementKind::Stored; }

// Returns the bytes of one element. Throws for types with several elements per block.
HARMONICS_FACE inline size_t element_bytes(DType dtype) {
  const ElementType& type = element_type(dtype);
  if (type.block == 1) return type.block_bytes;
  throw Error(ErrorKind::Type, std::string(type.name) + " is stored in blocks of " + std::to_string(type.block) +
                                   " elements, so single elements have no bytes; cast it first");
}

// Returns the bytes of `count` consecutive elements. Throws on overflow and for incomplete blocks.
HARMONICS_FACE inline size_t run_bytes(DType dtype, int64_t count) {
  const ElementType& type = element_type(dtype);
  if (count < 0 || count % type.block != 0)
    throw Error(ErrorKind::Shape, std::to_string(count) + " elements are not whole blocks of " +
                                      std::string(type.name) + ", which has " + std::to_string(type.block) +
                                      " in a block");
  size_t bytes = 0;
  if (__builtin_mul_overflow(count / type.block, size_t{type.block_bytes}, &bytes))
    throw Error(ErrorKind::Shape, std::to_string(count) + " elements have more bytes than an address space");
  return bytes;
}

// Throws unless the last axis consists of whole blocks.
HARMONICS_FACE inline void expect_whole_blocks(DType dtype, const Shape& shape) {
  const ElementType& type = element_type(dtype);
  if (type.block == 1 || (shape.rank() > 0 && shape.back() % type.block == 0)) return;
  throw Error(ErrorKind::Shape, "a tensor of " + std::string(type.name) + " cannot have the shape " + shape.str() +
                                    ": its last axis must be a multiple of " + std::to_string(type.block) +
                                    ", the elements of a block");
}

// Returns the bytes of a tensor. Throws on overflow and for incomplete blocks.
HARMONICS_FACE inline size_t tensor_bytes(DType dtype, const Shape& shape) {
  const ElementType& type = element_type(dtype);
  expect_whole_blocks(dtype, shape);
  size_t bytes = 0;
  if (__builtin_mul_overflow(shape.count() / type.block, size_t{type.block_bytes}, &bytes))
    throw Error(ErrorKind::Shape, "a tensor of shape " + shape.str() + " has more bytes than an address space");
  return bytes;
}

}  // namespace harmonics
