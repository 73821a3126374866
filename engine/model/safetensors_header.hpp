// Header of a safetensors file: parses text into a checked table of tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/type.hpp"

namespace harmonics::engine {

// Longer headers are neither read nor written.
constexpr uint64_t kLongestSafetensorsHeader = 100'000'000;

struct TensorEntry {
  std::string name;
  TensorType type;
  uint64_t begin = 0, end = 0;  // offsets in the data
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  uint64_t data_offset = 0;          // offset of the data in the file
};

// Checks all rules of the format: header length, JSON (unique names), types, shapes, sizes, and that the tensors cover
// the data without gaps or overlaps. Throws ErrorKind::Weights with `name`, the offset and the tensor.
SafetensorsHeader read_safetensors_header(const void* data, size_t bytes, const std::string& name);

// Sorts like the reference writer: by descending element size, so that all are aligned, then by name.
void order_as_written(std::vector<TensorEntry>& tensors);
// Length and JSON text, padded to 8 bytes; offsets follow the order of `tensors`. Throws ErrorKind::Weights if it
// exceeds the limit for reading.
std::string write_safetensors_header(const SafetensorsHeader& header);

// Throws ErrorKind::Weights: "'PATH' is no safetensors file: at byte 24, tensor 'w': WHAT". `tensor`: null if the error
// concerns none.
[[noreturn]] void refuse_safetensors(const std::string& file, uint64_t offset, const std::string* tensor,
                                     const std::string& what);

// A name for messages: quoted, shortened, control characters replaced.
std::string shown_name(std::string_view name);

}  // namespace harmonics::engine
