// What the live streams of a run were, as its checkpoints hold it: a run that goes on opens them without hearing from a
// sender first.
#pragma once

#include <map>
#include <string>

namespace harmonics {

// By producer, texts of <harmonics/announced.hpp>, as the newest readable checkpoint of a folder, or a checkpoint file,
// holds them. Reads headers alone and checks no checksum: that is done when the run goes on from it. None when there is
// no checkpoint.
std::map<std::string, std::string> live_types_in(const std::string& path);

}  // namespace harmonics
