// Transformers with weights: TransformerModel, AttentionCache, BlockExecutor.
#include "python/binding.hpp"

namespace harmonics::python {

namespace {

TransformerOptions options_of(int threads, const std::string& device, const std::string& precision, uint64_t seed) {
  TransformerOptions options;
  options.threads = threads;
  options.device = device;
  options.precision = precision;
  options.seed = seed;
  return options;
}

std::shared_ptr<TransformerModel> opened(const py::object& model, const py::object& weights, int threads,
                                         const std::string& device, const std::string& precision, uint64_t seed) {
  const TransformerOptions options = options_of(threads, device, precision, seed);
  const std::optional<std::string> file = weights.is_none() ? std::string() : address_of(weights);
  if (!file) throw py::type_error("weights is a text or a path");
  if (const std::optional<std::string> path = address_of(model)) {
    if (!file->empty())
      throw Error(ErrorKind::Usage, "weights are given beside the file of a model, which has its own")
          .note("a ModelConfig takes other weights: RuntimeModelRegistry.create_model_config(name)");
    return without_gil([&] { return std::make_shared<TransformerModel>(*path, options); });
  }
  if (!py::isinstance<ModelConfig>(model)) throw py::type_error("model is a ModelConfig, or a text or a path");
  const auto config = model.cast<ModelConfig>();
  return without_gil([&] { return std::make_shared<TransformerModel>(config, *file, options); });
}

void bind_model(py::module_& m) {
  const py::class_<TransformerLayer> layer(m, "TransformerLayer", "The weights of one layer of a model.");
  py::class_<TransformerModel, std::shared_ptr<TransformerModel>>(
      m, "TransformerModel", "A transformer with weights. Any thread may call it. Tokens are arrays of int32.")
      .def(py::init(&opened), py::arg("model"), py::arg("weights") = py::none(), py::arg("threads") = 0,
           py::arg("device") = "", py::arg("precision") = "", py::arg("seed") = 0,
           "model: a ModelConfig, whose weights are a file, a folder or initial values, or the path of a model.")
      .def(
          "forward",
          [](const TransformerModel& model, const py::object& tokens) {
            const HTensor given = tensor_of(tokens, "'tokens'");
            return without_gil([&] { return model.forward(given); });
          },
          py::arg("tokens"), "Returns the scores of the next token at each position.")
      .def(
          "forward_with_cache",
          [](const TransformerModel& model, const py::object& tokens, AttentionCache& cache) {
            const HTensor given = tensor_of(tokens, "'tokens'");
            return without_gil([&] { return model.forward_with_cache(given, cache); });
          },
          py::arg("tokens"), py::arg("cache"), "Likewise for tokens that continue the sequence of the cache.")
      .def(
          "forward_trace",
          [](const TransformerModel& model, const py::object& tokens) {
            const HTensor given = tensor_of(tokens, "'tokens'");
            return without_gil([&] { return model.forward_trace(given); });
          },
          py::arg("tokens"), "Returns the results of all layers and operations by name, with their shapes.")
      .def(
          "block", [](const TransformerModel& model, int64_t layer) { return model.block(layer); }, py::arg("layer"))
      .def(
          "layer", [](const TransformerModel& model, int64_t number) { return model.layer(number); },
          py::arg("number"));
}

}  // namespace

void bind_transformers(py::module_& m) {
  bind_model(m);
  py::class_<AttentionCache>(m, "AttentionCache",
                             "The keys and values of one sequence. One thread at a time may use it.")
      .def(py::init([](const TransformerModel& model) {
             return without_gil([&] { return std::make_unique<AttentionCache>(model); });
           }),
           py::arg("model"))
      .def("__len__", &AttentionCache::length, "The number of tokens of the sequence.")
      .def("keep", &AttentionCache::keep, py::arg("length"), "Truncates the sequence to its first tokens.");
  py::class_<BlockExecutor>(m, "BlockExecutor")
      .def_static(
          "forward",
          [](const BlockSpec& spec, const std::string& recipe, const TransformerLayer& layer,
             const py::object& hidden) {
            const HTensor given = tensor_of(hidden, "'hidden'");
            return without_gil([&] { return BlockExecutor::forward(spec, recipe, layer, given); });
          },
          py::arg("spec"), py::arg("recipe"), py::arg("layer"), py::arg("hidden"),
          "Returns the output of a layer for its input. recipe: precision of products; '': that of the model.");
}

}  // namespace harmonics::python
