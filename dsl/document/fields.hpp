// Reads maps with known keys and collects their errors.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dsl/document/document.hpp"

namespace harmonics::engine::document {

// The errors of one text, thrown together.
class Problems {
 public:
  explicit Problems(std::shared_ptr<const SourceText> source) : source_(std::move(source)) {}

  void add(Span place, const std::string& what, const std::string& remedy = "", ErrorKind kind = ErrorKind::Syntax);
  void add(const Error& error);
  // Adds an error such as "NAME is the text 'no'; it must be true or false".
  void expected(const Node& node, const std::string& name, const std::string& wanted);
  bool any() const { return !errors_.empty(); }
  size_t count() const { return errors_.size(); }
  const SourceText& source() const { return *source_; }
  void throw_any();                                         // returns if there are no problems
  std::vector<Error> take() { return std::move(errors_); }  // in the order of add()

  // Marks a key with a problem: its value is invalid, or an unknown key may be its misspelling.
  void doubt(const std::string& key) { doubted_.insert(key); }
  const std::set<std::string>& doubted() const { return doubted_; }

 private:
  std::shared_ptr<const SourceText> source_;
  std::vector<Error> errors_;
  std::set<std::string> doubted_;
};

// The entries of one map. The reader requests every key that it knows; finish() rejects the others and suggests the
// nearest known key. A value of the wrong kind is recorded as a problem and read as if the key were absent. Null counts
// as absent. A missing key is not reported if an unknown one resembles it.
class Fields {
 public:
  // `what` starts messages: "an operation", "config". A node other than a map is a problem; null is an empty map.
  Fields(const Node& node, Problems& problems, std::string what);

  const Node* find(const std::string& key);
  const Node* need(const std::string& key);  // finish() reports it if it is missing
  std::optional<std::string> text(const std::string& key);
  std::optional<int64_t> whole(const std::string& key, int64_t least, int64_t most);
  std::optional<double> real(const std::string& key, double least, double most);
  std::optional<bool> truth(const std::string& key);
  std::optional<std::vector<std::string>> texts(const std::string& key);  // a list of texts, or one text
  void allow(const std::string& key) { known_.push_back(key); }
  void finish();

 private:
  const Node& node_;
  Problems& problems_;
  std::string what_;
  std::vector<std::string> known_, missing_;
};

}  // namespace harmonics::engine::document
