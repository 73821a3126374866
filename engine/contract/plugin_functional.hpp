// A plugin's functional, as the table of functionals holds it.
#pragma once

#include "engine/program/functional.hpp"

namespace harmonics::engine {

// Without name and description.
Functional functional_of(const ItemPtr& item);

}  // namespace harmonics::engine
