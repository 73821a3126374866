// The header of a safetensors file: which tensors lie where. Text in, checked table out; no tensor is touched.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/type.hpp"

namespace harmonics {

// Longer headers are neither read nor written.
constexpr uint64_t kLongestSafetensorsHeader = 100'000'000;

struct TensorEntry {
  std::string name;
  TensorType type;
  uint64_t begin = 0, end = 0;  // in the data
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  uint64_t data_offset = 0;          // where the data begins in the file
};

// Checks all of the format: the header's length, its JSON (no name twice), types, shapes, sizes, and that the tensors
// fill the data without gap or overlap. Throws ErrorKind::Weights with `name`, the offset and the tensor.
SafetensorsHeader read_safetensors_header(const void* data, size_t bytes, const std::string& name);

// Sorts as the reference writer does: wide elements first, so that all lie aligned, then by name.
void order_as_written(std::vector<TensorEntry>& tensors);
// The length and the JSON text, padded to 8 bytes; offsets follow the order of `tensors`. Throws ErrorKind::Weights when
// it is longer than what is read.
std::string write_safetensors_header(const SafetensorsHeader& header);

// "'PATH' is no safetensors file: at byte 24, tensor 'w': WHAT", ErrorKind::Weights. `tensor` null: about none.
[[noreturn]] void refuse_safetensors(const std::string& file, uint64_t offset, const std::string* tensor,
                                     const std::string& what);

// A name as messages show it: quoted, cut when long, with what disturbs a terminal replaced.
std::string shown_name(std::string_view name);

}  // namespace harmonics
