// Typed access to fields of JSON objects in requests.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "formats/exact_json.hpp"

namespace harmonics::engine {

// An invalid field of a request.
struct FieldError : Error {
  FieldError(std::string_view field, const std::string& what)
      : Error(ErrorKind::Usage, fmt::format("'{}' {}", field, what)), field(field) {}
  std::string field;
};

[[noreturn]] inline void refuse_field(std::string_view field, const std::string& what) {
  throw FieldError(field, what);
}

// Throws "'temperature' is "hot"; it must be a number from 0 to 100". Long texts, lists and objects are not quoted.
[[noreturn]] inline void refuse_value(std::string_view field, const boost::json::value& value,
                                      const std::string& wanted) {
  constexpr size_t kLongest = 40;
  std::string shown = value.is_object()   ? "an object"
                      : value.is_array()  ? "a list"
                      : value.is_double() ? fmt::format("{}", value.get_double())
                                          : boost::json::serialize(value);
  if (shown.size() > kLongest) shown = "a string";
  refuse_field(field, fmt::format("is {}; it must be {}", shown, wanted));
}

inline std::string copied(boost::json::string_view text) { return {text.data(), text.size()}; }

// Parses the body of a request, at most 64 levels deep. Throws ErrorKind::Usage unless it is a JSON object.
inline boost::json::object object_of_body(std::string_view body) {
  boost::json::error_code failed;
  boost::json::value value = parse_json(body, failed);
  if (failed) throw Error(ErrorKind::Usage, "the body is not JSON: " + failed.message());
  if (!value.is_object()) throw Error(ErrorKind::Usage, "the body is not a JSON object; it must begin with {");
  return std::move(value.get_object());
}

// Returns a list of tokens. Throws FieldError for other items.
inline std::vector<int32_t> token_ids(const boost::json::array& list, const char* field) {
  std::vector<int32_t> ids;
  for (const boost::json::value& id : list) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > INT32_MAX)
      refuse_field(field, "has a token that is not a number");
    ids.push_back(static_cast<int32_t>(id.get_int64()));
  }
  return ids;
}

// Typed fields of a JSON object; null counts as absent. Throws ErrorKind::Usage, with the name, for invalid values.
class JsonFields {
 public:
  explicit JsonFields(const boost::json::object& object) : object_(object) {}
  const boost::json::value* find(const char* name) const {
    const boost::json::value* const value = object_.if_contains(name);
    return value && !value->is_null() ? value : nullptr;
  }
  std::string text(const char* name, std::string otherwise = "") const {
    const boost::json::value* const value = find(name);
    if (value && !value->is_string()) refuse_value(name, *value, "a string");
    return value ? copied(value->get_string()) : otherwise;
  }
  bool flag(const char* name, bool otherwise) const {
    const boost::json::value* const value = find(name);
    if (value && !value->is_bool()) refuse_value(name, *value, "true or false");
    return value ? value->get_bool() : otherwise;
  }
  double number(const char* name, double otherwise, double least, double most) const {
    const boost::json::value* const value = find(name);
    if (!value) return otherwise;
    const double number = value->is_number() ? value->to_number<double>() : NAN;
    if (!(number >= least && number <= most))
      refuse_value(name, *value, fmt::format("a number from {} to {}", least, most));
    return number;
  }
  int64_t whole(const char* name, int64_t otherwise, int64_t least, int64_t most) const {
    const boost::json::value* const value = find(name);
    if (!value) return otherwise;
    boost::json::error_code failed;
    const auto number = value->is_number() ? value->to_number<int64_t>(failed) : 0;
    if (!value->is_number() || failed || number < least || number > most)
      refuse_value(name, *value, fmt::format("a whole number from {} to {}", least, most));
    return number;
  }
  std::vector<std::string> texts(const char* name) const {
    const boost::json::value* const value = find(name);
    if (!value) return {};
    if (value->is_string()) return {copied(value->get_string())};
    std::vector<std::string> all;
    if (!value->is_array()) refuse_value(name, *value, "a string or a list of strings");
    for (const boost::json::value& one : value->get_array()) {
      if (!one.is_string())
        refuse_field(name, "has an item that is not a string; it must be a string or a list of strings");
      all.push_back(copied(one.get_string()));
    }
    return all;
  }
  const boost::json::object* object(const char* name) const {
    const boost::json::value* const value = find(name);
    if (value && !value->is_object()) refuse_value(name, *value, "an object");
    return value ? &value->get_object() : nullptr;
  }
  const boost::json::array* array(const char* name) const {
    const boost::json::value* const value = find(name);
    if (value && !value->is_array()) refuse_value(name, *value, "a list");
    return value ? &value->get_array() : nullptr;
  }

 private:
  const boost::json::object& object_;
};

}  // namespace harmonics::engine
