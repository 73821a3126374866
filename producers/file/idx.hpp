// IDX, the format of MNIST: two zero bytes, type, rank, big-endian sizes, elements. The first axis counts samples.
#pragma once

#include <vector>

#include "producers/file/array.hpp"

namespace harmonics {

struct IdxHeader {
  DType dtype;
  std::vector<uint64_t> dims;
  size_t offset;    // of the elements
  size_t promised;  // bytes of the whole file
  uint64_t records() const { return dims[0]; }
  std::string text() const;  // "60000 records of u8[28, 28]"
};

// Detects IDX by its first bytes, regardless of the file name.
bool looks_like_idx(const uint8_t* data, size_t size);
// Reads the header; the elements may be missing yet.
IdxHeader read_idx_header(const std::string& name, const uint8_t* data, size_t size);
// Reads the whole file; its length must match the header.
ArrayLayout read_idx(const FileBytesPtr& file);

}  // namespace harmonics
