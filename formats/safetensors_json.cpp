#include "formats/safetensors_json.hpp"

#include <set>
#include <utility>

#include <simdjson.h>

#include "formats/safetensors.hpp"
#include "formats/utf8.hpp"

namespace harmonics {

namespace {

namespace json = simdjson::ondemand;

constexpr int kMostNested = 64;  // depth of the values of unknown keys

// Parses on demand: a DOM would take up to eight times the text, and its errors have no offsets.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const Origin& file, uint64_t offset)
      : text_(text), file_(file), offset_(offset) {}

  RawHeader read() {
    if (const auto error = parser_.iterate(text_).get(document_))  // validates strings and characters of the whole text
      refuse_safetensors(file_, offset_, nullptr,
                         std::string("the header is not JSON: ") + simdjson::error_message(error));
    json::object root;
    check(document_.get_object().get(root));
    std::set<std::string> names;
    each_field(root, [&](const std::string& name, json::value value) {
      if (!names.insert(name).second) fault("the name occurs a second time", &name);
      name == "__metadata__" ? metadata(value) : tensor(name, value);
    });
    if (!document_.current_location().error()) fault("only spaces may follow the header's JSON");
    return std::move(header_);
  }

 private:
  // Returns the offset of the current token, or of the end.
  uint64_t place() {
    const char* at = nullptr;
    if (document_.current_location().get(at)) return offset_ + text_.size() - 1;
    return offset_ + static_cast<uint64_t>(at - text_.data());
  }
  [[noreturn]] void fault(const std::string& what, const std::string* tensor = nullptr) {
    refuse_safetensors(file_, place(), tensor ? tensor : tensor_, what);
  }
  void check(simdjson::error_code error) {
    if (error) fault(std::string("the header is not JSON: ") + simdjson::error_message(error));
  }

  template <typename Body>
  void each_field(json::object& object, Body&& body) {
    for (auto item : object) {
      json::field field;
      check(std::move(item).get(field));
      std::string_view key;
      check(field.unescaped_key().get(key));
      body(std::string(key), field.value());
    }
  }
  template <typename Body>
  void each_element(json::array& list, Body&& body) {
    for (auto item : list) {
      json::value value;
      check(std::move(item).get(value));  // NOLINT(performance-move-const-arg): get() is for rvalues
      body(value);
    }
  }

  json::json_type kind_of(json::value& value) {
    json::json_type kind{};
    check(value.type().get(kind));
    return kind;
  }
  void expect(json::json_type wanted, json::value& value, const std::string& expected) {
    const json::json_type kind = kind_of(value);
    if (kind == wanted) return;
    const char* found = kind == json::json_type::array     ? "a list"
                        : kind == json::json_type::object  ? "an object"
                        : kind == json::json_type::string  ? "a string"
                        : kind == json::json_type::number  ? "a number"
                        : kind == json::json_type::boolean ? "a truth value"
                                                           : "null";
    fault(std::string(found) + " where " + expected + " was expected");
  }
  json::object object_of(json::value& value, const std::string& expected) {
    expect(json::json_type::object, value, expected);
    json::object object;
    check(value.get_object().get(object));
    return object;
  }
  std::string text_of(json::value& value, const std::string& expected) {
    expect(json::json_type::string, value, expected);
    std::string_view text;
    check(value.get_string().get(text));
    return std::string(text);
  }
  std::vector<uint64_t> numbers_of(json::value& value, const std::string& key) {
    expect(json::json_type::array, value, "the list " + shown_name(key));
    json::array list;
    check(value.get_array().get(list));
    std::vector<uint64_t> numbers;
    each_element(list, [&](json::value element) {
      expect(json::json_type::number, element, "a whole number of " + shown_name(key));
      if (element.is_negative()) fault("a number of " + shown_name(key) + " is negative");
      if (element.get_uint64().get(numbers.emplace_back()))
        fault("a number of " + shown_name(key) + " is not whole or larger than 64 bits hold");
    });
    return numbers;
  }

  void metadata(json::value& value) {
    json::object object = object_of(value, "the object of '__metadata__'");
    each_field(object, [&](const std::string& key, json::value entry) {
      const auto [at, first] = header_.metadata.emplace(key, "");
      if (!first) fault("the key " + shown_name(key) + " occurs a second time");
      at->second = text_of(entry, "the value of metadata key " + shown_name(key));
    });
  }

  void tensor(const std::string& name, json::value& value) {
    json::object object = object_of(value, "the object of " + shown_name(name));
    tensor_ = &name;
    RawTensor tensor{name, {}, {}, {}};
    std::set<std::string> keys;
    each_field(object, [&](const std::string& key, json::value entry) {
      if (!keys.insert(key).second) fault("the key " + shown_name(key) + " occurs a second time");
      if (key == "dtype")
        tensor.dtype = text_of(entry, "the string 'dtype'");
      else if (key == "shape")
        tensor.shape = numbers_of(entry, key);
      else if (key == "data_offsets")
        tensor.data_offsets = numbers_of(entry, key);
      else
        parse(entry, kMostNested);
    });
    tensor_ = nullptr;
    header_.tensors.push_back(std::move(tensor));
  }

  // Parses the value of an unknown key. simdjson would skip it without validation.
  void parse(json::value& value, int left) {
    if (left == 0) fault("the value of an unknown key is nested deeper than " + std::to_string(kMostNested));
    switch (kind_of(value)) {
      case json::json_type::array: {
        json::array list;
        check(value.get_array().get(list));
        return each_element(list, [&](json::value element) { parse(element, left - 1); });
      }
      case json::json_type::object: {
        json::object object;
        check(value.get_object().get(object));
        return each_field(object, [&](const std::string&, json::value entry) { parse(entry, left - 1); });
      }
      case json::json_type::string: {
        std::string_view text;
        return check(value.get_string().get(text));
      }
      case json::json_type::number: {
        double number = 0;
        return check(value.get_double().get(number));
      }
      case json::json_type::boolean: {
        bool truth = false;
        return check(value.get_bool().get(truth));
      }
      case json::json_type::null: {
        bool null = false;
        return check(value.is_null().get(null));
      }
    }
  }

  simdjson::padded_string text_;
  const Origin& file_;
  uint64_t offset_;
  json::parser parser_;
  json::document document_;
  RawHeader header_;
  const std::string* tensor_ = nullptr;  // the tensor being parsed, or null
};

}  // namespace

RawHeader parse_safetensors_json(std::string_view text, const Origin& file, uint64_t offset) {
  return HeaderReader(text, file, offset).read();
}

}  // namespace harmonics
