// Models of .ndsl files by name: RuntimeModelRegistry, RuntimeModelSpec, ModelConfig, BlockSpec.
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "python/binding.hpp"

namespace harmonics::python {

namespace {

std::string represented(const py::handle& object) { return py::repr(object).cast<std::string>(); }

// "num_layers" for "NumLayers", as document names of settings are written in both ways.
std::string snake_case(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isupper(letter) && !out.empty()) out += '_';
    out += static_cast<char>(std::tolower(letter));
  }
  return out;
}

double& setting(ModelConfig& config, const std::string& name) {
  const auto at = config.find(name);
  if (at == config.end()) throw py::key_error(name);
  return at->second;
}

double number_given(const py::handle& value, const std::string& name) {
  if (!PyNumber_Check(value.ptr()) || py::isinstance<py::str>(value))
    throw py::type_error("the setting '" + name + "' is a number, not " + represented(value));
  return py::float_(py::reinterpret_borrow<py::object>(value)).cast<double>();
}

bool same_config(const ModelConfig& a, const ModelConfig& b) {
  using Settings = std::map<std::string, double>;
  return a.model == b.model && static_cast<const Settings&>(a) == static_cast<const Settings&>(b);
}

py::dict dict_of(const ModelConfig& config) {
  py::dict all;
  for (const auto& [name, value] : config) all[py::str(name)] = number_of(value);
  return all;
}

const std::vector<std::string>& block_keys() {
  static const std::vector<std::string> keys = {"variant", "forward_ops", "use_qk_norm", "ln2_on_residual_att"};
  return keys;
}

py::object block_item(const BlockSpec& block, const std::string& key) {
  if (key == "variant") return py::str(block.variant);
  if (key == "forward_ops") return py::cast(block.forward_ops);
  if (key == "use_qk_norm") return py::bool_(block.use_qk_norm);
  if (key == "ln2_on_residual_att") return py::bool_(block.ln2_on_residual_att);
  throw py::key_error(key);
}

py::dict weights_of(const BlockSpec& block) {
  py::dict all;
  for (const auto& [name, shape] : block.weights) all[py::str(name)] = py::tuple(py::cast(shape.vector()));
  return all;
}

BlockSpec block_of(const std::string& variant, std::vector<std::string> ops, bool qk_norm, bool ln2) {
  if (variant != "dense" && variant != "parallel" && variant != "moe")
    throw Error(ErrorKind::Name, "there is no variant '" + variant + "'").note("variants: dense, parallel, moe");
  return {variant, std::move(ops), qk_norm, ln2, {}};
}

BlockSpec block_of(const py::object& spec, int64_t layer) {
  if (py::isinstance<BlockSpec>(spec)) return spec.cast<BlockSpec>();
  if (py::isinstance<RegisteredModel>(spec)) return spec.cast<const RegisteredModel&>().to_block_spec(layer);
  if (py::isinstance<ModelConfig>(spec))
    return RuntimeBlockBuilder::build_from_dsl(spec.cast<const ModelConfig&>(), layer);
  if (!py::isinstance<py::dict>(spec))
    throw py::type_error("dsl_spec is a dict, a BlockSpec, a RuntimeModelSpec or a ModelConfig, not " +
                         represented(py::type::of(spec)));
  const auto given = spec.cast<py::dict>();
  for (const char* key : {"variant", "forward_ops"})
    if (!given.contains(key)) throw py::key_error(key);
  const auto flag = [&](const char* key) { return given.contains(key) && given[key].cast<bool>(); };
  return block_of(given["variant"].cast<std::string>(), given["forward_ops"].cast<std::vector<std::string>>(),
                  flag("use_qk_norm"), flag("ln2_on_residual_att"));
}

bool equal(const BlockSpec& a, const BlockSpec& b) {
  return a.variant == b.variant && a.forward_ops == b.forward_ops && a.use_qk_norm == b.use_qk_norm &&
         a.ln2_on_residual_att == b.ln2_on_residual_att;
}

