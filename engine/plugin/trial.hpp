// Tries to open a library in a child process first, because a damaged library can crash or hang the dynamic loader in
// ways that no check of its bytes detects.
#pragma once

#include <string>

namespace harmonics::engine {

// Throws ErrorKind::Plugin if opening `file` crashes, exits the process or times out. Messages contain `name`. A file
// that the loader refuses is not an error here: opening it in this process gives the reason. A successful trial is
// remembered, also for later processes, by a file in the user's cache.
void try_to_open(const std::string& name, const std::string& file);

// Returns the time limit in seconds for opening a library: HARMONICS_PLUGIN_PATIENCE if set, else `otherwise`. Throws
// ErrorKind::Usage if the variable is not a positive number.
double plugin_patience(double otherwise);

}  // namespace harmonics::engine
