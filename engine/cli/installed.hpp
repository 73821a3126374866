// What is installed beside the program: found from the program's own file, so that an installation may be moved.
#pragma once

#include <string>

namespace harmonics::cli {

// Absolute paths; "" where the program is not installed or that part is left out.
std::string samples_folder();
std::string documentation_folder();

// The installed file of "samples/FILE"; "" for other paths and where there is none.
std::string installed_sample(const std::string& path);

// A help text with "samples/FILE" made the path of the installed file; unchanged where no samples are installed.
std::string with_samples_folder(std::string text);

}  // namespace harmonics::cli
