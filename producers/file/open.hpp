// file:PATH as a producer: a file, the files of a folder or of a pattern, in the order of their names.
#pragma once

#include <memory>
#include <string>

#include "producers/file/options.hpp"

namespace harmonics {

// A folder of pictures gives pictures; of other files all must have one format and are read one after the other.
std::shared_ptr<Producer> open_file(const std::string& path, const Arguments& options);

}  // namespace harmonics
