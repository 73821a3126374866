// Any input is a request or an error that explains it: prediction bodies (JSON and tensors, for models of several
// shapes), control messages, targets. The first byte selects.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/serving/predict_request.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

ModelPorts ports(int which) {
  ModelPorts p;
  p.graph = "g";
  if (which == 0)
    p.inputs = {{"x", {DType::F32, {2}}, 0}};
  else if (which == 1)
    p.inputs = {{"x", {DType::U8, {2, 2}}, 0}, {"y", {DType::I64, {}}, 10}};
  else
    p.inputs = {{"x", {DType::F16, {3}}, 0}, {"b", {DType::Bool, {1}}, 0}};
  return p;
}

template <typename Read>
void read_inputs(const ModelPorts& model, Read&& read) {
  try {
    const PredictInputs inputs = read();
    require(inputs.samples >= 1 && inputs.samples <= Predictor::kMostSamples, "a number of samples that may not be");
    require(inputs.bytes.size() == model.inputs.size(), "not as many inputs as the model has");
    for (size_t i = 0; i < inputs.bytes.size(); ++i)
      require(inputs.bytes[i].size() == inputs.samples * model.inputs[i].bytes(), "an input of another size");
  } catch (const Error& e) {
    require(e.kind() == ErrorKind::Usage && *e.what() && !e.notes().empty(), "a refusal that does not say what to do");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const int what = data[0] % 8;
  if (what < 3) {
    const ModelPorts model = ports(what);
    read_inputs(model, [&] { return inputs_from_json(text, model); });
  } else if (what < 6) {
    const ModelPorts model = ports(what - 3);
    read_inputs(model, [&] { return inputs_from_tensors(text, model); });
  } else if (what == 6) {
    try {
      const ControlRequest request = control_from_json(text);
      require(!request.word.empty(), "nothing to do");
    } catch (const Error& e) {
      require(e.kind() == ErrorKind::Usage && *e.what() && !e.notes().empty(),
              "a refusal that does not say what to do");
    }
  } else {
    RequestTarget target;
    if (parse_target(text, target)) require(target.path.starts_with("/"), "a path from nowhere");
  }
  return 0;
}
