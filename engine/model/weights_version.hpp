// The training step of weights, recorded in the metadata of a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace harmonics::engine {

// Cycle and step at which weights were produced.
struct WeightsVersion {
  int cycle = 0;  // from 0
  int64_t step = 0;
  bool operator==(const WeightsVersion&) const = default;
};

// Adds "harmonics.cycle" (counted from 1) and "harmonics.step" to the metadata.
void record_version(const WeightsVersion& version, std::map<std::string, std::string>& metadata);
// Returns nothing if the metadata contain no step, as in files of other programs and older versions. Throws
// ErrorKind::Weights if the numbers are invalid.
std::optional<WeightsVersion> read_version(const std::map<std::string, std::string>& metadata, const std::string& file);

}  // namespace harmonics::engine
