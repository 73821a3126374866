// Opens a library in a child process first. A damaged library can crash or hang the system's loader, and no check of
// its bytes finds every such damage.
#pragma once

#include <string>

namespace harmonics::engine {

// Throws ErrorKind::Plugin when opening `file` crashes, ends the process or does not end in time. Messages contain
// `name`. A file that the loader refuses is not an error here: opening it in this process gives the reason. A file is
// tried once, in this process and, by a file in the user's cache, in later ones.
void try_to_open(const std::string& name, const std::string& file);

// Returns the seconds that a library may take: HARMONICS_PLUGIN_PATIENCE if set, else `otherwise`.
double plugin_patience(double otherwise);

}  // namespace harmonics::engine
