// Samples that come along a pipe, standard input, or a file that grows, in whatever format its first bytes show.
#pragma once

#include <memory>
#include <string>

#include <harmonics/function.hpp>

namespace harmonics {

std::shared_ptr<Producer> open_stdin(const std::string& path, const Arguments& options);
std::vector<Argument> stdin_options();

// A named pipe, or with `follow` a file that is read on as it grows.
std::shared_ptr<Producer> open_live_file(const std::string& path, bool follow, const Arguments& options);
// What such a stream has beside the options of files.
std::vector<Argument> live_file_options();
// Of a file that is neither. Errors: Usage.
void refuse_live_options(const std::string& path, const Arguments& options);

}  // namespace harmonics
