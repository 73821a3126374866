// Keeps copies of weights that no flag saves, in the user's state folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/model/safetensors.hpp"

namespace harmonics::engine::cli {

inline constexpr size_t kMostKept = 3;
inline constexpr uint64_t kMostKeptBytes = uint64_t{1} << 30;

// Returns $XDG_STATE_HOME/harmonics/kept, else ~/.local/state/harmonics/kept, or an empty path if the environment
// names no absolute folder.
std::string kept_folder();

// Returns why no copy can be kept, as far as that shows before the folder is made, or "". A folder that another user
// owns or may write to is not used, and the folder and its parent are not reached over a symbolic link.
std::string why_not_kept();

// Writes a copy that only this user can read, removes the oldest copies beyond the limits, and returns its path.
// Throws ErrorKind::Output with the reason if the copy fails.
std::string keep_weights(const TensorFile& weights, const std::string& graph);

}  // namespace harmonics::engine::cli
