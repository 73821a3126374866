#include "producers/file/idx.hpp"

#include <cstdio>
#include <optional>

#include <harmonics/quantity.hpp>

namespace harmonics {
namespace {

struct IdxType {
  uint8_t code;
  DType dtype;
  const char* name;
};
constexpr IdxType idx_types[] = {{0x08, DType::U8, "u8"},   {0x09, DType::I8, "i8"},   {0x0B, DType::I16, "i16"},
                                 {0x0C, DType::I32, "i32"}, {0x0D, DType::F32, "f32"}, {0x0E, DType::F64, "f64"}};

const IdxType* type_of_code(uint8_t code) {
  for (const IdxType& t : idx_types)
    if (t.code == code) return &t;
  return nullptr;
}

std::string hex(uint8_t byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", byte);
  return text;
}

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

}  // namespace

std::string IdxHeader::text() const {
  std::string shape;
  for (size_t i = 1; i < dims.size(); ++i) shape += (i > 1 ? ", " : "") + std::to_string(dims[i]);
  std::string name;
  for (const IdxType& t : idx_types)
    if (t.dtype == dtype) name = t.name;
  return std::to_string(dims[0]) + " records of " + name + (dims.size() > 1 ? "[" + shape + "]" : "");
}

bool looks_like_idx(const uint8_t* data, size_t size) {
  return size >= 4 && data[0] == 0 && data[1] == 0 && type_of_code(data[2]) && data[3] >= 1 && data[3] <= HX_MAX_RANK;
}

IdxHeader read_idx_header(const std::string& name, const uint8_t* data, size_t size) {
  if (size < 4)
    refuse_file(name, "has " + quantity(size, "byte") + ", an IDX header has at least 8", "get the file again");
  if (data[0] || data[1])
    refuse_file(name, "is not IDX: bytes 0 and 1 are " + hex(data[0]) + " " + hex(data[1]) + ", expected 0x00 0x00");
  const IdxType* type = type_of_code(data[2]);
  if (!type)
    refuse_file(name, "is not IDX: byte 2, the element type, is " + hex(data[2]) +
                          ", expected 0x08 (u8), 0x09 (i8), 0x0B (i16), 0x0C (i32), 0x0D (f32) or 0x0E (f64)");
  const size_t rank = data[3];
  if (rank == 0 || rank > HX_MAX_RANK)
    refuse_file(name, "is not IDX: byte 3, the number of axes, is " + std::to_string(rank) + ", expected 1 to 8");
  IdxHeader header{type->dtype, {}, 4 + 4 * rank, 0};
  if (size < header.offset)
    refuse_file(name,
                "ends at byte " + std::to_string(size) + " inside its header of " + quantity(header.offset, "byte"),
                "get the file again");
  for (size_t i = 0; i < rank; ++i) {
    header.dims.push_back(big_endian(data + 4 + 4 * i));
    if (header.dims[i] == 0)
      refuse_file(name, "holds no elements: axis " + std::to_string(i) + ", at byte " + std::to_string(4 + 4 * i) +
                            ", has size 0");
  }
  header.promised = header.offset + array_bytes(name, header.dtype, header.dims);
  return header;
}

ArrayLayout read_idx(const FileBytesPtr& file) {
  const IdxHeader header = read_idx_header(file->name(), file->data(), file->size());
  if (file->size() != header.promised) {
    const std::string lengths = "header promises " + quantity(header.promised, "byte") + " (" + header.text() +
                                "), there are " + std::to_string(file->size());
    if (file->size() < header.promised) {
      const size_t record = (header.promised - header.offset) / header.records();
      refuse_file(file->name(),
                  "is truncated: its " + lengths + ", enough for " +
                      quantity((file->size() - header.offset) / record, "record"),
                  "get the file again");
    }
    refuse_file(file->name(), "is longer than declared: its " + lengths, "the header or the data is damaged");
  }
  ArrayLayout layout;
  layout.bytes = file;
  layout.offset = header.offset;
  layout.dtype = header.dtype;
  for (size_t i = 1; i < header.dims.size(); ++i) layout.sample.push_back(static_cast<int64_t>(header.dims[i]));
  layout.count = header.records();
  layout.swapped = element_bytes(header.dtype) > 1;
  return layout;
}

}  // namespace harmonics
