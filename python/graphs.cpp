// HarmonicGraph and Trainer.
#include "python/binding.hpp"

namespace harmonics::python {

namespace {

// A graph, or that of a trainer, which then belongs to it.
class Graph {
 public:
  explicit Graph(std::shared_ptr<HarmonicGraph> graph) : graph_(std::move(graph)) {}
  // Threads of the graph may wait for the GIL until it is destroyed.
  ~Graph() {
    const py::gil_scoped_release unlocked;
    graph_.reset();
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Calls `body` with the graph, without the GIL. Refuses a second call at the same time.
  template <typename Body>
  auto alone(Body&& body) {
    const py::gil_scoped_release unlocked;
    const std::unique_lock<std::recursive_mutex> lock(used_, std::try_to_lock);
    expect(lock.owns_lock());
    return body(*graph_);
  }
  // Likewise for calls that are allowed at any time: infer(), configure_layer(), stop_fit().
  template <typename Body>
  auto beside(Body&& body) {
    const py::gil_scoped_release unlocked;
    return body(*graph_);
  }
  FitReport fit(FitOptions options, py::object progress) {
    const std::unique_lock<std::recursive_mutex> lock(used_, std::try_to_lock);
    expect(lock.owns_lock());
    watch_.set_callback(std::move(progress));
    options.progress = [this](const FitProgress& p) { return watch_.proceed(p); };
    return watched(watch_, *graph_, [&] { return graph_->fit(options); });
  }
  FitReport fit(Watch& watch, const std::function<FitReport()>& body) {
    const std::unique_lock<std::recursive_mutex> lock(used_, std::try_to_lock);
    expect(lock.owns_lock());
    return watched(watch, *graph_, body);
  }

 private:
  static void expect(bool free) {
    if (free) return;
    throw Error(ErrorKind::Usage, "another call, such as fit(), uses the graph")
        .note("meanwhile only infer(), configure_layer() and stop_fit() may be called");
  }

  std::shared_ptr<HarmonicGraph> graph_;
  std::recursive_mutex used_;
  Watch watch_;
};

std::shared_ptr<Graph> made(HarmonicGraph graph) {
  return std::make_shared<Graph>(std::make_shared<HarmonicGraph>(std::move(graph)));
}

std::string quoted(const std::string& name) { return "'" + name + "'"; }

enum class Purpose { Training, Test, Validation };

template <Purpose purpose>
void bind_producer(Graph& graph, const std::string& name, const py::object& source, uint32_t shuffle, uint64_t seed) {
  const auto to = [&](HarmonicGraph& g, auto stream) {
    if constexpr (purpose == Purpose::Training) g.bindProducer(name, stream);
    if constexpr (purpose == Purpose::Test) g.bindTest(name, stream);
    if constexpr (purpose == Purpose::Validation) g.bindValidation(name, stream);
  };
  if (const std::optional<std::string> address = address_of(source)) {
    if (shuffle) throw Error(ErrorKind::Usage, "shuffle is an option of the address: " + *address + "?shuffle=N");
    return graph.alone([&](HarmonicGraph& g) { to(g, *address); });
  }
  const std::shared_ptr<Producer> producer = producer_of(source, quoted(name), shuffle, seed);
  graph.alone([&](HarmonicGraph& g) { to(g, producer); });
}

void bind_consumer(Graph& graph, const std::string& name, const py::object& target) {
  if (const std::optional<std::string> address = address_of(target))
    return graph.alone([&](HarmonicGraph& g) { g.bindConsumer(name, *address); });
  const std::shared_ptr<Consumer> consumer = consumer_of(target, "consumer " + quoted(name));
  graph.alone([&](HarmonicGraph& g) { g.bindConsumer(name, consumer); });
}

// Adds the conversion to the error of an input with NumPy's default element types.
[[noreturn]] void rethrow_with_conversion(Error error, const std::vector<HTensor>& inputs) {
  if (error.kind() == ErrorKind::Shape || error.kind() == ErrorKind::Type)
    for (const HTensor& input : inputs) {
      if (input.dtype() != DType::F64 && input.dtype() != DType::I64) continue;
      error.note(std::string("NumPy's default type is ") + (input.dtype() == DType::F64 ? "f64" : "i64") +
                 "; convert the array: x.astype('" + (input.dtype() == DType::F64 ? "float32" : "int32") + "')");
      break;
    }
  throw error;
}

using Named = std::map<std::string, HTensor>;

std::vector<HTensor> values_of(const Named& inputs) {
  std::vector<HTensor> all;
  for (const auto& [name, value] : inputs) all.push_back(value);
  return all;
}

Named infer_named(Graph& graph, const Named& inputs) {
  try {
    return graph.beside([&](HarmonicGraph& g) { return g.infer(inputs); });
  } catch (const Error& error) {
    rethrow_with_conversion(error, values_of(inputs));
  }
}

HTensor infer_one(Graph& graph, const HTensor& input) {
  try {
    return graph.beside([&](HarmonicGraph& g) { return g.infer(input); });
  } catch (const Error& error) {
    rethrow_with_conversion(error, {input});
  }
}

void add_inputs(Named& inputs, const py::dict& given) {
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    inputs[name] = tensor_of(py::reinterpret_borrow<py::object>(value), quoted(name));
  }
}

py::object infer(Graph& graph, const py::object& input, const py::kwargs& named) {
  if (!input.is_none() && !py::isinstance<py::dict>(input)) {
    if (!named.empty()) throw py::type_error("inputs are given either alone or by name");
    return py::cast(infer_one(graph, tensor_of(input, "the input")));
  }
  Named inputs;
  if (!input.is_none()) add_inputs(inputs, input.cast<py::dict>());
  add_inputs(inputs, named);
  return py::cast(infer_named(graph, inputs));
}

Backend backend_named(const std::string& name) {
  if (name == "auto") return Backend::Auto;
  if (name == "cpu") return Backend::CPU;
  if (name == "gpu") return Backend::GPU;
  if (name == "fpga") return Backend::FPGA;
  throw Error(ErrorKind::Name, "there is no kind of hardware '" + name + "'").note("kinds: auto, cpu, gpu, fpga");
}

std::string text_of_argument(const py::handle& value) {
  if (value.ptr() == Py_True) return "true";
  if (value.ptr() == Py_False) return "false";
  return py::str(value);
}

std::map<std::string, std::string> configure_layer(Graph& graph, const std::string& layer, const py::dict& arguments) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : arguments) texts[key.cast<std::string>()] = text_of_argument(value);
  return graph.beside([&](HarmonicGraph& g) { return g.configure_layer(layer, texts); });
}

