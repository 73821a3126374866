// Activations of the registry, such as those of plugins, that steps of a model call by name.
#pragma once

#include <string>

#include "dsl/spec/spec.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Returns the registered activation of this name; null if there is none, or if a functional has the name.
ItemPtr activation_named(const std::string& name);

// Returns an argument's value with its position.
WrittenValue written_value(const specs::Value& value, Span span);

}  // namespace harmonics::engine
