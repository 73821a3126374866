// The header of a safetensors file (huggingface.co/docs/safetensors): u64 length, JSON, contiguous little-endian
// tensors. Reads it into a checked table of tensors and writes it.
//
// The format has neither four-bit nor block types. A tensor of such a type is written as its U8 bytes, with the bytes
// of a row as last dimension; the metadata "harmonics.element_type:NAME", such as "q8_0[64, 96]", holds its type and
// shape. A reader's table has the type and shape of the metadata, which must agree with the entry.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <harmonics/tensor.hpp>

#include "formats/origin.hpp"

namespace harmonics {

// Longer headers are neither read nor written.
constexpr uint64_t kLongestSafetensorsHeader = 100'000'000;

struct TensorEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<uint64_t> shape;  // of any rank; takes end - begin bytes
  uint64_t begin = 0, end = 0;  // offsets in the data
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  uint64_t data_offset = 0;          // offset of the data in the file
};

// Checks all rules of the format: header length, JSON (unique names), types, shapes, sizes, and that the tensors cover
// the data without gaps or overlaps. Throws an error of the file's kind with its name, the offset
// and the tensor. Reads only the header.
SafetensorsHeader read_safetensors_header(const void* data, size_t bytes, const Origin& file);

// Sorts like the reference writer: by descending element size, which keeps every tensor aligned, then by name.
void order_as_written(std::vector<TensorEntry>& tensors);
// Returns length and JSON text, padded to 8 bytes; offsets follow the order of `tensors`. Throws ErrorKind::Weights if
// the header exceeds the limit for reading.
std::string write_safetensors_header(const SafetensorsHeader& header);

// The weights of a Hugging Face model folder: a single file, or the index of several.
inline constexpr const char *kFolderWeights = "model.safetensors", *kFolderIndex = "model.safetensors.index.json";

struct SafetensorsShard {
  std::string file;                  // "model.safetensors", or "model-00001-of-00003.safetensors"
  std::vector<std::string> tensors;  // names
};
// Distributes tensors of these sizes in bytes over the files of a Hugging Face model folder, in order. A file takes at
// most `most` bytes, or a single larger tensor.
std::vector<SafetensorsShard> safetensors_shards(const std::vector<std::pair<std::string, uint64_t>>& tensors,
                                                 uint64_t most);

// Throws "'PATH' is no safetensors file: at byte 24, tensor 'w': WHAT". `tensor`: null if the error concerns no tensor.
[[noreturn]] void refuse_safetensors(const Origin& file, uint64_t offset, const std::string* tensor,
                                     const std::string& what);

}  // namespace harmonics
