#include "engine/model/safetensors.hpp"

#include <algorithm>
#include <cstring>

#include "engine/base/file.hpp"
#include "formats/safetensors.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are mapped from little-endian files without conversion");

// Throws unless all bytes are 0 or 1: booleans are read as C++ bool.
void expect_truth_values(const Origin& file, const TensorEntry& entry, const unsigned char* bytes, uint64_t offset) {
  const auto* end = bytes + (entry.end - entry.begin);
  const auto* bad = std::find_if(bytes, end, [](unsigned char b) { return b > 1; });
  if (bad != end)
    refuse_safetensors(file, offset + static_cast<uint64_t>(bad - bytes), &entry.name,
                       "a BOOL is the byte 0 or 1, not " + std::to_string(*bad));
}

HTensor tensor_at(const TensorEntry& entry, const void* bytes, std::shared_ptr<const void> keep) {
  TensorType type{entry.dtype, {}};
  for (const uint64_t dim : entry.shape) type.shape.push_back(static_cast<int64_t>(dim));
  const size_t size = type.bytes();
  const ElementType& element = element_type(entry.dtype);
  const size_t alignment = element.block == 1 ? element.block_bytes : 1;  // blocks are read bytewise
  if (reinterpret_cast<uintptr_t>(bytes) % alignment == 0)
    return make_value(type, std::make_shared<Storage>(const_cast<void*>(bytes), size, std::move(keep), false));
  auto storage = std::make_shared<Storage>(size);
  std::memcpy(storage->data(), bytes, size);
  return make_value(type, std::move(storage));
}

TensorFile read(const void* data, size_t bytes, const std::string& name, const std::shared_ptr<const void>& keep) {
  const Origin origin{name, ErrorKind::Weights};
  SafetensorsHeader header = read_safetensors_header(data, bytes, origin);
  TensorFile file;
  file.metadata = std::move(header.metadata);
  for (const TensorEntry& entry : header.tensors) {
    const uint64_t offset = header.data_offset + entry.begin;
    const auto* at = static_cast<const unsigned char*>(data) + offset;
    if (entry.shape.size() > HX_MAX_RANK)
      refuse_safetensors(origin, 8, &entry.name,
                         "has " + std::to_string(entry.shape.size()) + " dimensions; a tensor has at most 8");
    if (entry.dtype == DType::Bool) expect_truth_values(origin, entry, at, offset);
    file.tensors.emplace(entry.name, tensor_at(entry, at, keep));
  }
  return file;
}

const Storage& numbers_of(const std::string& name, const HTensor& tensor) {
  if (!tensor || tensor.raw()->traced())
    throw Error(ErrorKind::Internal, "tensor " + shown_name(name) + " has no numbers to be saved");
  return *tensor.raw()->storage;
}

void expect_text(const std::string& text, const std::string& what) {
  if (find_invalid_utf8(text))
    throw Error(ErrorKind::Weights, what + " " + shown_name(text) + " is not UTF-8 and cannot be saved");
}

void expect_name(const std::string& name) {
  expect_text(name, "tensor name");
  if (name == "__metadata__" || name.find('\0') != std::string::npos)
    throw Error(ErrorKind::Weights,
                "no tensor in a safetensors file can be called " + shown_name(name) + "; give it another name");
}

// Returns views of the header and of all tensors' bytes. `header` receives the header, and must outlive the views.
std::vector<std::string_view> pieces_of(const TensorFile& file, std::string& header) {
  SafetensorsHeader table;
  table.metadata = file.metadata;
  for (const auto& [key, value] : file.metadata) {
    expect_text(key, "metadata key");
    expect_text(value, "metadata value");
  }
  for (const auto& [name, tensor] : file.tensors) {
    expect_name(name);
    numbers_of(name, tensor);
    const TensorType type = type_of(tensor);
    table.tensors.push_back({name, type.dtype, {type.shape.begin(), type.shape.end()}});
  }
  order_as_written(table.tensors);
  std::vector<std::string_view> pieces(1);
  uint64_t at = 0;
  for (TensorEntry& entry : table.tensors) {
    const HTensor& tensor = file.tensors.at(entry.name);
    const size_t bytes = type_of(tensor).bytes();
    entry.begin = at;
    entry.end = at += bytes;
    pieces.emplace_back(static_cast<const char*>(numbers_of(entry.name, tensor).data()), bytes);
  }
  header = write_safetensors_header(table);
  pieces[0] = header;
  return pieces;
}

}  // namespace

TensorFile read_safetensors(const std::string& path) {
  const auto file = MappedFile::open(path);
  TensorFile result = read_whole(*file, [&] { return read(file->data(), file->bytes(), path, file); });
  result.mapped = file;
  return result;
}

TensorFile read_safetensors(const void* data, size_t bytes, const std::string& name,
                            const std::shared_ptr<const void>& keep) {
  return read(data, bytes, name, keep);
}

std::string safetensors_header(const TensorFile& file) {
  std::string header;
  pieces_of(file, header);
  return header;
}

std::string write_safetensors(const TensorFile& file) {
  std::string header, out;
  for (const std::string_view piece : pieces_of(file, header)) out += piece;
  return out;
}

void save_safetensors(const TensorFile& file, const std::string& path, FileCalls& calls) {
  std::string header;
  write_file_atomically(path, pieces_of(file, header), calls);
}

void append_safetensors(const TensorFile& file, FileReplacement& to) {
  std::string header;
  for (const std::string_view piece : pieces_of(file, header)) to.append(piece);
}

}  // namespace harmonics::engine
