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

// Numbered as in the file.
enum class GgufKind : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, List, U64, I64, F64 };
std::string_view name_of(GgufKind kind);

// A metadata value, viewed in the file's bytes.
class GgufValue {
 public:
  GgufKind kind() const { return kind_; }
  // Each returns none if the value is of another kind.
  std::optional<int64_t> integer() const;  // of any integer kind, up to 2^63-1
  std::optional<double> number() const;    // of any integer or floating-point kind
  std::optional<bool> truth() const;
  std::optional<std::string_view> text() const;

  // For lists only.
  GgufKind items() const { return items_; }
  uint64_t size() const { return size_; }
  // Return none unless every item is of the matching kind.
  std::optional<std::vector<int64_t>> integers() const;
  std::optional<std::vector<double>> numbers() const;
  std::optional<std::vector<std::string_view>> texts() const;

 private:
  friend class GgufReader;
  friend class GgufWriter;

  GgufKind kind_ = GgufKind::U8, items_ = GgufKind::U8;
  bool short_lengths_ = false;  // version 1: lengths of 32 bits
  uint64_t size_ = 0;
  std::string_view bytes_;  // the number, the text, or all items
};

// An entry of ggml's table of tensor types.
struct GgufType {
  uint32_t number;
  std::string_view name;  // "Q4_K"
  uint32_t block;         // elements per block
  uint32_t block_bytes;
};
const GgufType* find_gguf_type(uint32_t number);      // null: unknown number
const GgufType* find_gguf_type(DType dtype);          // null: the format has no such type
std::optional<DType> dtype_of(const GgufType& type);  // none: known by name only, no conversion

struct GgufTensor {
  std::string_view name;
  const GgufType* type = nullptr;
  std::vector<uint64_t> shape;  // row-major; the file lists the innermost axis first
  uint64_t offset = 0;          // in the file
  uint64_t bytes = 0;
};

struct GgufMetadata {
  std::string_view key;
  GgufValue value;
};

// Its views refer to the bytes passed to read_gguf(), which must outlive it.
struct GgufFile {
  uint32_t version = 3;
  uint64_t alignment = 32;
  uint64_t data_offset = 0;
  std::vector<GgufMetadata> metadata;  // in file order
  std::vector<GgufTensor> tensors;

  const GgufValue* find(std::string_view key) const;  // null: no such key
};

bool is_gguf(std::string_view first);  // checks the first four bytes

// Validates everything the format requires: counts against the file's size, kinds, unique keys and names, sizes,
// alignment, and that no tensor overlaps another or leaves the file. Throws an error of the file's kind with its name,
// the offset and the key or tensor. Allocates in proportion to the entries present, not to the declared counts, and
// less than 64 MB: more than 4,096 keys or 16,384 tensors are rejected.
GgufFile read_gguf(std::string_view bytes, const Origin& file);

// Returns the name of part `index` (from 0) of a model in `count` files, given the name of any part:
// "x-00001-of-00003.gguf". None if the name has another form.
std::optional<std::string> gguf_part_name(std::string_view any_part, uint64_t index, uint64_t count);

// Writes everything that precedes a file's data.
class GgufWriter {
 public:
  void set_text(std::string_view key, std::string_view text);
  void set_bool(std::string_view key, bool value);
  void set(std::string_view key, GgufKind kind, double value);  // `kind`: a numeric kind
  void set(std::string_view key, GgufKind kind, int64_t value);
  void set(std::string_view key, const std::vector<std::string>& texts);
  void set(std::string_view key, const std::vector<float>& numbers);
  void set(std::string_view key, const std::vector<int32_t>& numbers);
  // Copies an entry of a file of any version. Skips "general.alignment", because the data is always aligned to 32
  // bytes.
  void copy(const GgufMetadata& entry);

  // Appends a tensor. Returns the offset of its bytes in the data, which follows header(); gaps before it are
  // zero-filled.
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
