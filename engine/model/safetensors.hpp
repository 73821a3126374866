// Safetensors files (huggingface.co/docs/safetensors): u64 header length, JSON header, contiguous little-endian
// tensors.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/tensor/value.hpp"
#include "formats/safetensors.hpp"

namespace harmonics::engine {

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, HTensor> tensors;         // views into the mapped file, or owned
  std::shared_ptr<const MappedFile> mapped = {};  // null: read from memory
};

// Reads a file. Checks all rules of the format before creating tensors: header size (<= 100 MB and <= file), sorted
// contiguous offsets up to the end, overflow, duplicate names, dtype and size. Errors name file, offset and tensor.
TensorFile read_safetensors(const std::string& path);
// Reads from memory. Tensors are views that keep `keep` alive (unaligned tensors are copied); if `keep` is null, `data`
// must outlive them. `name` is for messages.
TensorFile read_safetensors(const void* data, size_t bytes, const std::string& name,
                            const std::shared_ptr<const void>& keep = nullptr);
// Returns the same bytes as the reference writer: header padded to 8 bytes, tensors by descending element size, then by
// name.
std::string write_safetensors(const TensorFile& file);
// Writes the same bytes with write_file_atomically().
void save_safetensors(const TensorFile& file, const std::string& path, FileCalls& calls = FileCalls::system());
// Appends the same bytes to a file that is being written.
void append_safetensors(const TensorFile& file, FileReplacement& to);
// Returns the part before the tensors: length, JSON, padding.
std::string safetensors_header(const TensorFile& file);

}  // namespace harmonics::engine
