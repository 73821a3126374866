// Records the streams on which a graph was trained in the metadata of its weights file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/flow/lowering.hpp"

namespace harmonics::engine {

// Returns the metadata "harmonics.format", "harmonics.graph" (text), "harmonics.name" and "harmonics.streams" (JSON:
// dtype, sample, positions, classes, symbols, scale).
std::map<std::string, std::string> record_streams(const Graph& graph, const std::map<int, StreamType>& types);
// Returns the recorded streams of producers that this graph also has; none if the metadata has no streams. Throws
// ErrorKind::Weights for malformed metadata.
std::map<int, StreamType> read_recorded_streams(const Graph& graph, const std::map<std::string, std::string>& metadata,
                                                const std::string& file);
// Whether a different number of elements in a sample restarts the weights or throws.
enum class OtherShape { begins_anew, refused };
// Checks that the bound streams match those that the weights were trained on: sample shape, symbols, scale of numbers.
// Throws ErrorKind::Weights for a mismatch. Returns other differences as messages.
std::vector<std::string> check_recorded(const Graph& graph, const std::map<int, StreamType>& recorded,
                                        const std::map<int, StreamType>& bound, const std::string& file,
                                        OtherShape other = OtherShape::refused);

}  // namespace harmonics::engine
