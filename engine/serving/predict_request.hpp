// Requests as bytes to inputs, and predictions to bytes. No sockets, no threads.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serving/predictor.hpp"

namespace harmonics {

struct RequestTarget {
  std::string path;
  std::map<std::string, std::string> query;
};
// "/v1/log?after=3" as path and query, with %XX decoded. False: it cannot be understood.
bool parse_target(std::string_view target, RequestTarget& into);

struct PredictInputs {
  uint64_t samples = 0;
  std::vector<std::vector<std::byte>> bytes;  // by port
};

// {"inputs": {"x": [...]}}: the first axis counts samples, each nested as its shape is, or flat. ErrorKind::Usage says
// what does not fit.
PredictInputs inputs_from_json(std::string_view text, const ModelPorts& ports);
// A safetensors file with a tensor for every input.
PredictInputs inputs_from_tensors(std::string_view bytes, const ModelPorts& ports);
// A safetensors file with a tensor for every output; "step" and "cycle" in its metadata.
std::string tensors_text(const Prediction& prediction, const ModelPorts& ports);

// What POST /v1/control and a line of the control socket say.
struct ControlRequest {
  enum class Do { status, pause, resume, step, checkpoint, learning_rate, stop, events, get };
  Do what = Do::status;
  std::string word;
  int64_t count = 1;
  std::optional<double> value;
  std::string path;  // of get
};
ControlRequest control_from_json(std::string_view text);

}  // namespace harmonics
