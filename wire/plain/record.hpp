// One sample as plain formats write it: named fields, before it is known what they are to be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics::plain {

constexpr size_t kMostRecord = 16u << 20;  // bytes of one, as of a frame
constexpr size_t kMostFields = 65536;
constexpr size_t kMostDepth = 16;  // of objects in objects

struct Field {
  // Odd: something that is no sample; `text` says what.
  enum class Kind : uint8_t { Missing, Numbers, Word, Typed, Odd };
  std::string name;  // of inner fields a path: "meta.size"; "": the record is this one value
  Kind kind = Kind::Missing;
  Shape shape;        // of numbers, and of what has a type
  bool whole = true;  // every number was written as a whole one
  DType dtype = DType::F32;
  size_t at = 0, count = 0;  // in the record's numbers; of what has a type, in its bytes
  std::string text;          // of a word, and of a number where tables write it
};

class Record {
 public:
  void clear() {
    size_ = 0;
    numbers.clear();
    bytes.clear();
  }
  // Fields are kept for the next record: their names mostly are the same.
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
    return field;
  }
  size_t size() const { return size_; }
  const Field& operator[](size_t at) const { return fields_[at]; }
  // Where the field of this name is, `likely` looked at first; size(): nowhere.
  size_t find(std::string_view name, size_t likely = 0) const {
    if (likely < size_ && fields_[likely].name == name) return likely;
    for (size_t i = 0; i < size_; ++i)
      if (fields_[i].name == name) return i;
    return size_;
  }

  bool numbered = false;  // fields may be named by their place too, as the columns of a table
  std::string place;      // "line 17"
  std::vector<double> numbers;
  std::vector<std::byte> bytes;

 private:
  std::vector<Field> fields_;
  size_t size_ = 0;
};

}  // namespace harmonics::plain
