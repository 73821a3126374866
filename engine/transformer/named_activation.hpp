// Activations by name: those of the transformers library, functionals of one value, and those of the registry, such as
// those of plugins.
#pragma once

#include <string>
#include <vector>

#include <harmonics/tensor.hpp>

#include "dsl/spec/spec.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Returns the registered activation of this name; null if there is none, or if a functional has the name.
ItemPtr activation_named(const std::string& name);

// Activations of the transformers library that are not functionals of the same name.
enum class SpelledActivation { none, silu, gelu, gelu_by_tanh, relu2, quick_gelu };
SpelledActivation spelled_activation(const std::string& name);

// Returns whether a functional maps one value to another of its shape without further input, or an activation is
// registered under the name.
bool is_activation(const std::string& name);

// Returns the names of activations for messages: spelled ones, and those of is_activation().
std::vector<std::string> activation_names();

// Applies an activation; returns an empty tensor if there is none of this name.
HTensor apply_activation(const std::string& name, const HTensor& x);

// Returns an argument's value with its position.
WrittenValue written_value(const specs::Value& value, Span span);

}  // namespace harmonics::engine
