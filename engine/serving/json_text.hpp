// JSON texts of a run, described in docs/live.md, with schemas in docs/schema.
#pragma once

#include <optional>
#include <string>

#include <boost/json/object.hpp>

#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/flow/graph.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/serving/answer_times.hpp"

namespace harmonics::engine {

struct Prediction;
struct ModelPorts;

// Returns one line without its newline. Replaces invalid UTF-8 in external names and messages by '?', because browsers
// would close the connection.
std::string json_line(const boost::json::object& o);
// Returns null if the number is not finite.
boost::json::value json_number(double v);
boost::json::object json_of(const WeightsVersion& version);
boost::json::object json_of(const RunStatus& status, const Snapshot* newest, const AnswerTimes::Report* serving);
boost::json::object json_of(const RunHistory& history);
// Returns {"layer", "arguments": [{"name", "before", "after"}]}, with defaults for arguments that the flow leaves out.
boost::json::object json_of(const LayerChange& change);
boost::json::object json_of(const LogLine& line);
boost::json::object json_of(const std::vector<LogLine>& lines);
boost::json::object json_of(const ModelPorts& ports);
// Returns the reply to POST /v1/predict.
std::string prediction_text(const Prediction& prediction, const ModelPorts& ports);
// Returns the flow for drawing. `weights` provides the number of parameters of the arrows into a layer.
boost::json::object graph_json(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                               const ParameterStore& weights);
boost::json::object error_json(const Error& error);
// Returns the metrics in the Prometheus text format.
// `failed`: number of requests that ended with an unexpected exception.
std::string metrics_text(const RunStatus& status, const Snapshot* newest, const AnswerTimes::Report* serving,
                         uint64_t failed);

}  // namespace harmonics::engine
