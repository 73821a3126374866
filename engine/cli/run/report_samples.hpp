// The part of a report that shows samples with their predictions: pictures, text, classes or numbers.
#pragma once

#include <string>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine::cli {

// Reads samples of the test data, else of the validation, else of the training data, and runs the graph on them. A text
// model also writes a text. Returns "" if there is nothing to show; data that cannot be read is said in the result.
std::string samples_html(BoundGraph& graph, const RunSettings& settings);

}  // namespace harmonics::engine::cli
