// Table of the routes of a run's HTTP API.
#include "engine/serving/route_table.hpp"
#include "engine/serving/service.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kName = "{name}";
constexpr const char *kJson = "application/json", *kTensors = "application/x-safetensors",
                     *kSample = R"({"x": [1, 2], "y": 0})";
using In = RouteParameter::In;

const std::vector<RouteContent> kPage = {{"text/html", nullptr}}, kSampleFormats = {{kJson, nullptr},
                                                                                    {"application/x-ndjson", nullptr},
                                                                                    {"text/csv", nullptr},
                                                                                    {"application/msgpack", nullptr},
                                                                                    {"application/x-npy", nullptr}};

}  // namespace

const Service::Route Service::kRoutes[] = {
    {{.method = "POST",
      .path = "/v1/predict",
      .access = RouteAccess::reads,
      .summary = "Predict outputs from inputs",
      .text = "The first axis of each input counts samples. A sample is nested like its shape, or flat. With "
              "safetensors, each input is a tensor of the file.",
      .body = {{kJson, "predict_request"}, {kTensors, nullptr}},
      .example = R"({"inputs": {"x": [[0.1, 0.2], [0.3, 0.4]]}})",
      .reply = {{kJson, "prediction"}, {kTensors, nullptr}}},
     &Service::predict},
    {{.method = "GET",
      .path = "/v1/model",
      .access = RouteAccess::reads,
      .summary = "Inputs and outputs of the model",
      .text = "Names, shapes and element types.",
      .reply = {{kJson, "model"}}},
     &Service::model},
    {{.method = "GET",
      .path = "/v1/status",
      .access = RouteAccess::reads,
      .summary = "State of the run",
      .text = "Progress, metrics, streams and health.",
      .reply = {{kJson, "status"}}},
     &Service::reply_status},
    {{.method = "GET",
      .path = "/v1/graph",
      .access = RouteAccess::reads,
      .summary = "The flow as nodes and edges",
      .text = "Shapes are null before the first sample.",
      .reply = {{kJson, "graph"}}},
     &Service::reply_graph},
    {{.method = "GET",
      .path = "/v1/history",
      .access = RouteAccess::reads,
      .summary = "Curves of the run",
      .text = "At most 512 points over the whole run.",
      .reply = {{kJson, "history"}}},
     &Service::history},
    {{.method = "GET",
      .path = "/v1/log",
      .access = RouteAccess::reads,
      .summary = "Lines of the log",
      .text = "Lines after a given number, among the last 256.",
      .parameters = {{"after", In::query, "integer", "number of the last known line"}},
      .example = "?after=0",
      .reply = {{kJson, "log_lines"}}},
     &Service::log},
    {{.method = "GET",
      .path = "/v1/layers",
      .access = RouteAccess::reads,
      .summary = "Weights and activations of the layers",
      .text = "Computed from a snapshot, at most once a second.",
      .reply = {{kJson, "layers"}}},
     &Service::reply_layers},
    {{.method = "GET",
      .path = "/v1/tap",
      .access = RouteAccess::reads,
      .summary = "Samples that pass a producer or leave a layer",
      .text = "The first samples of a recent batch. At most ten replies per second are computed.",
      .parameters = {{"edge", In::query, "string", "name of the producer or layer", true},
                     {"samples", In::query, "integer", "number of samples, 1 to 32"}},
      .example = "?edge=x&samples=1",
      .reply = {{kJson, "passing_samples"}}},
     &Service::tap},
    {{.method = "GET",
      .path = "/v1/events",
      .access = RouteAccess::reads,
      .summary = "Events over a WebSocket",
      .text = "Open it as ws://HOST/v1/events; each message is one event. Requests without an upgrade get status 426.",
      .parameters = {{"every", In::query, "number", "seconds between two status events, 0.05 to 60"},
                     {"layers", In::query, "boolean", "also send the layers every second"}},
      .status = 101,
      .reply = {{kJson, "event"}}},
     &Service::events},
    {{.method = "POST",
      .path = "/v1/samples",
      .access = RouteAccess::changes,
      .summary = "Samples for the only producer of http:",
      .text = "JSON, JSON lines, CSV, MessagePack or a NumPy array. 202: the run still waits for its other streams.",
      .body = kSampleFormats,
      .example = kSample,
      .reply = {{kJson, "received_samples"}}},
     &Service::samples},
    {{.method = "POST",
      .path = "/v1/samples/{name}",
      .access = RouteAccess::changes,
      .summary = "Samples for the producer of http:NAME",
      .text = "As /v1/samples.",
      .parameters = {{"name", In::path, "string", "the name after http: in the address of the producer", true}},
      .body = kSampleFormats,
      .example = kSample,
      .reply = {{kJson, "received_samples"}}},
     &Service::samples},
    {{.method = "POST",
      .path = "/v1/control",
      .access = RouteAccess::changes,
      .summary = "Pause, resume, step, checkpoint, learning rate, arguments of layers, stop",
      .text = "Replies after the request is carried out. 409: not possible now.",
      .body = {{kJson, "control"}},
      .example = R"({"do": "status"})",
      .reply = {{kJson, "control_reply"}}},
     &Service::change},
    {{.method = "GET",
      .path = "/metrics",
      .access = RouteAccess::reads,
      .summary = "Metrics for Prometheus",
      .text = "Text format 0.0.4.",
      .reply = {{"text/plain", nullptr}}},
     &Service::metrics},
    {{.method = "GET",
      .path = "/healthz",
      .access = RouteAccess::open,
      .summary = "Health of the run and its streams",
      .text = "503 if a stream has failed.",
      .reply = {{kJson, "health"}}},
     &Service::health},
    {{.method = "GET",
      .path = "/openapi.json",
      .access = RouteAccess::open,
      .summary = "This description of the API",
      .text = "OpenAPI 3.1.",
      .reply = {{kJson, nullptr}}},
     &Service::describe},
    {{.method = "GET",
      .path = "/docs",
      .access = RouteAccess::open,
      .summary = "This description as a page",
      .text = "Lists the routes and lets you try them.",
      .reply = kPage},
     &Service::file},
    {{.method = "GET",
      .path = "/",
      .access = RouteAccess::open,
      .summary = "The dashboard of run --ui",
      .text = "404 without --ui.",
      .reply = kPage},
     &Service::file},
};

std::span<const Service::Route> Service::table() { return kRoutes; }

bool ApiRoute::matches(std::string_view target) const {
  const std::string_view pattern = path;
  if (!pattern.ends_with(kName)) return target == pattern;
  return target.starts_with(pattern.substr(0, pattern.size() - kName.size()));
}

std::vector<const ApiRoute*> Service::routes() { return listed_routes(table()); }

const std::string& Service::paths() {
  static const std::string text = listed_paths(routes());
  return text;
}

}  // namespace harmonics::engine
