// Errors of the files that make a model, collected over all stages: reading, imports, settings, blocks, mapping.
#pragma once

#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dsl/ndsl/model_file.hpp"

namespace harmonics::engine::ndsl {

class Faults {
 public:
  // Adds an error; an equal error at the same place is added once, because every layer may raise it. Throws all errors
  // if there are too many, and this one if its place is in no text.
  void add(const Place& place, const std::string& what, const std::string& remedy = "",
           ErrorKind kind = ErrorKind::Name);
  void add(const std::shared_ptr<const SourceText>& source, const Error& error);
  bool any() const { return !texts_.empty(); }
  // The number of calls of add().
  size_t count() const { return count_; }
  // Throws all errors as SourceErrors, text by text. Returns if there are none.
  void throw_any() const;

  // Names of keys, settings and parts with an error. Errors that follow from them, such as a missing key, are not
  // reported.
  void doubt(const std::string& name) { doubted_.insert(name); }
  bool doubts(std::initializer_list<const char*> names) const;
  bool doubts(const std::string& name) const { return doubted_.count(name) != 0; }

 private:
  std::vector<TextErrors> texts_;
  std::set<std::string> doubted_;
  size_t count_ = 0;
};

}  // namespace harmonics::engine::ndsl
