// file:PATH as a producer: a file, or the files of a folder or pattern, in the order of their names.
#pragma once

#include <memory>
#include <string>

#include "producers/file/options.hpp"

namespace harmonics {

// A folder of images is read as images. Other files must all have one format and are concatenated.
std::shared_ptr<Producer> open_file(const std::string& path, const Arguments& options);

}  // namespace harmonics
