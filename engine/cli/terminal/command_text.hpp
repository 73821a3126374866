// Formats a command line so that it can be copied into a shell.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine::cli {

std::string quoted(const std::string& word);
// Replaces the secrets of an address: its password, and options such as token.
std::string without_secrets(const std::string& address);
// Quotes words where needed, and replaces secrets: tokens, and passwords in addresses.
std::string command_text(const std::vector<std::string>& words);
// Returns `command` with one --resume, whose value is `folder` unless that is empty.
std::string resuming_line(const std::vector<std::string>& command, const std::string& folder);

}  // namespace harmonics::engine::cli
