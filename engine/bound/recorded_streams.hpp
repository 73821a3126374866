// Metadata of a weights file about the streams its graph was trained on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/flow/lowering.hpp"

namespace harmonics::engine {

// "harmonics.graph" (text), "harmonics.name", "harmonics.streams" (JSON: dtype, sample, positions, classes, symbols,
// scale).
std::map<std::string, std::string> record_streams(const Graph& graph, const std::map<int, StreamType>& types);
// Returns streams of producers that this graph also has. Absent or foreign metadata gives none; broken metadata
// throws ErrorKind::Weights.
std::map<int, StreamType> read_recorded_streams(const Graph& graph, const std::map<std::string, std::string>& metadata,
                                                const std::string& file);
// Whether a different shape restarts the weights or is refused.
enum class OtherShape { begins_anew, refused };
// Checks that a bound stream matches the one the weights were trained on: same sample shape, same symbols, numbers of
// the same scale. Throws ErrorKind::Weights for a mismatch. Returns other differences, for people.
std::vector<std::string> check_recorded(const Graph& graph, const std::map<int, StreamType>& recorded,
                                        const std::map<int, StreamType>& bound, const std::string& file,
                                        OtherShape other = OtherShape::refused);

}  // namespace harmonics::engine
