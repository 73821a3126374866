// file:PATH as a producer: what the file holds is told by its content, then by its name's ending.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <harmonics/function.hpp>

namespace harmonics {

std::shared_ptr<Producer> open_file(const std::string& path, const Arguments& options);
// The schema of its options, for registration.
std::vector<Argument> file_options();

}  // namespace harmonics
