// What a run says, as JSON: docs/live.md describes it, docs/schema has the schemas.
#pragma once

#include <optional>
#include <string>

#include <boost/json/object.hpp>

#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/flow/graph.hpp"
#include "engine/flow/lowering.hpp"
#include "engine/serving/answer_times.hpp"

namespace harmonics {

struct Prediction;
struct ModelPorts;

// One line without its end. What is no UTF-8 in it, of names and messages of others, becomes '?': a browser would hang
// up.
std::string json_line(const boost::json::object& o);
// Null where a number is not finite.
boost::json::value json_number(double v);
boost::json::object json_of(const WeightsVersion& version);
boost::json::object json_of(const RunStatus& status, const Snapshot* newest, const AnswerTimes::Report* serving);
boost::json::object json_of(const RunHistory& history);
boost::json::object json_of(const LogLine& line);
boost::json::object json_of(const std::vector<LogLine>& lines);
boost::json::object json_of(const ModelPorts& ports);
// The answer to POST /v1/predict.
std::string prediction_text(const Prediction& prediction, const ModelPorts& ports);
// The flow as pages draw it. `weights`: how many numbers the arrows into a layer learn.
boost::json::object graph_json(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                               const ParameterStore& weights);
boost::json::object error_json(const Error& error);
// Prometheus' text.
std::string metrics_text(const RunStatus& status, const Snapshot* newest, const AnswerTimes::Report* serving);

}  // namespace harmonics
