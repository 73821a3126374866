// Transformers of .ndsl files by name: their settings and the operations of their layers.
//
//   harmonics::RuntimeModelRegistry::register_model("MyModel", "models/my_model.ndsl");
//   harmonics::BlockSpec block = harmonics::RuntimeModelRegistry::create_block_spec("MyModel", 0);
//
// Link Harmonics::harmonics. Every failure is a harmonics::Error. Any thread may call any function.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/graph.hpp>

namespace harmonics {

// The operations and weights of one layer.
struct BlockSpec {
  std::string variant;                   // "dense", "parallel", "moe"
  std::vector<std::string> forward_ops;  // "LN1", "QKV", ...
  bool use_qk_norm = false;
  bool ln2_on_residual_att = false;
  std::vector<std::pair<std::string, Shape>> weights = {};  // "blk.0.attn_q.weight"; empty if the library is older
};

namespace detail {

HARMONICS_FACE inline BlockSpec block_of(const hx_block_spec& spec) {
  BlockSpec block{
      spec.variant, {spec.ops, spec.ops + spec.n_ops}, spec.use_qk_norm != 0, spec.ln2_on_residual_att != 0};
  for (uint32_t i = 0; i < spec.n_weights; ++i) {
    const hx_layer_info& weight = spec.weights[i];
    block.weights.emplace_back(weight.name, Shape(weight.dims, weight.dims + weight.rank));
  }
  return block;
}

}  // namespace detail

// Numeric settings of a configuration by name: "hidden_size", "num_layers", ...; booleans are 0 and 1.
struct ModelConfig : std::map<std::string, double> {
  std::string model;  // the registered name of its model
};

struct RegisteredModel {
  std::string name;
  ModelConfig config;
  std::vector<BlockSpec> layers;

  const ModelConfig& to_model_config() const { return config; }
  // Throws ErrorKind::Usage if the model has no such layer.
  HARMONICS_FACE const BlockSpec& to_block_spec(int64_t layer) const {
    if (layer < 0 || layer >= static_cast<int64_t>(layers.size()))
      throw Error(ErrorKind::Usage, "'" + name + "' has no layer " + std::to_string(layer) + "; it has " +
                                        std::to_string(layers.size()) + ", from 0");
    return layers[static_cast<std::size_t>(layer)];
  }
};

class RuntimeModelRegistry {
 public:
  // Reads and validates the file. A later model of the same name replaces this one.
  HARMONICS_FACE static void register_model(const std::string& name, const std::string& file) {
    detail::check(api().register_model(name.c_str(), file.c_str()));
  }
  // Returns the names of built-in and registered models, sorted.
  HARMONICS_FACE static std::vector<std::string> list_models() {
    const char* const* names = nullptr;
    uint32_t count = 0;
    detail::check(api().models(&names, &count));
    return {names, names + count};
  }
  // Throws ErrorKind::Name, with the most similar name, for an unknown model.
  HARMONICS_FACE static RegisteredModel get(const std::string& name) {
    RegisteredModel model{name, create_model_config(name), {}};
    const auto layers = static_cast<int64_t>(model.config.at("num_layers"));
    for (int64_t i = 0; i < layers; ++i) model.layers.push_back(create_block_spec(name, i));
    return model;
  }
  HARMONICS_FACE static ModelConfig create_model_config(const std::string& name) {
    const char* const* names = nullptr;
    const double* values = nullptr;
    uint32_t count = 0;
    detail::check(api().model_config(name.c_str(), &names, &values, &count));
    ModelConfig config;
    config.model = name;
    for (uint32_t i = 0; i < count; ++i) config[names[i]] = values[i];
    return config;
  }
  HARMONICS_FACE static BlockSpec create_block_spec(const std::string& name, int64_t layer) {
    hx_block_spec spec{};
    spec.struct_size = sizeof spec;
    detail::check(api().block_spec(name.c_str(), layer, &spec));
    return detail::block_of(spec);
  }

 private:
  HARMONICS_FACE static const hx_graph_api& api() {
    const hx_graph_api& api = detail::calls::graphs();
    detail::calls::expect(api.struct_size >= offsetof(hx_graph_api, block_spec) + sizeof(void*),
                          "models of .ndsl files");
    return api;
  }
};

// Returns the settings of a configuration that differ from the registered model: "num_layers=2, vocab_size=12".
HARMONICS_FACE inline std::string changed_settings(const ModelConfig& config) {
  const ModelConfig registered = RuntimeModelRegistry::create_model_config(config.model);
  std::string set;
  for (const auto& [name, value] : config) {
    const auto known = registered.find(name);
    if (known != registered.end() && known->second == value) continue;
    char text[40];
    const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
    std::snprintf(text, sizeof text, whole ? "%.0f" : "%.17g", value);
    set += (set.empty() ? "" : ", ") + name + "=" + text;
  }
  return set;
}

// Builds the blocks of a configuration's model.
class RuntimeBlockBuilder {
 public:
  // Throws the errors of RuntimeModelRegistry::create_block_spec().
  HARMONICS_FACE static BlockSpec build_from_dsl(const ModelConfig& config, int64_t layer) {
    return RuntimeModelRegistry::create_block_spec(config.model, layer);
  }
};

}  // namespace harmonics
