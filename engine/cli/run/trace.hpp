// Writes timed runs as Chrome trace events, for Perfetto and chrome://tracing.
#pragma once

#include <string>

#include "engine/bound/profile.hpp"

namespace harmonics::engine::cli {

// Returns one complete event per step of the plan, and one per part of steps with several parts, on the thread that ran
// it.
std::string trace_json(const Profile& profile);

}  // namespace harmonics::engine::cli
