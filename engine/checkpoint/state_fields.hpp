// Writes the state of a run as JSON and reads it back with checks of every field.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include <boost/json.hpp>
#include <fmt/core.h>

namespace harmonics::engine {

// Formats a number as text: the JSON library does not restore all numbers exactly, and JSON has no infinity.
inline std::string exact(double v) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

inline double exact_number(std::string_view text, std::string_view key) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::runtime_error(fmt::format("'{}' is not a number: '{}'", key, text));
  return v;
}

// Formats numbers by name for Fields::numbers().
inline boost::json::object exact(const std::map<std::string, double>& numbers) {
  boost::json::object o;
  for (const auto& [name, v] : numbers) o[name] = exact(v);
  return o;
}

// A JSON object whose fields must exist and have the right type and range. Functions throw std::exception with the
// error.
class Fields {
 public:
  explicit Fields(const boost::json::value& value) : object_(value.as_object()) {}

  const boost::json::value& at(std::string_view key) const {
    const boost::json::value* v = object_.if_contains(key);
    if (!v) throw std::runtime_error(fmt::format("'{}' is missing", key));
    return *v;
  }
  int64_t count(std::string_view key) const {
    const boost::json::value& v = at(key);
    if (!v.is_int64() || v.get_int64() < 0) throw std::runtime_error(fmt::format("'{}' is not a count", key));
    return v.get_int64();
  }
  bool yes(std::string_view key) const {
    const boost::json::value& v = at(key);
    if (!v.is_bool()) throw std::runtime_error(fmt::format("'{}' is neither true nor false", key));
    return v.get_bool();
  }
  std::string text(std::string_view key) const {
    const boost::json::value& v = at(key);
    if (!v.is_string()) throw std::runtime_error(fmt::format("'{}' is not a string", key));
    return std::string(v.get_string());
  }
  uint64_t large(std::string_view key) const {
    const std::string s = text(key);
    uint64_t v = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (error != std::errc() || end != s.data() + s.size())
      throw std::runtime_error(fmt::format("'{}' is not a count", key));
    return v;
  }
  double number(std::string_view key) const { return exact_number(text(key), key); }
  Fields object(std::string_view key) const { return Fields(at(key)); }
  const boost::json::array& list(std::string_view key) const { return at(key).as_array(); }
  const boost::json::object& all() const { return object_; }
  // Returns all fields as numbers by name.
  std::map<std::string, double> numbers() const {
    std::map<std::string, double> result;
    for (const auto& [name, v] : object_) result[std::string(name)] = number(name);
    return result;
  }

 private:
  const boost::json::object& object_;
};

}  // namespace harmonics::engine
