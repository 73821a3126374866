// The types of a run's live streams as stored in its checkpoints: a resumed run opens the streams without waiting for
// a sender to announce them.
#pragma once

#include <map>
#include <string>

namespace harmonics::engine {

// Returns texts of <harmonics/announced.hpp> by producer, from a checkpoint file or the newest readable checkpoint of
// a folder. Reads only headers and verifies no checksum; that is done when the run resumes. Empty if there is no
// checkpoint.
std::map<std::string, std::string> live_types_in(const std::string& path);
// Returns the metadata of the same header: "harmonics.streams" and others. Empty if there is no checkpoint.
std::map<std::string, std::string> metadata_in(const std::string& path);

}  // namespace harmonics::engine
