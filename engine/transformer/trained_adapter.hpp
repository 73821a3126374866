// Adapters in training: pairs of matrices as parameters of a model whose own weights are frozen.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/value.hpp"
#include "engine/transformer/lora_settings.hpp"

namespace harmonics::engine {

class ResolvedSpec;
struct Model;

// The module of Hugging Face that has a weight, and where the weight's rows lie in it. "{e}" in the name stands for an
// expert's number.
struct WeightModule {
  std::string name;
  int64_t from = 0, rows = 0;  // `rows`: of the module
  int64_t heads = 0;  // above 0: the module has so many heads, each with rows of every weight one after the other

  int64_t place_of(int64_t row, int64_t weight_rows) const;  // of a row of the weight
};

// A pair for a weight, or for some of its rows. The names are those of parameters in the model's store, all f32.
struct TrainedPair {
  std::string key;      // of ResolvedSpec::weights()
  WeightModule module;  // as PEFT names it: "model.layers.0.self_attn.q_proj"
  std::string target;   // "q_proj"
  // [rank, width] and [rows, rank]; of a table [rows of the table, rank] and [width, rank]; of experts stacks of these
  std::string a, b;
  std::string magnitude;                            // DoRA: [rows], else ""
  std::string squares;                              // DoRA: frozen [rows], sums of squares of the weight's rows
  int64_t rank = 0, width = 0, from = 0, rows = 0;  // rows from .. from + rows of the weight's `whole`
  int64_t whole = 0;
  double factor = 1;
  bool looked_up = false;    // the weight is a table of rows
  bool transposed = false;   // the weight is [width, whole]
  std::string group = {};    // pairs of a group read one x; a name of a parameter
  int64_t paired_width = 0;  // above 0: heads this wide whose rotary pairs are neighbours, as PEFT's are not
  int64_t experts = 0;       // above 0: so many pairs of these sizes
};

// What add_adapters() made of a model, and all that writing it to files needs. Values are in the model's parameters.
struct TrainedAdapter {
  LoraSettings settings;
  std::string base;          // the model's file or folder
  std::string architecture;  // as in general.architecture
  std::vector<TrainedPair> pairs;

  std::vector<std::string> parameters() const;  // that are trained
};

// Declares the matrices as parameters of the model, with Role::weight; all others become frozen. The spec applies them
// in all entries: call it before ResolvedSpec::add_entries(), or give ModelOptions::lora to model_of(), which does so
// and leaves the result in Model::adapter. Throws ErrorKind::Usage for a target that the model does not have, with
// those it has.
std::shared_ptr<const TrainedAdapter> add_adapters(const LoraSettings& settings, ResolvedSpec& resolved, Model& model,
                                                   Registry& registry = Registry::global());

// The value of a parameter by its name: ParameterStore::tensor(), or of a file of weights.
using ParameterValue = std::function<HTensor(const std::string& parameter)>;

// Writes adapter_config.json and adapter_model.safetensors as PEFT does, into a folder that is made if it is missing.
// Pairs of the rows of one weight become one pair whose rank is the sum of theirs. Throws ErrorKind::Output.
void write_peft_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& folder);
// Writes a GGUF file of the type "adapter". Throws ErrorKind::Usage for DoRA, which that format does not have.
void write_gguf_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& path,
                        Registry& registry = Registry::global());
// The format by the path: GGUF if it ends in .gguf, else a folder of PEFT.
void write_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& path,
                   Registry& registry = Registry::global());

}  // namespace harmonics::engine