// Returns the name that a .ndsl file gives its model, else the name of the file. The library validates the file.
std::string name_in(const std::string& file) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("name:", 0) != 0) continue;
    std::string name = line.substr(5, line.find(" #", 5) - 5);
    name.erase(0, name.find_first_not_of(" \t\"'"));
    name.erase(name.find_last_not_of(" \t\r\"'") + 1);
    if (!name.empty()) return name;
  }
  return std::filesystem::path(file).stem().string();
}

RegisteredModel from_file(const py::object& path) {
  const std::string file = address_of(path).value_or(std::string());
  if (file.empty()) throw py::type_error("filepath is a text or a path");
  return without_gil([&] {
    const std::string name = name_in(file);
    RuntimeModelRegistry::register_model(name, file);
    return RuntimeModelRegistry::get(name);
  });
}

void bind_config(py::module_& m) {
  py::class_<ModelConfig>(
      m, "ModelConfig",
      "Numeric settings of a registered model, as a mapping and as attributes: config['num_layers'] "
      "is config.num_layers and config.NumLayers. Booleans are 0 and 1.")
      .def_readwrite("model", &ModelConfig::model, "The registered name of its model.")
      .def("__getitem__", [](ModelConfig& c, const std::string& name) { return number_of(setting(c, name)); })
      .def("__setitem__", [](ModelConfig& c, const std::string& name,
                             const py::handle& value) { c[name] = number_given(value, name); })
      .def("__contains__", [](const ModelConfig& c, const std::string& name) { return c.count(name) != 0; })
      .def("__len__", [](const ModelConfig& c) { return c.size(); })
      .def("__iter__", [](const ModelConfig& c) { return py::iter(dict_of(c)); })
      .def("keys", [](const ModelConfig& c) { return dict_of(c).attr("keys")(); })
      .def("values", [](const ModelConfig& c) { return dict_of(c).attr("values")(); })
      .def("items", [](const ModelConfig& c) { return dict_of(c).attr("items")(); })
      .def(
          "get",
          [](const ModelConfig& c, const std::string& name, const py::object& otherwise) {
            const auto at = c.find(name);
            return at == c.end() ? otherwise : number_of(at->second);
          },
          py::arg("name"), py::arg("default") = py::none())
      .def("__getattr__",
           [](ModelConfig& c, const std::string& name) {
             const auto at = c.find(snake_case(name));
             if (at == c.end()) throw py::attribute_error("'" + c.model + "' has no setting '" + name + "'");
             return number_of(at->second);
           })
      .def("__setattr__",
           [](ModelConfig& c, const std::string& name, const py::object& value) {
             if (name == "model")
               c.model = value.cast<std::string>();
             else if (c.count(snake_case(name)))
               c[snake_case(name)] = number_given(value, name);
             else
               throw py::attribute_error("'" + c.model + "' has no setting '" + name + "'");
           })
      .def("__eq__", same_config, py::is_operator())
      .def("__repr__", [](const ModelConfig& c) {
        return "ModelConfig(" + represented(py::str(c.model)) + ", " + represented(dict_of(c)) + ")";
      });
}

