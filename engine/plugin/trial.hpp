// Opening a library in a child process first: one that is damaged can crash the loader of the system, or never return
// from it, and no check of its bytes finds every such damage.
#pragma once

#include <string>

namespace harmonics {

// Throws ErrorKind::Plugin when opening `file` crashes, ends the process or does not end in time; `name` stands in the
// messages. Says nothing of a file that the loader refuses: opening it here gives the reason. A file that was tried
// before is not tried again, in this process and, as a file in the user's cache remembers, in later ones.
void try_to_open(const std::string& name, const std::string& file);

// Seconds that a library may take for something: HARMONICS_PLUGIN_PATIENCE where it is set, else `otherwise`.
double plugin_patience(double otherwise);

}  // namespace harmonics
