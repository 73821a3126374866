#include "engine/embed/model_calls.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/contract/guard.hpp"
#include "engine/transformer/model_registry.hpp"

namespace harmonics::engine {

namespace {

std::string text_given(const char* text) { return text ? text : ""; }

// What the last call of this thread returned.
struct ModelResults {
  std::vector<std::string> texts;
  std::vector<const char*> pointers;
  std::vector<double> numbers;
  void keep(std::vector<std::string> all) {
    texts = std::move(all);
    pointers.clear();
    for (const std::string& text : texts) pointers.push_back(text.c_str());
  }
};
ModelResults& model_results() {
  thread_local ModelResults results;
  return results;
}

}  // namespace

hx_status register_model(const char* name, const char* file) {
  return guard([&] { ModelRegistry::global().add(text_given(name), text_given(file)); });
}

hx_status model_names(const char* const** names, uint32_t* count) {
  return guard([&] {
    ModelResults& results = model_results();
    results.keep(ModelRegistry::global().names());
    *names = results.pointers.data();
    *count = static_cast<uint32_t>(results.pointers.size());
  });
}

hx_status model_config(const char* model, const char* const** names, const double** values, uint32_t* count) {
  return guard([&] {
    const auto compiled = ModelRegistry::global().get(text_given(model));
    ModelResults& results = model_results();
    std::vector<std::string> keys;
    results.numbers.clear();
    for (const auto& [key, setting] : compiled->settings) {
      const auto truth = document::truth_of(setting.value);
      const auto real = document::real_of(setting.value);
      if (!truth && !real) continue;
      keys.push_back(key);
      results.numbers.push_back(real ? *real : *truth ? 1.0 : 0.0);
    }
    results.keep(std::move(keys));
    *names = results.pointers.data();
    *values = results.numbers.data();
    *count = static_cast<uint32_t>(results.numbers.size());
  });
}

hx_status model_block(const char* model, int64_t layer, hx_block_spec* out) {
  return guard([&] {
    const auto compiled = ModelRegistry::global().get(text_given(model));
    const auto layers = static_cast<int64_t>(compiled->layers.size());
    if (layer < 0 || layer >= layers)
      throw Error(ErrorKind::Usage, "'" + text_given(model) + "' has no layer " + std::to_string(layer) + "; it has " +
                                        std::to_string(layers) + ", from 0");
    const BlockSpec& block = compiled->layers[static_cast<size_t>(layer)];
    ModelResults& results = model_results();
    std::vector<std::string> texts = block.forward_ops;
    texts.push_back(block.variant);
    results.keep(std::move(texts));
    hx_block_spec spec{};
    spec.n_ops = static_cast<uint32_t>(block.forward_ops.size());
    spec.ops = results.pointers.data();
    spec.variant = results.pointers.back();
    spec.use_qk_norm = block.use_qk_norm;
    spec.ln2_on_residual_att = block.ln2_on_residual_att;
    spec.struct_size = out->struct_size;
    std::memcpy(out, &spec, std::min<size_t>(out->struct_size, sizeof spec));
  });
}

}  // namespace harmonics::engine
