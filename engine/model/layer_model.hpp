// Models used as one function of a flow: their entries and the initial values of their parameters.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/model/model.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// A parameter of the model's programs.
struct LayerParameter {
  TensorType type;
  HTensor value;  // from the model's file, possibly of another float type; empty: `init` applies
  hx_init init{};
  bool fixed = false;  // not trainable: blocks of a quantised file
};

struct LayerModel {
  Model model;                                       // its store is empty
  std::map<std::string, LayerParameter> parameters;  // by name in the model's programs
  std::shared_ptr<const MappedFile> file;            // may be null
  std::vector<std::string> notes;                    // notes for the user
};

struct LayerModelRequest {
  std::string written;       // the name used in the flow
  std::string path;          // file or folder, which need not exist
  bool trains = true;        // its parameters are trainable
  std::string weights;       // folder or file with weights for a model description; "": initial values
  std::string set;           // settings that override those of the model: "num_layers=2, hidden_size=64"
  std::string type;          // type to convert matrices to: "f32"; "": unchanged, but f32 for trainable 16-bit ones
  std::string lora = {};     // settings of an adapter to train instead of the weights; "": none
  std::string adapter = {};  // path of an adapter to apply; "": none
  // Returns the path of another file named by the settings. Throws ErrorKind::Denied if the flow may not use it.
  std::function<std::string(const std::string& written)> other_file = {};
};

// Opens a model. Throws the errors of import_model() and of the code that applies the model's spec; ErrorKind::Type for
// an invalid `type`; ErrorKind::Usage for invalid settings.
using LayerModelOpener = std::shared_ptr<const LayerModel> (*)(const LayerModelRequest& request, Registry& registry);
// Sets the opener. Specs are applied by a folder that depends on flows, so engine/library sets it before main() begins.
void set_layer_model_opener(LayerModelOpener opener);
LayerModelOpener layer_model_opener();  // throws std::logic_error if not set

}  // namespace harmonics::engine
