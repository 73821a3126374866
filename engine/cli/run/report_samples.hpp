// The samples of a report with their predictions: images, text, classes or numbers.
#pragma once

#include <string>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine::cli {

// Reads samples of the test data, else of the validation data, else of the training data, and runs the graph on them. A
// text model also generates a text. Returns "" if there is nothing to show. If data cannot be read, returns the error
// as text.
std::string samples_html(BoundGraph& graph, const RunSettings& settings);

}  // namespace harmonics::engine::cli
