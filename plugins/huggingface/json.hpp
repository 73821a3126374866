// JSON files of a folder: values with their location, for messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include <harmonics/error.hpp>

namespace huggingface {

namespace json = boost::json;

// Throws ErrorKind::Weights: "'PATH' WHAT".
[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& remedy = "");

// A setting that is right and that the spec of an architecture does not implement.
struct Unsupported : harmonics::Error {
  using Error::Error;
};

class Node {
 public:
  Node() = default;
  // Parses a whole text. Throws ErrorKind::Weights if it exceeds `most` bytes, or, with the line, if it is not JSON.
  static Node parse(std::string_view text, const std::string& path, size_t most);

  // Returns an entry of an object. The result is missing if there is no such key, or if this node is missing or null.
  Node operator[](std::string_view key) const;
  Node operator[](size_t index) const;                          // of a list
  bool has() const { return value_ && !value_->is_null(); }     // false: missing or null
  bool is_null() const { return value_ && value_->is_null(); }  // given as null
  bool is_object() const { return value_ && value_->is_object(); }
  bool is_list() const { return value_ && value_->is_array(); }
  bool is_text() const { return value_ && value_->is_string(); }
  bool is_number() const { return value_ && value_->is_number(); }
  bool is_truth() const { return value_ && value_->is_bool(); }
  bool is_whole() const { return value_ && (value_->is_int64() || value_->is_uint64()); }
  size_t size() const;                                             // of a list or an object
  std::vector<std::pair<std::string_view, Node>> entries() const;  // of an object

  // Throw ErrorKind::Weights with file and location if the node is missing or of another kind.
  std::string_view text() const;
  int64_t integer() const;
  double number() const;
  bool truth() const;
  std::string_view text(std::string_view otherwise) const { return has() ? text() : otherwise; }
  bool truth(bool otherwise) const { return has() ? truth() : otherwise; }
  double number(double otherwise) const { return has() ? number() : otherwise; }
  int64_t integer(int64_t otherwise) const { return has() ? integer() : otherwise; }

  const json::value& value() const { return *value_; }  // only if has()
  const std::string& place() const { return place_; }   // ".rope_scaling.factor"
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void lack(const std::string& what) const;  // throws Unsupported
  std::string shown() const;                              // its JSON, shortened

 private:
  Node(std::shared_ptr<const json::value> root, std::string path)
      : root_(std::move(root)), value_(root_.get()), path_(std::move(path)) {}
  Node child(const json::value* value, const std::string& step) const;
  std::string message(const std::string& what) const;

  std::shared_ptr<const json::value> root_;
  const json::value* value_ = nullptr;
  std::string path_, place_;
};

}  // namespace huggingface
