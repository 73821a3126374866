// Reads the types of live streams from checkpoints, so that a resumed run opens the streams without waiting for senders
// to announce them.
#pragma once

#include <map>
#include <string>

namespace harmonics::engine {

// Returns the types by producer, as texts of <harmonics/announced.hpp>, from a checkpoint file or the newest readable
// checkpoint of a folder. Reads headers only and verifies no checksum; resuming does that. Empty if there is no
// checkpoint.
std::map<std::string, std::string> live_types_in(const std::string& path);
// Returns the metadata of the same header: "harmonics.streams" and others. Empty if there is no checkpoint.
std::map<std::string, std::string> metadata_in(const std::string& path);

}  // namespace harmonics::engine
