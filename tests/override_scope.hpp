// An override of a registry item for the duration of a scope.
#pragma once

#include <string>
#include <utility>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine::testing {

class OverrideScope {
 public:
  OverrideScope(Registry& registry, std::string functional, const std::string& implementation)
      : registry_(registry),
        functional_(std::move(functional)),
        before_(registry.set_override(functional_, implementation)) {}
  ~OverrideScope() { registry_.set_override(functional_, before_); }
  OverrideScope(const OverrideScope&) = delete;
  OverrideScope& operator=(const OverrideScope&) = delete;

 private:
  Registry& registry_;
  std::string functional_, before_;
};

}  // namespace harmonics::engine::testing
