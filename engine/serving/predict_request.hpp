// Conversion of request bytes to inputs, and of predictions to bytes. Independent of sockets and threads.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/flow/layer_change.hpp"
#include "engine/serving/predictor.hpp"

namespace harmonics::engine {

struct RequestTarget {
  std::string path;
  std::map<std::string, std::string> query;
};
// Splits "/v1/log?after=3" into path and query, and decodes %XX. Returns false if the target is malformed.
bool parse_target(std::string_view target, RequestTarget& into);

struct PredictInputs {
  uint64_t samples = 0;
  std::vector<std::vector<std::byte>> bytes;  // by port
};

// Parses {"inputs": {"x": [...]}}. The first axis is the sample; each sample is nested according to its shape, or flat.
// Throws ErrorKind::Usage for invalid input.
PredictInputs inputs_from_json(std::string_view text, const ModelPorts& ports);
// Reads a safetensors file with one tensor per input.
PredictInputs inputs_from_tensors(std::string_view bytes, const ModelPorts& ports);
// Returns a safetensors file with one tensor per output, and "step" and "cycle" in its metadata.
std::string tensors_text(const Prediction& prediction, const ModelPorts& ports);

// A message of POST /v1/control, or a line of the control socket.
struct ControlRequest {
  enum class Do { status, pause, resume, step, checkpoint, learning_rate, layer, undo, stop, events, get };
  Do what = Do::status;
  std::string word;
  int64_t count = 1;
  std::optional<double> value;
  std::string path;                     // of Do::get
  std::string layer;                    // of Do::layer
  std::vector<ArgumentText> arguments;  // of Do::layer
};
ControlRequest control_from_json(std::string_view text);

}  // namespace harmonics::engine
