// What a weights file says about the streams its graph learned from, kept in the file's metadata.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/flow/lowering.hpp"

namespace harmonics {

// "harmonics.graph" (text), "harmonics.name", "harmonics.streams" (JSON: dtype, sample, positions, classes, symbols,
// scale).
std::map<std::string, std::string> record_streams(const Graph& graph, const std::map<int, StreamType>& types);
// Streams of producers this graph also has; absent or foreign metadata gives none, broken metadata is
// ErrorKind::Weights.
std::map<int, StreamType> read_recorded_streams(const Graph& graph, const std::map<std::string, std::string>& metadata,
                                                const std::string& file);
// Does a shape that differs make the weights begin anew, or can they not be used?
enum class OtherShape { begins_anew, refused };
// A bound stream must deliver what the weights learned from: same sample shape, same symbols, numbers of the same
// scale; ErrorKind::Weights says what does not. What differs otherwise is told, for people.
std::vector<std::string> check_recorded(const Graph& graph, const std::map<int, StreamType>& recorded,
                                        const std::map<int, StreamType>& bound, const std::string& file,
                                        OtherShape other = OtherShape::refused);

}  // namespace harmonics
