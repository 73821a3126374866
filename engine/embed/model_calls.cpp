#include "engine/embed/model_calls.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/contract/guard.hpp"
#include "engine/embed/embedded_model.hpp"
#include "engine/transformer/model_registry.hpp"

namespace harmonics::engine {

namespace {

std::string text_given(const char* text) { return text ? text : ""; }

// Results of the last call of this thread, which the caller reads through pointers.
struct ModelResults {
  std::vector<std::string> texts;
  std::vector<const char*> pointers;
  std::vector<double> numbers;
  std::vector<HTensor> tensors;
  std::vector<hx_value*> values;
  std::vector<hx_layer_info> weights;
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

void give_block(const CompiledNdsl& model, int64_t layer, hx_block_spec* out) {
  ModelResults& results = model_results();
  const BlockSpec& block = model.layers[static_cast<size_t>(layer)];
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  std::vector<std::string> texts = block.forward_ops;
  texts.push_back(block.variant);
  results.weights.clear();
  for (const NdslTensor& tensor : model.tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    texts.push_back(tensor.name);
    hx_layer_info weight{};
    weight.struct_size = sizeof weight;
    weight.rank = tensor.shape.rank();
    weight.reason = "";
    std::copy(tensor.shape.begin(), tensor.shape.end(), weight.dims);
    results.weights.push_back(weight);
  }
  const size_t ops = block.forward_ops.size();
  results.keep(std::move(texts));
  for (size_t i = 0; i < results.weights.size(); ++i) results.weights[i].name = results.pointers[ops + 1 + i];
  hx_block_spec spec{};
  spec.n_ops = static_cast<uint32_t>(ops);
  spec.ops = results.pointers.data();
  spec.variant = results.pointers[ops];
  spec.n_weights = static_cast<uint32_t>(results.weights.size());
  spec.weights = results.weights.data();
  spec.use_qk_norm = block.use_qk_norm;
  spec.ln2_on_residual_att = block.ln2_on_residual_att;
  spec.struct_size = out->struct_size;
  std::memcpy(out, &spec, std::min<size_t>(out->struct_size, sizeof spec));
}

template <typename Handle>
Handle& opened(Handle* handle, const char* what) {
  if (!handle) throw Error(ErrorKind::Usage, std::string("a null handle was passed where a ") + what + " is needed");
  return *handle;
}

HTensor expect_value(hx_value* value, const char* what) {
  if (!value) throw Error(ErrorKind::Type, std::string("the ") + what + " are an empty tensor");
  if (value->traced()) throw detail::NeedsValues{};
  return HTensor::borrow(value);
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
    give_block(*compiled, layer, out);
  });
}

hx_status open_model(const char* name, const hx_model_options* options, hx_model** out) {
  return guard([&] {
    hx_model_options given{};
    if (options) std::memcpy(&given, options, std::min<size_t>(options->struct_size, sizeof given));
    *out = new hx_model{std::make_shared<EmbeddedModel>(text_given(name), given)};
  });
}

void close_model(hx_model* model) { delete model; }

hx_status model_values(hx_model* model, hx_value* tokens, uint32_t all, const char* const** names,
                       hx_value* const** values, uint32_t* count) {
  return guard([&] {
    auto computed = opened(model, "model").model->values(expect_value(tokens, "tokens"), all != 0);
    ModelResults& results = model_results();
    std::vector<std::string> texts;
    results.tensors.clear();
    results.values.clear();
    for (auto& [text, value] : computed) {
      texts.push_back(text);
      results.values.push_back(value.raw());
      results.tensors.push_back(std::move(value));
    }
    results.keep(std::move(texts));
    *names = results.pointers.data();
    *values = results.values.data();
    *count = static_cast<uint32_t>(results.values.size());
  });
}

hx_status opened_block(hx_model* model, int64_t layer, hx_block_spec* out) {
  return guard([&] { give_block(opened(model, "model").model->description(layer), layer, out); });
}

hx_status model_layer(hx_model* model, int64_t layer, const char* precision, hx_value* hidden, hx_value** out) {
  return guard([&] {
    *out =
        opened(model, "model").model->run_layer(layer, text_given(precision), expect_value(hidden, "values")).release();
  });
}

hx_status open_sequence(hx_model* model, hx_sequence** out) {
  return guard([&] {
    const std::shared_ptr<EmbeddedModel>& of = opened(model, "model").model;
    *out = new hx_sequence{of, std::make_unique<Session>(of->decoder())};
  });
}

void close_sequence(hx_sequence* sequence) { delete sequence; }

hx_status append_tokens(hx_sequence* sequence, hx_value* tokens, hx_value** scores) {
  return guard([&] {
    Session& session = *opened(sequence, "sequence").session;
    const HTensor ids = expect_value(tokens, "tokens");
    if (ids.dtype() != DType::I32 || ids.shape().rank() != 1 || ids.size() == 0)
      throw Error(ErrorKind::Shape, "a sequence is continued with tokens i32 [tokens], not " + type_of(ids).str());
    const auto count = static_cast<size_t>(ids.size());
    const std::span<const float> after = session.append_all({ids.data<int32_t>(), count});
    *scores =
        HTensor(DType::F32, Shape{ids.size(), static_cast<int64_t>(after.size() / count)}, after.data()).release();
  });
}

hx_status keep_tokens(hx_sequence* sequence, int64_t length) {
  return guard([&] {
    Session& session = *opened(sequence, "sequence").session;
    if (length < 0 || length > session.length())
      throw Error(ErrorKind::Usage, "a sequence of " + std::to_string(session.length()) + " tokens has no first " +
                                        std::to_string(length));
    session.keep(length);
  });
}

hx_status sequence_length(hx_sequence* sequence, int64_t* out) {
  return guard([&] { *out = opened(sequence, "sequence").session->length(); });
}

}  // namespace harmonics::engine
