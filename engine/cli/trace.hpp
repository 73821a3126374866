// Timed runs as Chrome trace events: opens in Perfetto and in chrome://tracing.
#pragma once

#include <string>

#include "engine/bound/profile.hpp"

namespace harmonics::cli {

// One complete event a step of the plan, and one a part of it where it has several, each on the thread that ran it.
std::string trace_json(const Profile& profile);

}  // namespace harmonics::cli