py::bytes data_of(Graph& graph) {
  const std::string bytes =
      graph.alone([](HarmonicGraph& g) { return std::string(static_cast<const char*>(g.data()), g.size()); });
  return py::bytes(bytes);
}

// Takes "progress" out of the settings.
py::object progress_in(py::dict& settings) {
  return settings.contains("progress") ? py::object(settings.attr("pop")("progress")) : py::object(py::none());
}

FitReport fit(Graph& graph, const py::kwargs& given) {
  py::dict settings = given.attr("copy")();
  py::object progress = progress_in(settings);
  FitOptions options;
  set_options(options, settings);
  return graph.fit(std::move(options), std::move(progress));
}

std::string path_of(const py::object& path) {
  const std::optional<std::string> text = address_of(path);
  if (!text) throw py::type_error("path is a text or a path");
  return *text;
}

void bind_graph(py::module_& m) {
  py::class_<Graph, std::shared_ptr<Graph>>(
      m, "HarmonicGraph",
      "A flow with its streams and weights. One thread at a time may use it, except for infer(), configure_layer() and "
      "stop_fit().")
      .def("bind_producer", bind_producer<Purpose::Training>, py::arg("name"), py::arg("source"),
           py::arg("shuffle") = 0, py::arg("seed") = 0,
           "source: an address, an array whose first axis numbers the samples, or an iterable of samples. shuffle: "
           "samples per shuffled block.")
      .def("bind_test", bind_producer<Purpose::Test>, py::arg("name"), py::arg("source"), py::arg("shuffle") = 0,
           py::arg("seed") = 0)
      .def("bind_validation", bind_producer<Purpose::Validation>, py::arg("name"), py::arg("source"),
           py::arg("shuffle") = 0, py::arg("seed") = 0, "Binds a stream that is evaluated after every epoch.")
      .def("bind_consumer", bind_consumer, py::arg("name"), py::arg("target"),
           "target: an address, or a callable that receives a Tensor per sample.")
      .def("fit", fit, "Trains, with the settings of `harmonics run`. progress: a callable; False stops the run.")
      .def("test", [](Graph& graph) { return graph.alone([](HarmonicGraph& g) { return g.test(); }); })
      .def("infer", infer, py::arg("input") = py::none(), py::pos_only(),
           "Computes results for one sample, or for several along a new first axis: infer(x) returns the only result, "
           "infer(a=x, b=y) or infer({'a': x}) all by name.")
      .def("predict", infer, py::arg("input") = py::none(), py::pos_only(), "The same as infer().")
      .def(
          "save",
          [](Graph& graph, const py::object& path) {
            const std::string file = path_of(path);
            graph.alone([&](HarmonicGraph& g) { g.save(file); });
          },
          py::arg("path"), "Writes weights and the text of the flow as safetensors.")
      .def(
          "load",
          [](Graph& graph, const py::object& path) {
            const std::string file = path_of(path);
            graph.alone([&](HarmonicGraph& g) { g.load(file); });
          },
          py::arg("path"), "Replaces the weights by those of a safetensors file or checkpoint.")
      .def("data", data_of, "Returns the bytes that save() writes.")
      .def("weights", [](Graph& graph) { return graph.alone([](HarmonicGraph& g) { return g.weights(); }); })
      .def(
          "weight",
          [](Graph& graph, const std::string& name) {
            return graph.alone([&](HarmonicGraph& g) { return g.weight(name); });
          },
          py::arg("name"), "Returns a copy of a weight.")
      .def("layers", [](Graph& graph) { return graph.alone([](HarmonicGraph& g) { return g.layers(); }); })
      .def("configure_layer", configure_layer, py::arg("layer"), py::arg("arguments"),
           "Sets arguments of the functions on arrows into a layer; returns the former ones.")
      .def(
          "stop_fit", [](Graph& graph) { graph.beside([](HarmonicGraph& g) { g.stop_fit(); }); },
          "Ends a running fit() after its current step, from any thread.")
      .def(
          "deploy",
          [](Graph& graph, const std::string& backend, bool fallback) {
            const DeploymentDescriptor descriptor{backend_named(backend), fallback, {}};
            graph.alone([&](HarmonicGraph& g) { g.deploy(descriptor); });
          },
          py::arg("backend"), py::arg("fallback") = true);
  m.def(
      "parse_hmx",
      [](const py::object& path, const std::string& name) {
        const std::string file = path_of(path);
        return made(without_gil([&] { return parse_hmx(file, name); }));
      },
      py::arg("path"), py::arg("name") = "", "Creates a graph from a file. name: one of several harmonics.");
  m.def(
      "parse_hmx_text",
      [](const std::string& text, const std::string& name) {
        return made(without_gil([&] { return parse_hmx_text(text, name); }));
      },
      py::arg("text"), py::arg("name") = "");
  m.def(
      "parse_blob",
      [](const py::bytes& data) {
        const auto bytes = data.cast<std::string>();
        return made(without_gil([&] { return parse_blob(bytes.data(), bytes.size()); }));
      },
      py::arg("data"), "Creates a graph from the bytes of data().");
  m.def(
      "load_plugin",
      [](const py::object& path) {
        const std::string file = path_of(path);
        without_gil([&] { load_plugin(file); });
      },
      py::arg("path"), "Loads a plugin for all graphs that are created later.");
}

