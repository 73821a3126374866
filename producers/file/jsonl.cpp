#include "producers/file/jsonl.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "producers/file/characters.hpp"
#include "producers/file/field_tree.hpp"
#include "producers/file/near_name.hpp"
#include "producers/file/select.hpp"

namespace harmonics {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr size_t longest_line = size_t{64} << 20;
constexpr uint64_t bytes_of_a_field = 512;

struct Field {
  std::string name;             // as selected; empty: the line itself
  Shape shape;                  // scalar or array, as in the first line
  size_t first = 0, cells = 1;  // range in the row's cells
};

const char* type_text(element_type type) {
  switch (type) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "true or false";
    case element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

class JsonRows final : public TableRows {
 public:
  JsonRows(const FileBytesPtr& file, const TableOptions& options) : file_(file), text_(file->text()) {
    for (const char* word : {"number", "class", "auto"}) as_known_ = as_known_ || options.as == word;
    if (!as_known_)
      throw Error(ErrorKind::Usage, "as=" + options.as + " cannot be used for '" + file->name() +
                                        "'; write as=number or as=class or as=auto");
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") first_.at = 3;
    RowPlace place = first_;
    if (!parse(place)) refuse_file(file->name(), "has no rows");
    name_fields(options.selection);
    file->budget()->take(fields_.size(), bytes_of_a_field, "'" + file->name() + "'", "the fields of a line");
    tree_.find(root_, values_);
    for (size_t i = 0; i < fields_.size(); ++i) {
      Field& field = fields_[i];
      if (!there(i))
        refuse_file(file->name(), "has no field '" + field.name + "' in line " + std::to_string(line_),
                    "its fields are: " + listed(keys()) + meant_name(field.name, keys()));
      measure(*values_[i], field);
      field.first = cells_;
      cells_ += field.cells;  // at most one per byte of the line
    }
  }

  const FileBytesPtr& file() const override { return file_; }
  RowPlace first() const override { return first_; }
  size_t cells() const override { return cells_; }
  Shape sample() const override { return fields_.size() == 1 ? fields_[0].shape : Shape{static_cast<int64_t>(cells_)}; }
  size_t line() const override { return line_; }
  std::string name_of(size_t cell) const override {
    const auto before = [](size_t c, const Field& field) { return c < field.first; };
    const auto behind = std::upper_bound(fields_.begin(), fields_.end(), cell, before);
    const Field& field = *std::prev(behind);
    const std::string name = field.name.empty() ? "the value" : "field '" + field.name + "'";
    return field.shape.rank() ? name + ", number " + std::to_string(cell - field.first) : name;
  }

  bool read(RowPlace& place, Cell* cells) override {
    if (!parse(place)) return false;
    if (!fields_.front().name.empty() && root_.type() != element_type::OBJECT)
      refuse(std::string("is ") + type_text(root_.type()) + ", which has no field '" + fields_.front().name + "'",
             "write an object with names on every line");
    tree_.find(root_, values_);
    for (size_t i = 0; i < fields_.size(); ++i) {
      const Field& field = fields_[i];
      Cell* to = cells + field.first;
      if (there(i))
        read_cells(*values_[i], field, 0, to);
      else
        std::fill(to, to + field.cells, Cell{});
    }
    return true;
  }

  bool read_numbers(RowPlace& place, float* to, bool whole) override {
    whole_ = whole;
    RowPlace next = place;
    if (!parse(next)) return false;
    tree_.find(root_, values_);
    for (size_t i = 0; i < fields_.size(); ++i) {
      const Shape& shape = fields_[i].shape;
      if (!there(i) || !(shape.rank() ? read_plain(*values_[i], shape, 0, to) : read_number(*values_[i], to)))
        return false;
    }
    place = next;
    return true;
  }

 private:
  // Parses the line at `place`, skipping blank ones; false at the end.
  bool parse(RowPlace& place) {
    for (;; ++place.line) {
      if (place.at >= text_.size()) return false;
      const size_t end = std::min(text_.find('\n', place.at), text_.size());
      const std::string_view line = text_.substr(place.at, end - place.at);
      place.at = std::min(end + 1, text_.size());
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      line_ = place.line++;
      parse_line(line);
      return true;
    }
  }

  void parse_line(std::string_view line) {
    if (line.size() > longest_line)
      refuse("is " + std::to_string(line.size()) + " bytes long, the maximum is " + std::to_string(longest_line),
             "write each sample on a separate line");
    // The parser reads a few bytes beyond its input; at the end of the text they do not exist.
    const bool padded = line.data() + line.size() + simdjson::SIMDJSON_PADDING <= text_.data() + text_.size();
    if (!padded) {
      tail_.assign(line);
      tail_.append(simdjson::SIMDJSON_PADDING, ' ');
    }
    const auto error = parser_.parse(padded ? line.data() : tail_.data(), line.size(), false).get(root_);
    if (error == simdjson::UTF8_ERROR) refuse("is not UTF-8", convert_to_utf8);
    if (error)
      refuse(std::string("is not JSON: ") + simdjson::error_message(error),
             "every line must be one complete JSON value");
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    refuse_file(file_->name(), "line " + std::to_string(line_) + " " + what, remedy);
  }

  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    simdjson::dom::object object;
    if (!root_.get(object))
      for (const auto& [key, value] : object) names.emplace_back(key);
    return names;
  }

  void name_fields(const std::optional<std::string>& selection) {
    if (selection) {
      if (root_.type() != element_type::OBJECT)
        refuse(std::string("is ") + type_text(root_.type()) + ", which has no field '" + *selection + "'",
               "leave '#' out, or write an object with names on every line");
      for (const std::string& name : split(*selection, ',')) add_field(name, split(name, '.'));
    } else if (root_.type() == element_type::OBJECT) {
      for (const std::string& name : keys()) add_field(name, {name});
      if (fields_.empty()) refuse("is an object without fields", "");
    } else {
      add_field("", {});
    }
    values_.resize(fields_.size());
  }
  void add_field(const std::string& name, const std::vector<std::string>& path) {
    tree_.add(path, fields_.size());
    fields_.push_back({name, {}});
  }

  // Returns whether the last parsed line has a value for this field.
  bool there(size_t field) const { return values_[field].has_value(); }

  // Determines the shape from the first element of every nesting level; all other elements must match it. Counts cells
  // while reading, without trusting declared lengths.
  void measure(const element& whole, Field& field) const {
    element value = whole;
    for (simdjson::dom::array list; !value.get(list);) {
      if (list.size() == 0 || field.shape.rank() == HX_MAX_RANK)
        refuse_file(file_->name(),
                    "line " + std::to_string(line_) + ", " + described(field) + ": found an array of " +
                        (list.size() ? "more than 8 axes" : "nothing"),
                    "a sample is a number, a string or an array of numbers");
      // simdjson counts up to 2^24 - 1 and saturates.
      size_t n = 0;
      for (const element unused : list) (void)unused, ++n;
      field.shape.push_back(static_cast<int64_t>(n));
      value = *list.begin();
    }
    if (value.type() == element_type::OBJECT)
      refuse_file(file_->name(), "line " + std::to_string(line_) + ", " + described(field) + ": found an object",
                  "select an inner field, as in '#" + (field.name.empty() ? "field" : field.name) + ".NAME'");
    field.cells = 0;
    count_cells(whole, field, 0);
  }
  void count_cells(const element& value, Field& field, uint32_t axis) const {
    if (axis == field.shape.rank()) {
      ++field.cells;
      return;
    }
    each_of(value, field, axis, [&](const element& inner) { count_cells(inner, field, axis + 1); });
  }
  static std::string described(const Field& field) {
    return field.name.empty() ? "the value" : "field '" + field.name + "'";
  }

  // Reads the numbers of an array of this shape, in order. Returns false for other content.
  bool read_plain(const element& value, const Shape& shape, uint32_t axis, float*& to) const {
    simdjson::dom::array list;
    if (value.get(list)) return false;
    const bool innermost = axis + 1 == shape.rank();
    int64_t n = 0;
    for (const element inner : list)
      if (++n > shape[axis] || !(innermost ? read_number(inner, to) : read_plain(inner, shape, axis + 1, to)))
        return false;
    return n == shape[axis];
  }
  bool read_number(const element& value, float*& to) const {
    double number = 0;
    if (value.get(number) || number > most_ || number < -most_ || (whole_ && number != std::trunc(number)))
      return false;
    *to++ = static_cast<float>(number);
    return true;
  }

  void read_cells(const element& value, const Field& field, uint32_t axis, Cell*& to) const {
    if (axis == field.shape.rank()) {
      *to++ = cell_of(value, field);
      return;
    }
    each_of(value, field, axis, [&](const element& inner) { read_cells(inner, field, axis + 1, to); });
  }

  // Visits every element of an array whose length matches this axis.
  template <typename Take>
  void each_of(const element& value, const Field& field, uint32_t axis, Take take) const {
    simdjson::dom::array list;
    if (value.get(list)) refuse_shape(field, type_text(value.type()));
    int64_t n = 0;
    for (const element inner : list) {
      if (++n > field.shape[axis]) break;
      take(inner);
    }
    if (n != field.shape[axis])
      refuse_shape(field, "an array of " + (n < field.shape[axis] ? std::to_string(n)
                                                                  : "more than " + std::to_string(field.shape[axis])));
  }

  [[noreturn]] void refuse_shape(const Field& field, const std::string& found) const {
    refuse_file(file_->name(),
                "line " + std::to_string(line_) + ", " + described(field) + ": found " + found +
                    ", the first line has " +
                    (field.shape.rank() ? "the shape " + field.shape.str() : std::string("one value")),
                "every line must have one shape");
  }

  Cell cell_of(const element& value, const Field& field) const {
    Cell cell;
    switch (value.type()) {
      case element_type::INT64:
        cell.kind = Cell::Kind::Integer;
        cell.integer = value.get_int64();
        cell.number = static_cast<double>(cell.integer);
        break;
      case element_type::UINT64:
        cell.large = value.get_uint64();
        [[fallthrough]];
      case element_type::DOUBLE:
        cell.kind = Cell::Kind::Number;
        cell.number = value.get_double();
        break;
      case element_type::STRING:
        cell.kind = Cell::Kind::Word;
        cell.text = value.get_string();
        break;
      case element_type::BOOL:
        cell.kind = Cell::Kind::Word;
        cell.text = value.get_bool() ? "true" : "false";
        break;
      case element_type::NULL_VALUE:
        break;
      default:
        refuse_shape(field, type_text(value.type()));
    }
    return cell;
  }

  static constexpr double most_ = 3.4028234663852886e38;  // of f32

  FileBytesPtr file_;
  std::string_view text_;
  std::vector<Field> fields_;
  FieldTree tree_;
  std::vector<std::optional<element>> values_;  // by field, for the last parsed line
  size_t cells_ = 0, line_ = 0;
  RowPlace first_;
  bool as_known_ = false, whole_ = false;
  simdjson::dom::parser parser_;
  element root_;
  std::string tail_;
};

}  // namespace

std::unique_ptr<TableRows> json_rows(const FileBytesPtr& file, const TableOptions& options) {
  return std::make_unique<JsonRows>(file, options);
}

}  // namespace harmonics
