// The header of a NumPy array (NPY, versions 1 to 3), in a file or in a stream: reads and checks it, and writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/tensor.hpp>

#include "formats/origin.hpp"

namespace harmonics {

struct NpyHeader {
  DType dtype = DType::F32;
  bool swapped = false;       // big-endian elements of more than one byte
  bool column_major = false;  // Fortran order
  std::vector<uint64_t> shape;
};

// The header's dictionary: its offset from the array's first byte, and its size. The elements follow it.
struct NpyPreamble {
  uint64_t text, size;
};

bool looks_like_npy(const uint8_t* data, size_t size);
// Reads what precedes the dictionary of an array that looks like NPY. Returns nothing if more bytes are needed. Throws
// for versions other than 1 to 3.
std::optional<NpyPreamble> read_npy_preamble(std::span<const uint8_t> bytes, const Origin& file);
// Reads the dictionary. `offset` is its offset in the file, for errors. Throws for types other than numbers of 1 to 8
// bytes.
NpyHeader read_npy_header(std::string_view text, uint64_t offset, const Origin& file);
// Returns the type of a NumPy `descr`, such as "<f4", in either byte order.
DType dtype_of_descr(const std::string& descr, const Origin& file);

// Returns preamble and dictionary of a little-endian array in C order, padded to a multiple of `alignment` bytes, at
// most 65536. Throws ErrorKind::Type for bf16, which NumPy lacks.
std::string write_npy_header(DType dtype, const std::vector<uint64_t>& shape, size_t alignment = 64);

}  // namespace harmonics