void bind_block(py::module_& m) {
  py::class_<BlockSpec>(m, "BlockSpec",
                        "The operations of a layer. spec['forward_ops'] is spec.forward_ops; dict(spec) has all keys.")
      .def(py::init([](const std::string& variant, std::vector<std::string> ops, bool qk_norm, bool ln2) {
             return block_of(variant, std::move(ops), qk_norm, ln2);
           }),
           py::arg("variant"), py::arg("forward_ops"), py::arg("use_qk_norm") = false,
           py::arg("ln2_on_residual_att") = false)
      .def_readonly("variant", &BlockSpec::variant)
      .def_readonly("forward_ops", &BlockSpec::forward_ops)
      .def_readonly("use_qk_norm", &BlockSpec::use_qk_norm)
      .def_readonly("ln2_on_residual_att", &BlockSpec::ln2_on_residual_att)
      .def_property_readonly("weights", weights_of, "The shapes of the layer's tensors by name.")
      .def("__getitem__", block_item)
      .def("keys", [](const BlockSpec&) { return block_keys(); })
      .def("__iter__", [](const BlockSpec&) { return py::iter(py::cast(block_keys())); })
      .def("__len__", [](const BlockSpec&) { return block_keys().size(); })
      .def("__eq__", equal, py::is_operator())
      .def("__repr__", [](const BlockSpec& block) {
        std::string text;
        for (const std::string& key : block_keys())
          text += (text.empty() ? "" : ", ") + key + "=" + represented(block_item(block, key));
        return "BlockSpec(" + text + ")";
      });
}

void bind_spec(py::module_& m) {
  py::class_<RegisteredModel>(m, "RuntimeModelSpec", "A registered model: its settings and the blocks of its layers.")
      .def_static("from_file", from_file, py::arg("filepath"),
                  "Reads, validates and registers a .ndsl file under the name that it gives.")
      .def_readonly("name", &RegisteredModel::name)
      .def_property_readonly("config", [](const RegisteredModel& s) { return dict_of(s.config); })
      .def_readonly("layers", &RegisteredModel::layers)
      .def(
          "to_block_spec", [](const RegisteredModel& s, int64_t layer) { return s.to_block_spec(layer); },
          py::arg("layer_idx"), "Returns the operations of a layer.")
      .def(
          "to_model_config", [](const RegisteredModel& s) { return s.to_model_config(); }, "Returns a copy.")
      .def("__repr__", [](const RegisteredModel& s) {
        return "RuntimeModelSpec(" + represented(py::str(s.name)) + ", " + std::to_string(s.layers.size()) + " layers)";
      });
}

void register_file(const std::string& name, const py::object& file) {
  const std::optional<std::string> path = address_of(file);
  if (!path) throw py::type_error("spec_file is a text or a path");
  without_gil([&] { RuntimeModelRegistry::register_model(name, *path); });
}

void bind_registry(py::module_& m) {
  py::class_<RuntimeModelRegistry>(m, "RuntimeModelRegistry", "All models of .ndsl files by name.")
      .def_static("register", register_file, py::arg("name"), py::arg("spec_file"),
                  "Reads and validates a .ndsl file. A later model of the same name replaces this one.")
      .def_static(
          "register_builtin_models", [] {}, "Does nothing: built-in models are always registered.")
      .def_static(
          "list_models", [] { return without_gil(RuntimeModelRegistry::list_models); },
          "Returns the names of built-in and registered models, sorted.")
      .def_static(
          "get", [](const std::string& name) { return without_gil([&] { return RuntimeModelRegistry::get(name); }); },
          py::arg("name"))
      .def_static(
          "create_model_config",
          [](const std::string& name) {
            return without_gil([&] { return RuntimeModelRegistry::create_model_config(name); });
          },
          py::arg("name"))
      .def_static(
          "create_block_spec",
          [](const std::string& name, int64_t layer) {
            return without_gil([&] { return RuntimeModelRegistry::create_block_spec(name, layer); });
          },
          py::arg("name"), py::arg("layer_idx"));
  py::class_<RuntimeBlockBuilder>(m, "RuntimeBlockBuilder")
      .def_static("build_from_dsl", py::overload_cast<const py::object&, int64_t>(block_of), py::arg("dsl_spec"),
                  py::arg("layer_idx") = 0,
                  "Returns the block of a dict with the keys of BlockSpec, or of a layer of a model.");
}

}  // namespace

py::object number_of(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return py::int_(static_cast<int64_t>(value));
  return py::float_(value);
}

void bind_models(py::module_& m) {
  bind_config(m);
  bind_block(m);
  bind_spec(m);
  bind_registry(m);
}

}  // namespace harmonics::python
