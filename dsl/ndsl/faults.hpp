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
  // Adds an error. Duplicates at one position are dropped, because every layer may raise them. Throws all errors if
  // there are too many, and this one if its position is in no text.
  void add(const Place& place, const std::string& what, const std::string& remedy = "",
           ErrorKind kind = ErrorKind::Name);
  void add(const std::shared_ptr<const SourceText>& source, const Error& error);
  bool any() const { return !texts_.empty(); }
  // Returns the number of calls of add().
  size_t count() const { return count_; }
  // Throws all errors as SourceErrors, grouped by text. Returns if there are none.
  void throw_any() const;

  // Marks a key, setting or part with an error. Errors that follow from it, such as a missing key, are not reported.
  void doubt(const std::string& name) { doubted_.insert(name); }
  bool doubts(std::initializer_list<const char*> names) const;
  bool doubts(const std::string& name) const { return doubted_.count(name) != 0; }

 private:
  std::vector<TextErrors> texts_;
  std::set<std::string> doubted_;
  size_t count_ = 0;
};

}  // namespace harmonics::engine::ndsl
