// Adapters in training: pairs of matrices that are parameters of a model with frozen weights.
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

// The Hugging Face module of a weight, and the position of the weight's rows in it. "{e}" in the name stands for an
// expert's number.
struct WeightModule {
  std::string name;                 // "": the usual one
  int64_t from = 0, rows = 0;       // first row of the weight; number of rows of the module
  int64_t heads = 0;                // above 0: number of heads; each head contains its rows of every part in sequence
  int64_t parts = 1;                // with heads: number of parts in the weight, one after the other
  bool has_adjacent_pairs = false;  // rotary pairs are half a head apart, and in the weight adjacent rows
  std::string older = {};           // a further name, by which adapters are read

  int64_t place_of(int64_t row, int64_t weight_rows) const;  // index in the module of a row of the weight
};

// A pair for a weight, or for some of its rows. Matrices are named parameters of the model's store, all f32.
struct TrainedPair {
  std::string key;      // in ResolvedSpec::weights()
  WeightModule module;  // as in PEFT: "model.layers.0.self_attn.q_proj"
  std::string target;   // "q_proj"
  // [rank, width] and [rows, rank]. For a lookup table: [rows of the table, rank] and [width, rank]. For experts:
  // stacks.
  std::string a, b;
  std::string magnitude;                            // DoRA: [rows]; otherwise ""
  std::string squares;                              // DoRA: frozen [rows], sums of squares of the weight's rows
  int64_t rank = 0, width = 0, from = 0, rows = 0;  // rows [from, from + rows) of `whole`
  int64_t whole = 0;
  double factor = 1;
  bool looked_up = false;    // the weight is a lookup table
  bool transposed = false;   // the weight is [width, whole]
  std::string group = {};    // name of the group of pairs that read the same x
  int64_t paired_width = 0;  // above 0: width of heads whose rotary pairs are adjacent, unlike in PEFT
  int64_t experts = 0;       // above 0: number of pairs of this size
};

// Result of add_adapters(), with everything needed to write files. Values are in the model's parameters.
struct TrainedAdapter {
  LoraSettings settings;
  std::string base;          // name of the model
  std::string architecture;  // general.architecture
  std::vector<TrainedPair> pairs;

  std::vector<std::string> parameters() const;  // names of trained parameters
};

// Declares the matrices as parameters of the model with Role::weight, and freezes all others. The spec applies them in
// all entries, so this must be called before ResolvedSpec::add_entries(); model_of() does this for ModelOptions::lora,
// and stores the result in Model::adapter. Throws ErrorKind::Usage for an unknown target, with the known ones.
std::shared_ptr<const TrainedAdapter> add_adapters(const LoraSettings& settings, ResolvedSpec& resolved, Model& model,
                                                   Registry& registry = Registry::global());

// Returns the value of a parameter by name, for example from ParameterStore::tensor() or a file of weights.
using ParameterValue = std::function<HTensor(const std::string& parameter)>;

// Writes adapter_config.json and adapter_model.safetensors in PEFT's format, creating the folder if needed. Combines
// pairs for different rows of one module into one pair, whose rank is the sum of theirs. Throws ErrorKind::Output.
void write_peft_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& folder);
// Writes a GGUF file of type "adapter". Throws ErrorKind::Usage for DoRA, which the format does not support.
void write_gguf_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& path,
                        Registry& registry = Registry::global());
// Writes a GGUF file if the path ends in .gguf, otherwise a PEFT folder.
void write_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& path,
                   Registry& registry = Registry::global());

}  // namespace harmonics::engine
