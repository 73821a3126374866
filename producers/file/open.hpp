// file:PATH as a producer: one file, or the files of a folder or pattern in the order of their names.
#pragma once

#include <memory>
#include <string>

#include "producers/file/options.hpp"

namespace harmonics {

// Opens a folder of images as images. Other files must have one common format and are concatenated.
std::shared_ptr<Producer> open_file(const std::string& path, const Arguments& options);

}  // namespace harmonics
