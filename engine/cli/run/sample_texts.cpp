#include "engine/cli/run/sample_texts.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/flow/model_call.hpp"
#include "engine/language/continuation.hpp"

namespace harmonics::engine::cli {

namespace {

struct ModelInFlow {
  std::shared_ptr<const LayerModel> layer;
  std::string prefix;  // prefix of its parameters' names
};

ModelInFlow model_in(const Graph& graph) {
  for (const GraphEdge& edge : graph.edges)
    for (size_t i = 0; i < edge.calls.size(); ++i)
      if (edge.calls[i].model) return {edge.calls[i].model->open(graph, edge.calls[i]), parameter_prefix(edge, i)};
  throw Error(ErrorKind::Usage, "the flow has no model that continues a text");
}

// Returns the model with the parameters of the flow.
Model model_over(ParameterStore& store, const ModelInFlow& in) {
  Model model = in.layer->model;
  if (!model.find("decode") || !model.find("prefill"))
    throw Error(ErrorKind::Usage, fmt::format("'{}' does not continue texts", model.name));
  model.parameters = std::make_shared<ParameterStore>();
  for (const auto& [name, parameter] : in.layer->parameters)
    if (StoredTensor* const stored = store.find(in.prefix + "." + name)) model.parameters->borrow(name, *stored);
  return model;
}

}  // namespace

std::vector<SampledText> sample_texts(BoundGraph& graph, const SampleSettings& settings, const RunSettings& run,
                                      uint64_t seed) {
  const Model model = model_over(graph.store(), model_in(graph.graph()));
  CompileOptions compile;
  compile.device = run.device;
  compile.precision = run.precision;
  compile.registry = &graph.registry();
  Decoder decoder(model, graph.executor(run.threads), compile);
  std::vector<SampledText> texts;
  for (const std::string& prompt : settings.prompts) {
    ContinuationSettings how;
    how.tokens = settings.tokens;
    how.temperature = settings.temperature;
    how.seed = seed + texts.size();
    how.ends = answer_ends(*settings.tokenizer);
    const auto length = static_cast<int64_t>(settings.tokenizer->encode(prompt).size()) + settings.tokens + 1;
    Session session(decoder, model.context > 0 ? std::min(length, model.context) : length);
    texts.push_back({prompt, ""});
    continue_text(session, *settings.tokenizer, prompt, how,
                  [&](const std::string& more) { texts.back().text += more; });
  }
  return texts;
}

}  // namespace harmonics::engine::cli
