// The header of a GGUF file (github.com/ggml-org/ggml/blob/master/docs/gguf.md): metadata, a table of tensors, and
// aligned data. Reads little-endian files of versions 1 to 3 and writes version 3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/tensor.hpp>

#include "formats/origin.hpp"

namespace harmonics {

// As numbered in the file.
enum class GgufKind : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, List, U64, I64, F64 };
std::string_view name_of(GgufKind kind);

// A value of the metadata where it lies in the file.
class GgufValue {
 public:
  GgufKind kind() const { return kind_; }
  // None if the value is of another kind.
  std::optional<int64_t> integer() const;  // of any integer kind, up to 2^63-1
  std::optional<double> number() const;    // of any integer or floating-point kind
  std::optional<bool> truth() const;
  std::optional<std::string_view> text() const;

  // Of lists.
  GgufKind items() const { return items_; }
  uint64_t size() const { return size_; }
  // None unless all items are of such a kind.
  std::optional<std::vector<int64_t>> integers() const;
  std::optional<std::vector<double>> numbers() const;
  std::optional<std::vector<std::string_view>> texts() const;

 private:
  friend class GgufReader;
  friend class GgufWriter;

  GgufKind kind_ = GgufKind::U8, items_ = GgufKind::U8;
  bool short_lengths_ = false;  // version 1: lengths of 32 bits
  uint64_t size_ = 0;
  std::string_view bytes_;  // of the number or the text, or of all items
};

// A row of ggml's table of tensor types.
struct GgufType {
  uint32_t number;
  std::string_view name;  // "Q4_K"
  uint32_t block;         // elements that are stored together
  uint32_t block_bytes;
};
const GgufType* find_gguf_type(uint32_t number);      // null: none has it
const GgufType* find_gguf_type(DType dtype);          // null: the format has no such type
std::optional<DType> dtype_of(const GgufType& type);  // none: it can be named, but not converted

struct GgufTensor {
  std::string_view name;
  const GgufType* type = nullptr;
  std::vector<uint64_t> shape;  // row-major: the file lists lengths from the innermost axis on
  uint64_t offset = 0;          // from the beginning of the file
  uint64_t bytes = 0;
};

struct GgufMetadata {
  std::string_view key;
  GgufValue value;
};

// Its views refer to the bytes it was read from.
struct GgufFile {
  uint32_t version = 3;
  uint64_t alignment = 32;
  uint64_t data_offset = 0;
  std::vector<GgufMetadata> metadata;  // in the order of the file
  std::vector<GgufTensor> tensors;

  const GgufValue* find(std::string_view key) const;  // null: no such key
};

bool is_gguf(std::string_view first);  // by the first four bytes

// Checks all that the format requires: counts against the file's size, kinds, unique keys and names, sizes, alignment,
// and that no tensor overlaps another or leaves the file. Throws an error of the file's kind with its name, the offset
// and the key or tensor. Allocates in proportion to the entries that are there, not to counts, and less than 64 MB:
// more than 4,096 keys or 16,384 tensors are refused.
GgufFile read_gguf(std::string_view bytes, const Origin& file);

// The name of part `index` (from 0) of a model in `count` files: "x-00001-of-00003.gguf" of any of its parts. None if
// the name is not of this form.
std::optional<std::string> gguf_part_name(std::string_view any_part, uint64_t index, uint64_t count);

// Writes the part of a file before its data.
class GgufWriter {
 public:
  void set_text(std::string_view key, std::string_view text);
  void set_bool(std::string_view key, bool value);
  void set(std::string_view key, GgufKind kind, double value);  // of a number's kind
  void set(std::string_view key, GgufKind kind, int64_t value);
  void set(std::string_view key, const std::vector<std::string>& texts);
  void set(std::string_view key, const std::vector<float>& numbers);
  void set(std::string_view key, const std::vector<int32_t>& numbers);
  // From a file of any version; "general.alignment" is left out, as the data is aligned to 32 bytes.
  void copy(const GgufMetadata& entry);

  // The next tensor. Returns where its bytes begin in the data, which header() precedes; gaps up to there are zero.
  uint64_t add(std::string_view name, const GgufType& type, const std::vector<uint64_t>& shape);
  std::string header() const;
  uint64_t alignment() const { return kAlignment; }

 private:
  static constexpr uint64_t kAlignment = 32;
  std::string& begin(std::string_view key, GgufKind kind);
  std::string metadata_, tensors_;
  uint64_t keys_ = 0, count_ = 0, end_ = 0;
};

}  // namespace harmonics
