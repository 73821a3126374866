// A sample in a plain format: named fields whose types are not known yet.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics::plain {

constexpr size_t kMostRecord = 16u << 20;  // maximum bytes of a record, as of a frame
constexpr size_t kMostFields = 65536;
constexpr size_t kMostDepth = 16;  // maximum depth of nested objects

struct Field {
  // Odd: not part of a sample; `text` describes it.
  enum class Kind : uint8_t { Missing, Numbers, Word, Typed, Odd };
  std::string name;  // nested fields have a path: "meta.size"; "": the record is this one value
  Kind kind = Kind::Missing;
  Shape shape;        // of numbers and typed arrays
  bool whole = true;  // every number was written as an integer
  DType dtype = DType::F32;
  size_t at = 0, count = 0;  // position and count in the record's numbers; for typed arrays, in its bytes
  std::string text;          // a word, or a number's text in a table cell; with gaps, the first gap's text
  std::vector<size_t> gaps;  // indices of array numbers that are null; they are stored as 0
};

class Record {
 public:
  void clear() {
    size_ = 0;
    numbers.clear();
    bytes.clear();
  }
  // Reuses the fields of the previous record, which usually has the same names.
  Field& add(std::string_view name) {
    if (size_ == fields_.size()) fields_.emplace_back();
    Field& field = fields_[size_++];
    if (field.name != name) field.name = name;
    field.kind = Field::Kind::Missing;
    field.shape = Shape();
    field.whole = true;
    field.at = numbers.size();
    field.count = 0;
    field.text.clear();
    field.gaps.clear();
    return field;
  }
  size_t size() const { return size_; }
  const Field& operator[](size_t at) const { return fields_[at]; }
  // Returns the index of the field of this name, trying `likely` first; size(): not found.
  size_t find(std::string_view name, size_t likely = 0) const {
    if (likely < size_ && fields_[likely].name == name) return likely;
    for (size_t i = 0; i < size_; ++i)
      if (fields_[i].name == name) return i;
    return size_;
  }

  bool numbered = false;  // fields may also be named by their index, like table columns
  std::string place;      // "line 17"
  std::vector<double> numbers;
  std::vector<std::byte> bytes;

 private:
  std::vector<Field> fields_;
  size_t size_ = 0;
};

}  // namespace harmonics::plain
