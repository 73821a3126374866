// Keeps copies of weights that no flag saves in the user's state folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/model/safetensors.hpp"

namespace harmonics::engine::cli {

inline constexpr size_t kMostKept = 3;
inline constexpr uint64_t kMostKeptBytes = uint64_t{1} << 30;

// Returns $XDG_STATE_HOME/harmonics/kept, else ~/.local/state/harmonics/kept; empty if neither variable is an absolute
// path.
std::string kept_folder();

// Returns why no copy can be kept, as far as this is known before the folder is created; "" if there is no reason.
// Folders that other users own or can write to are rejected. The folder and its parent must not be symbolic links.
std::string why_not_kept();

// Writes a copy that only this user can read, removes the oldest copies beyond the limits, and returns its path. Throws
// ErrorKind::Output with the reason.
std::string keep_weights(const TensorFile& weights, const std::string& graph);

}  // namespace harmonics::engine::cli
