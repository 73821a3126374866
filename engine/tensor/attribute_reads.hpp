// Records the attributes that a body reads, to compare them with its signature.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

// Records the names that this thread looks up in one map during the object's lifetime, found or not.
class AttributeReads {
 public:
  explicit AttributeReads(const AttributeMap& of);
  ~AttributeReads();
  AttributeReads(const AttributeReads&) = delete;
  AttributeReads& operator=(const AttributeReads&) = delete;

  const std::set<std::string>& names() const { return names_; }
  void note(const AttributeMap& map, std::string_view name);

 private:
  const AttributeMap* of_;
  AttributeReads* outer_;
  std::set<std::string> names_;
};

}  // namespace harmonics::engine
