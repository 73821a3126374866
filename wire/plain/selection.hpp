// Selects one tensor from records: its fields and its type.
#pragma once

#include <map>
#include <optional>

#include "wire/frame.hpp"
#include "wire/plain/record.hpp"

namespace harmonics::plain {

// The selection that the address and the flow request.
struct Asked {
  std::string selection;               // the part after '#': "label", "a,b", "0-3"; "": every field
  std::string type;                    // "u8", "u8:28x28", "i64<10"; "": decided by the flow and the first record
  std::string use;                     // declared by the flow: classes, lookup or numbers; "": unknown
  std::vector<std::string> symbols;    // the words that are classes, in order
  bool learned = false;                // learned with the weights; otherwise listed by symbols=
  std::optional<std::string> missing;  // replacement for missing values: a number, nan or a word of symbols
  std::string declared;                // the type that the flow declares, for classes and missing values; "": none

  bool operator==(const Asked&) const = default;
};

// Parses "u8", "u8:28x28", "i64<10", or "f32:" for one number, which sets `scalar`. Empty: not in this form.
std::optional<StreamInfo> read_type(std::string text, bool& scalar);

// Returns the type of unnamed numbers: `given` in the address, or the type of the only field in its schema. If it has
// no shape, the flow's declared shape and classes apply. Errors: Usage.
std::string raw_type(const std::string& where, const std::string& given,
                     const std::map<std::string, std::string>& schema, const std::string& declared);

// The replacement for missing values, from missing=.
struct Filler {
  Field field;        // one value, with its text as written
  double number = 0;  // unless the value is a word
  std::vector<std::byte> bytes;
};

class Selection {
 public:
  // Errors: Usage.
  Selection(Asked asked, std::string where);

  const Asked& asked() const { return asked_; }
  // Returns whether type and shape are known.
  bool is_known() const { return known_; }
  // Learns type and shape from the first record. Errors: Name, Stream; Usage, if the replacement for missing values is
  // not of that type.
  void learn(const Record& first);
  // Returns the type and classes; bytes and name are empty.
  const wire::TensorPart& part() const { return part_; }
  // Returns the words that are classes; empty if learned words do not fit the type or the first record.
  std::vector<std::string> symbols() const { return classes_.empty() ? std::vector<std::string>() : asked_.symbols; }
  // Appends the sample's bytes, or sets the reason why the record is invalid. Replaces missing values if Asked::missing
  // is set.
  bool encode(const Record& record, std::vector<std::byte>& to, std::string& reason);
  // A note for the user, pending until it is taken.
  bool has_note() const { return !note_.empty(); }
  std::string take_note() { return std::exchange(note_, ""); }

 private:
  struct Part {
    std::string name;
    size_t likely = 0;  // index in the previous record
    size_t cells = 0;   // values in the last sample with the field; 0: none so far
    bool came = false;  // a record had the field, with or without a value
  };
  void take_words(const StreamInfo* type);
  void take_declared_classes();
  bool fits_words(const Record& first) const;
  std::optional<int64_t> class_of(std::string_view word) const;
  std::string learned() const;
  // Parses the replacement for missing values.
  void read_filler();
  void convert_filler();
  bool choose(const Record& record, std::string& reason);
  bool choose_one(const Record& record, const std::string& word, std::string& reason);
  DType dtype_of_numbers(const Record& first, const Field& field) const;
  size_t cells_without(const Record& first, size_t cells, size_t missing);
  std::string wrong_with(const Field& field) const;
  bool encode_filled(const Record& record, std::vector<std::byte>& to, std::string& reason);
  bool mismatch(const Record& record, const Shape& is, std::string& reason) const;
  bool append(const Record& record, const Field& field, std::vector<std::byte>& to, std::string& reason) const;
  bool append_word(const Field& field, const std::string& word, std::vector<std::byte>& to, std::string& reason) const;
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
  bool arranges_ = false;  // the shape is declared, and values are arranged in it
  wire::TensorPart part_;
  size_t cells_ = 0;
  std::map<std::string, int64_t, std::less<>> classes_;
  bool takes_numbers_ = false;  // integers that are not words are class indices
  std::optional<Filler> filler_;
  std::string note_;
};

// Reads the types of fields from a file: {"image": "u8:28x28", "label": {"type": "i64", "classes": 10}, "x": {"type":
// "f32", "shape": [3]}}. Errors: NoInput, Stream.
std::map<std::string, std::string> read_schema(const std::string& path);

// Reads the words of learned=, a JSON array of texts. Errors: Usage.
std::vector<std::string> read_learned(const std::string& text);

}  // namespace harmonics::plain