// What a trainer is made of; streams are taken when it is made.
struct Arguments {
  py::object tokens, next, progress;
  FitOptions fit;
  std::string lora;
};

class PythonTrainer {
 public:
  PythonTrainer(const ModelConfig& config, const Arguments& given, bool modular) : watch_(new Watch) {
    TrainingArguments arguments;
    arguments.fit = given.fit;
    arguments.lora = given.lora;
    take(given.tokens, "'tokens'", arguments.tokens, arguments.tokens_address);
    take(given.next, "'next'", arguments.next, arguments.next_address);
    watch_->set_callback(given.progress);
    arguments.fit.progress = [watch = watch_](const FitProgress& p) { return watch->proceed(p); };
    trainer_ = without_gil([&] { return std::make_shared<Trainer>(config, arguments, modular); });
    graph_ = std::make_shared<Graph>(std::shared_ptr<HarmonicGraph>(trainer_, &trainer_->graph()));
  }
  ~PythonTrainer() {
    const py::gil_scoped_release unlocked;
    trainer_.reset();
  }
  PythonTrainer(const PythonTrainer&) = delete;
  PythonTrainer& operator=(const PythonTrainer&) = delete;

  FitReport train() {
    return graph_->fit(*watch_, [this] { return trainer_->train(); });
  }
  HTensor scores(const py::object& tokens) {
    const HTensor given = tensor_of(tokens, "'tokens'");
    try {
      return graph_->beside([&](HarmonicGraph&) { return trainer_->scores(given); });
    } catch (const Error& error) {
      rethrow_with_conversion(error, {given});
    }
  }
  const std::shared_ptr<Graph>& graph() const { return graph_; }

