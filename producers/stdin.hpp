// stdin: as a producer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <harmonics/function.hpp>

namespace harmonics {

// Samples of the frames on standard input: those of one tensor, or of the one that is named.
std::shared_ptr<Producer> open_stdin(const std::string& path, const Arguments& options);
std::vector<Argument> stdin_options();

}  // namespace harmonics
