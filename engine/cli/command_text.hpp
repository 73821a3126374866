// A command line as a shell reads it again, for people to paste.
#pragma once

#include <string>
#include <vector>

namespace harmonics::cli {

std::string quoted(const std::string& word);
// Quoted where needed, and without secrets: tokens, and passwords in
// addresses.
std::string command_text(const std::vector<std::string>& words);
// The words of a command that resumes what `command` began: with --resume once, its value only where `folder` is given.
std::string resuming_line(const std::vector<std::string>& command, const std::string& folder);

}  // namespace harmonics::cli
