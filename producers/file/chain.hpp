// Several sources one after the other, as one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics {

// All must describe samples of one type; `names` stand in errors. Classes are those of all together.
std::shared_ptr<Producer> chained(std::vector<std::shared_ptr<Producer>> parts, const std::vector<std::string>& names);

}  // namespace harmonics
