// Converts a plugin's functional into an entry of the table of functionals.
#pragma once

#include "engine/program/functional.hpp"

namespace harmonics::engine {

// Returns the functional without its name and description. Throws ErrorKind::Plugin for an invalid item.
Functional functional_of(const ItemPtr& item);

}  // namespace harmonics::engine
