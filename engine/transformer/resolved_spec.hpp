// A spec applied to one file of weights: variables are resolved, and weights are located and checked, before reading
// data.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dsl/spec/spec.hpp"
#include "engine/model/model.hpp"
#include "engine/transformer/low_rank_terms.hpp"
#include "engine/transformer/variables.hpp"

namespace harmonics::engine {

using TensorTypes = std::map<std::string, TensorType>;

// A LoRA adapter given by the user: a file or folder, and a factor for its scales.
struct AdapterFile {
  std::string path;
  double strength = 1;
};

// A weight as used by the steps.
struct BoundWeight {
  std::string key;        // in ResolvedSpec::weights(): the first candidate of its name
  std::string parameter;  // name in the model's store; "": zeros, or an optional tensor that the file lacks
  std::string source;     // name in the file
  Shape shape;            // shape of the parameter
  bool transposed = false;
  int64_t experts = 0;  // above 0: number of experts, with the parameters expert_name(parameter, number)
};
std::string expert_name(const std::string& parameter, int64_t number);

// Not thread-safe until check_entries() has returned; read-only afterwards.
class ResolvedSpec {
 public:
  // `tensors`: those of the file. Throws MissingVariable; ErrorKind::Weights for missing, mismatched and unused
  // tensors, and for metadata that the spec does not support; ErrorKind::Name and Syntax for errors of the spec.
  ResolvedSpec(specs::Spec spec, const ModelMetadata& metadata, TensorTypes tensors, SpecOverrides overrides,
               std::string model);
  ResolvedSpec(const ResolvedSpec&) = delete;
  ResolvedSpec& operator=(const ResolvedSpec&) = delete;

  const specs::Spec& spec() const { return spec_; }
  Variables& variables() const { return *variables_; }
  // Returns a weight by the first candidate of its name in tensor_names, completed with `locals`. Throws
  // ErrorKind::Name if no binding has this name.
  const BoundWeight& weight(const std::string& name, const std::string& place, const LocalValues& locals) const;
  const std::map<std::string, BoundWeight>& weights() const { return weights_; }
  const TensorTypes& tensors() const { return tensors_; }  // of the file
  // Returns the type of a parameter: that in the file, unless set_types() was called.
  const TensorType* type_of(const std::string& parameter) const;
  void set_types(TensorTypes types) { types_ = std::move(types); }
  // Maximum length of sequences in tokens, which affects some scalings of rotary embeddings. The context of the model
  // by default; set_length() must be called before entries are traced.
  int64_t length() const { return length_ > 0 ? length_ : context_; }
  int64_t context() const { return context_; }
  void set_length(int64_t length) { length_ = length; }
  // Returns the number of positions that rotary embeddings cover by their scaling; at least the context.
  int64_t covered_context() const;
  bool has_caches() const;
  // Returns the linear maps and lookups of one run.
  std::vector<TracedMap> maps() const;
  // Sets frozen adapters, whose matrices must be parameters of the model.
  void adapt(AdaptedWeights adapted) { adapted_ = std::move(adapted); }
  const AdaptedWeights& adapted() const { return adapted_; }
  // Sets an adapter that is trained.
  void train(std::shared_ptr<const TrainedAdapter> trained) { trained_ = std::move(trained); }
  const TrainedAdapter* trained() const { return trained_.get(); }
  // Sets modules by key of the weight, if the model declares them; by default, the usual names of architectures apply.
  void name_modules(std::map<std::string, WeightModule> modules) { modules_ = std::move(modules); }
  const std::map<std::string, WeightModule>& modules() const { return modules_; }
  bool has_paged_caches(DType cache) const;  // whether caches can be pools of pages
  // Returns the values of a run that the spec uses, including derived globals.
  LocalValues values_of(const EntrySizes& sizes) const;
  // Checks each entry by tracing it for one token. Throws the errors of its steps.
  void check_entries(DType cache) const;
  // Adds entries, states, context and vocabulary to a model. Parameters have the types of the model's parameters, if it
  // has any, otherwise those of set_types().
  static void add_entries(std::shared_ptr<ResolvedSpec> resolved, Model& model, DType cache);

 private:
  // Returns the variable with the value of this metadata key of the architecture; none: the metadata or the spec lack
  // the key.
  std::optional<std::string> variable_of(const std::string& key) const;
  // Throw for sizes and settings, by the usual keys, with which nothing can be computed.
  void expect_above_zero();
  void expect_whole_heads();
  void expect_metadata();
  void expect_checks();
  void bind_weights();
  void bind(const specs::WeightBinding& binding, const LocalValues& locals);
  void expect_shape(const BoundWeight& bound, const Shape& wanted) const;
  void expect_no_others() const;

  specs::Spec spec_;
  ModelMetadata metadata_;
  TensorTypes tensors_, types_;
  std::unique_ptr<Variables> variables_;
  std::map<std::string, BoundWeight> weights_;
  AdaptedWeights adapted_;
  std::map<std::string, WeightModule> modules_;
  std::shared_ptr<const TrainedAdapter> trained_;
  int64_t context_ = 0, length_ = 0, vocabulary_ = 0;
};

// Returns the tensors that the spec requires, in f32, for a model of which only the metadata are known. The metadata
// provide numbers of rows as "@len:TENSOR"; with "huggingface.tied_embeddings", a second candidate replaces the first.
TensorTypes planned_tensors(const specs::Spec& spec, const ModelMetadata& metadata, const SpecOverrides& overrides,
                            const std::string& model);

// Calls `body` for each iteration of the loop, or once without a loop. `locals` include the loop variable.
void for_each_turn(const std::optional<specs::Repeat>& repeat, Variables& variables, const LocalValues& locals,
                   const std::function<void(const LocalValues&)>& body);

}  // namespace harmonics::engine
