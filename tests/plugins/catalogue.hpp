// Calls catalogue functions by name, with arguments as in a flow.
#pragma once

#include "engine/plugin/arguments.hpp"
#include "tests/plugins/traced.hpp"

namespace harmonics::engine::testing {

inline AttributeMap arguments(const ItemPtr& item, const std::vector<std::pair<std::string, std::string>>& texts) {
  return bind_texts(*item, texts);
}

using Texts = std::vector<std::pair<std::string, std::string>>;

inline ItemPtr catalogue(uint32_t kind, const char* name) { return Registry::global().need(kind, name); }

inline HTensor activation(const char* name, const HTensor& x, const Texts& texts = {}) {
  const ItemPtr item = catalogue(HX_ACTIVATION, name);
  return call_activation(item, arguments(item, texts), x);
}
inline HTensor loss(const char* name, const std::string& before, const HTensor& logits, const HTensor& prediction,
                    const HTensor& target, const Texts& texts = {}) {
  const ItemPtr item = catalogue(HX_LOSS, name);
  return call_loss(item, arguments(item, texts), before, logits, prediction, target);
}
// Arguments that name layers are passed as values.
inline HTensor layer(const char* name, TestScope& scope, const HTensor& x, const Texts& texts = {},
                     const std::vector<std::pair<std::string, HTensor>>& layers = {}) {
  const ItemPtr item = catalogue(HX_LAYER, name);
  AttributeMap map;
  for (const ArgumentSpec& spec : item->arguments)
    if (!spec.default_text.empty()) map.set(spec.name, *parse_argument(spec.type, spec.default_text));
  for (const auto& [key, text] : texts)
    for (const ArgumentSpec& spec : item->arguments)
      if (spec.name == key) map.set(key, *parse_argument(spec.type, text));
  return call_layer(item, map, layers, scope, x);
}

// Returns 0.05, -0.1, 0.15 ...: distinct values of both signs.
inline HTensor ramp(const Shape& shape, float step = 0.05f) {
  Floats v(static_cast<size_t>(shape.count()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = step * static_cast<float>(i % 11 + 1) * (i % 2 ? -1.0f : 1.0f);
  return floats(shape, v);
}

inline void check_close(const HTensor& actual, const Floats& expected, double margin = 1e-5) {
  const Floats v = numbers(actual);
  REQUIRE(v.size() == expected.size());
  for (size_t i = 0; i < v.size(); ++i) {
    INFO("element " << i);
    CHECK(v[i] == Approx(expected[i]).margin(margin));
  }
}
inline void check_same(const HTensor& a, const HTensor& b, double margin = 1e-5) {
  CHECK(a.shape() == b.shape());
  check_close(a, numbers(b), margin);
}

}  // namespace harmonics::engine::testing
