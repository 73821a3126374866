// Grammars (GBNF) of the multiples of a number, as JSON texts.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/language/number_grammar.hpp"

namespace harmonics::engine {

// Returns the alternatives of the multiples of `step`, which is above 0, between two bounds, or "" if there are none;
// `whole`: of those that are integers. `rule` makes a rule of its argument and returns its name. Throws
// ErrorKind::Usage for steps and bounds that no small grammar expresses.
std::string multiples_between(double step, bool whole, const std::optional<NumberBound>& least,
                              const std::optional<NumberBound>& most,
                              const std::function<std::string(const std::string&)>& rule);

}  // namespace harmonics::engine
