// Safetensors files (huggingface.co/docs/safetensors): u64 header length, JSON header, little-endian tensors back to
// back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics {

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, HTensor> tensors;  // views into the mapped file, or owned
};

// Checks everything the format demands (header <= 100 MB and <= file, sorted gapless offsets to the end, overflow,
// duplicate names, dtype and size agreement) before any tensor is made; errors name file, offset and tensor.
TensorFile read_safetensors(const std::string& path);
// Tensors are views (a tensor that lies unaligned is copied) which keep `keep`; where it is null `data` must outlive them.
// `name` is for messages.
TensorFile read_safetensors(const void* data, size_t bytes, const std::string& name, const std::shared_ptr<const void>& keep = nullptr);
// The bytes the reference writer makes: header padded to 8, tensors by falling width of their elements, then by name.
std::string write_safetensors(const TensorFile& file);
void save_safetensors(const TensorFile& file, const std::string& path, FileCalls& calls = FileCalls::system());  // as write_file_atomically
// What stands before the tensors: the length, the JSON and its padding.
std::string safetensors_header(const TensorFile& file);

}  // namespace harmonics
