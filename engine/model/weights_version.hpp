// The training step that weights belong to, and its place in the metadata of a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace harmonics::engine {

// The step of a cycle that weights belong to.
struct WeightsVersion {
  int cycle = 0;  // from 0
  int64_t step = 0;
  bool operator==(const WeightsVersion&) const = default;
};

// Adds "harmonics.cycle" (from 1) and "harmonics.step".
void record_version(const WeightsVersion& version, std::map<std::string, std::string>& metadata);
// Returns nothing if the metadata name no step, as files of other programs and of earlier versions do. Throws
// ErrorKind::Weights if the numbers cannot be read.
std::optional<WeightsVersion> read_version(const std::map<std::string, std::string>& metadata, const std::string& file);

}  // namespace harmonics::engine
