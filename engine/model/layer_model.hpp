// Models that stand in a flow as one function: their entries, and where their parameters begin.
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
  HTensor value;  // in the model's file, perhaps of another float type; empty: `init` gives the first elements
  hx_init init{};
  bool fixed = false;  // no training changes it: blocks of a quantised file
};

struct LayerModel {
  Model model;                                       // its store is empty
  std::map<std::string, LayerParameter> parameters;  // by their names in the model's programs
  std::shared_ptr<const MappedFile> file;            // null: there is none
  std::vector<std::string> notes;                    // for people
};

struct LayerModelRequest {
  std::string written;    // as the flow names it
  std::string path;       // of a file or folder, which need not exist
  bool trains = true;     // its parameters may learn
  std::string weights;    // of a model that is only described: a folder or file; "": initial values
  std::string set;        // settings of the model, above its own: "num_layers=2, hidden_size=64"
  std::string type;       // to convert matrices to: "f32"; "": as they are in the file, 16-bit ones that train as f32
  std::string lora = {};  // settings of an adapter that is trained instead of the weights; "": none
  std::string adapter = {};  // path of an adapter that is applied; "": none
  // The path of another file that the settings name. Throws ErrorKind::Denied for one that the flow may not name.
  std::function<std::string(const std::string& written)> other_file = {};
};

// Opens a model. Throws as import_model() and the room that applies its spec; ErrorKind::Type for a type that cannot
// be; ErrorKind::Usage for settings that are none.
using LayerModelOpener = std::shared_ptr<const LayerModel> (*)(const LayerModelRequest& request, Registry& registry);
// The room that applies specs lies above flows; engine/library gives it before main() begins.
void set_layer_model_opener(LayerModelOpener opener);
LayerModelOpener layer_model_opener();  // std::logic_error: not given

}  // namespace harmonics::engine