 private:
  static void take(const py::object& source, const std::string& what, std::shared_ptr<Producer>& producer,
                   std::string& address) {
    if (source.is_none()) return;
    if (const std::optional<std::string> text = address_of(source))
      address = *text;
    else
      producer = producer_of(source, what, 0, 0);
  }

  std::shared_ptr<Watch> watch_;
  std::shared_ptr<Trainer> trainer_;
  std::shared_ptr<Graph> graph_;
};

Arguments arguments_of(const py::object& tokens, const py::object& next, const std::string& lora,
                       const py::kwargs& given) {
  Arguments arguments{tokens, next, py::none(), {}, lora};
  py::dict settings = given.attr("copy")();
  arguments.progress = progress_in(settings);
  set_options(arguments.fit, settings);
  return arguments;
}

void bind_trainer(py::module_& m) {
  py::class_<Arguments>(m, "TrainingArguments",
                        "Streams and settings of a Trainer. tokens, next: addresses, arrays or iterables of int32 "
                        "samples of one length; next: the token after each of them.")
      .def(py::init(&arguments_of), py::arg("tokens") = py::none(), py::arg("next") = py::none(), py::arg("lora") = "");
  py::class_<PythonTrainer>(m, "Trainer", "Trains a registered transformer.")
      .def(py::init<const ModelConfig&, const Arguments&, bool>(), py::arg("model_config"), py::arg("training_args"),
           py::arg("use_modular_blocks") = true)
      .def("train", &PythonTrainer::train, "Trains; another call continues from the current weights.")
      .def("scores", &PythonTrainer::scores, py::arg("tokens"),
           "Returns the scores of the next token at each position.")
      .def(
          "save",
          [](const PythonTrainer& trainer, const py::object& path) {
            const std::string file = path_of(path);
            trainer.graph()->alone([&](HarmonicGraph& g) { g.save(file); });
          },
          py::arg("path"))
      .def_property_readonly("graph", &PythonTrainer::graph);
}

}  // namespace

void bind_graphs(py::module_& m) {
  bind_graph(m);
  bind_trainer(m);
}

}  // namespace harmonics::python
