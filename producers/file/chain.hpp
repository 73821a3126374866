// Concatenates several sources.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics {

// Concatenates the parts, which must have samples of one type; `names` appear in errors. Classes are those of all parts
// together.
std::shared_ptr<Producer> chained(std::vector<std::shared_ptr<Producer>> parts, const std::vector<std::string>& names);

}  // namespace harmonics
