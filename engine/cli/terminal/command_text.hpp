// Formats a command line with shell quoting, for copying into a shell.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine::cli {

std::string quoted(const std::string& word);
// Omits the secrets of an address: its password, and options such as token.
std::string without_secrets(const std::string& address);
// Quotes words where needed, and omits secrets: tokens, and passwords in addresses.
std::string command_text(const std::vector<std::string>& words);
// Returns the command that resumes `command`, with --resume once, and with the value of --resume only if `folder` is
// given.
std::string resuming_line(const std::vector<std::string>& command, const std::string& folder);

}  // namespace harmonics::engine::cli
