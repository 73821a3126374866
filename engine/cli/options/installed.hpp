// Locates installed files relative to the program's executable, so that an installation can be moved.
#pragma once

#include <string>

namespace harmonics::engine::cli {

// Return absolute paths, or "" if the program is not installed or the folder is missing.
std::string samples_folder();
std::string documentation_folder();

// Returns the installed file for "samples/FILE", or "" for other paths and missing files.
std::string installed_sample(const std::string& path);

// Replaces "samples/FILE" in a help text by the path of the installed file. Returns the text unchanged if no samples
// are installed.
std::string with_samples_folder(std::string text);

}  // namespace harmonics::engine::cli
