// Reads model specs from JSON.
#pragma once

#include <string>
#include <string_view>

#include "dsl/spec/spec.hpp"

namespace harmonics::engine::specs {

// Throws ErrorKind::Syntax with the position ("architecture.forward[3].op"), the value found and the allowed values.
// Names of operations, variables and tensors are resolved later, when a model is built.
Spec parse_spec(const std::string& path, std::string_view json);
// Reads and parses a file of at most 1 MiB. Throws ErrorKind::NoInput if it cannot be read.
Spec read_spec(const std::string& path);

}  // namespace harmonics::engine::specs
