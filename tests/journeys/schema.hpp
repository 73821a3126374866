// Checks a value against a JSON schema of the repository. Supports only the keywords used there.
#pragma once

#include <string>
#include <vector>

#include <boost/json.hpp>

namespace journeys {

namespace json = boost::json;

// Collects all violations with their paths. Empty: the value is valid.
class SchemaCheck {
 public:
  static std::vector<std::string> run(const json::value& schema, const json::value& value) {
    SchemaCheck check;
    check.at(schema.as_object(), value, "$");
    return std::move(check.wrong_);
  }

 private:
  void fail(const std::string& place, const std::string& what) { wrong_.push_back(place + ": " + what); }

  static bool is(const std::string& type, const json::value& v) {
    if (type == "object") return v.is_object();
    if (type == "array") return v.is_array();
    if (type == "string") return v.is_string();
    if (type == "boolean") return v.is_bool();
    if (type == "null") return v.is_null();
    if (type == "integer") return v.is_int64() || v.is_uint64();
    return type == "number" && v.is_number();
  }

  void type(const json::value& wanted, const json::value& v, const std::string& place) {
    if (wanted.is_string()) {
      if (!is(std::string(wanted.as_string()), v))
        fail(place, json::serialize(v).substr(0, 60) + " is not of type " + std::string(wanted.as_string()));
      return;
    }
    for (const json::value& one : wanted.as_array())
      if (is(std::string(one.as_string()), v)) return;
    fail(place, json::serialize(v).substr(0, 60) + " is of none of the types " + json::serialize(wanted));
  }

  void object(const json::object& schema, const json::object& o, const std::string& place) {
    const json::value* properties = schema.if_contains("properties");
    if (const json::value* required = schema.if_contains("required"))
      for (const json::value& key : required->as_array())
        if (!o.contains(key.as_string())) fail(place, "lacks " + std::string(key.as_string()));
    for (const auto& [key, v] : o) {
      const std::string here = place + "." + std::string(key);
      const json::value* property = properties ? properties->as_object().if_contains(key) : nullptr;
      const json::value* others = schema.if_contains("additionalProperties");
      if (property)
        at(property->as_object(), v, here);
      else if (others && others->is_object())
        at(others->as_object(), v, here);
      else if (others && !others->as_bool())
        fail(here, "is not in the schema");
    }
  }

  void at(const json::object& schema, const json::value& v, const std::string& place) {
    for (const auto& [key, rule] : schema) {
      if (key == "type")
        type(rule, v, place);
      else if (key == "const" && rule != v)
        fail(place, "is not " + json::serialize(rule));
      else if (key == "enum" && std::find(rule.as_array().begin(), rule.as_array().end(), v) == rule.as_array().end())
        fail(place, json::serialize(v) + " is none of " + json::serialize(rule));
      else if (key == "oneOf")
        one_of(rule.as_array(), v, place);
      else if (key == "items" && v.is_array()) {
        size_t i = 0;
        for (const json::value& item : v.as_array())
          at(rule.as_object(), item, place + "[" + std::to_string(i++) + "]");
      } else if (!(key == "const" || key == "enum" || key == "items" || key == "properties" || key == "required" ||
                   key == "additionalProperties" || key == "$schema" || key == "title"))
        fail(place, "the schema's keyword " + std::string(key) + " is not understood");
    }
    if (v.is_object()) object(schema, v.as_object(), place);
  }

  void one_of(const json::array& schemas, const json::value& v, const std::string& place) {
    size_t fit = 0;
    for (const json::value& one : schemas) fit += run(one, v).empty();
    if (fit != 1) fail(place, "fits " + std::to_string(fit) + " of the schemas, not one");
  }

  std::vector<std::string> wrong_;
};

}  // namespace journeys
