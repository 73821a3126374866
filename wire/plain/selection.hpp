// One tensor of the samples that records give: which of their fields, and of what type.
#pragma once

#include <map>

#include "wire/frame.hpp"
#include "wire/plain/record.hpp"

namespace harmonics::plain {

// What is asked of a stream, by its address and by the flow.
struct Asked {
  std::string selection;             // as behind '#': "label", "a,b", "0-3"; "": every field
  std::string type;                  // "u8", "u8:28x28", "i64<10"; "": as the flow and the first record say
  std::string use;                   // by the flow: classes, lookup or numbers; "": not known
  std::vector<std::string> symbols;  // the words that are classes, in order

  bool operator==(const Asked&) const = default;
};

class Selection {
 public:
  // Errors: Usage.
  Selection(Asked asked, std::string where);

  const Asked& asked() const { return asked_; }
  // Type and shape are known.
  bool is_known() const { return known_; }
  // From the first record. Errors: Name, Stream.
  void learn(const Record& first);
  // Without bytes; its name is not set.
  const wire::TensorPart& part() const { return part_; }
  // Appends the sample's bytes, or says why the record cannot be one.
  bool encode(const Record& record, std::vector<std::byte>& to, std::string& reason);

 private:
  struct Part {
    std::string name;
    size_t likely = 0;  // where it was in the record before
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
  bool arranges_ = false;  // the shape was said, and values are arranged in it
  wire::TensorPart part_;
  size_t cells_ = 0;
  std::map<std::string, int64_t, std::less<>> classes_;
};

// FIELD -> type, as a file says it: {"image": "u8:28x28", "label": {"type": "i64", "classes": 10}, "x": {"type": "f32",
// "shape": [3]}}. Errors: NoInput, Stream.
std::map<std::string, std::string> read_schema(const std::string& path);

}  // namespace harmonics::plain
