// Selects one tensor from records: which fields, and which type.
#pragma once

#include <map>

#include "wire/frame.hpp"
#include "wire/plain/record.hpp"

namespace harmonics::plain {

// The selection requested by the address and the flow.
struct Asked {
  std::string selection;             // the part after '#': "label", "a,b", "0-3"; "": every field
  std::string type;                  // "u8", "u8:28x28", "i64<10"; "": decided by the flow and the first record
  std::string use;                   // declared by the flow: classes, lookup or numbers; "": unknown
  std::vector<std::string> symbols;  // the words that are classes, in order

  bool operator==(const Asked&) const = default;
};

class Selection {
 public:
  // Errors: Usage.
  Selection(Asked asked, std::string where);

  const Asked& asked() const { return asked_; }
  // Whether type and shape are known.
  bool is_known() const { return known_; }
  // Learns type and shape from the first record. Errors: Name, Stream.
  void learn(const Record& first);
  // Has no bytes and no name.
  const wire::TensorPart& part() const { return part_; }
  // Appends the sample's bytes, or sets the reason why the record is invalid.
  bool encode(const Record& record, std::vector<std::byte>& to, std::string& reason);

 private:
  struct Part {
    std::string name;
    size_t likely = 0;  // index in the previous record
  };
  bool choose(const Record& record, std::string& reason);
  bool choose_one(const Record& record, const std::string& word, std::string& reason);
  DType dtype_of_numbers(const Record& first, const Field& field) const;
  bool mismatch(const Record& record, const Field& field, size_t cells, std::string& reason) const;
  bool append(const Record& record, const Field& field, std::vector<std::byte>& to, std::string& reason) const;
  bool append_word(const Field& field, std::vector<std::byte>& to, std::string& reason) const;
  std::string type_text() const;
  template <typename From>
  bool convert(const From* from, size_t count, const Field& field, std::vector<std::byte>& to,
               std::string& reason) const;
  template <typename To, typename From>
  bool convert_to(const From* from, size_t count, const Field& field, std::vector<std::byte>& to,
                  std::string& reason) const;

  Asked asked_;
  std::string where_;
  std::vector<Part> parts_;
  bool chosen_ = false, known_ = false, dtype_given_ = false;
  bool arranges_ = false;  // the shape was declared, and values are arranged in it
  wire::TensorPart part_;
  size_t cells_ = 0;
  std::map<std::string, int64_t, std::less<>> classes_;
};

// Reads the types of fields from a file: {"image": "u8:28x28", "label": {"type": "i64", "classes": 10}, "x": {"type":
// "f32", "shape": [3]}}. Errors: NoInput, Stream.
std::map<std::string, std::string> read_schema(const std::string& path);

}  // namespace harmonics::plain
