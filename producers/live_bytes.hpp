// Samples from a pipe, standard input, or a growing file; their format is detected by the first bytes.
#pragma once

#include <memory>
#include <string>

#include <harmonics/function.hpp>

namespace harmonics {

std::shared_ptr<Producer> open_stdin(const std::string& path, const Arguments& options);
std::vector<Argument> stdin_options();

// Opens a named pipe or, with `follow`, a file that is read as it grows.
std::shared_ptr<Producer> open_live_file(const std::string& path, bool follow, const Arguments& options);
// Returns the options of such a stream besides those of files.
std::vector<Argument> live_file_options();
// Rejects these options for a regular file. Errors: Usage.
void refuse_live_options(const std::string& path, const Arguments& options);

}  // namespace harmonics
