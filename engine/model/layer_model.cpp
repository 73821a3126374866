#include "engine/model/layer_model.hpp"

#include <stdexcept>

namespace harmonics::engine {

namespace {

LayerModelOpener& installed_opener() {
  static LayerModelOpener opener = nullptr;
  return opener;
}

}  // namespace

void set_layer_model_opener(LayerModelOpener opener) { installed_opener() = opener; }

LayerModelOpener layer_model_opener() {
  if (!installed_opener()) throw std::logic_error("no opener of models was given");
  return installed_opener();
}

}  // namespace harmonics::engine
