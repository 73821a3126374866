// A spec applied to one file of weights: variables with their values, weights found and checked, before data moves.
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

// A LoRA adapter that a user gives: a file or a folder, and a factor of its scales.
struct AdapterFile {
  std::string path;
  double strength = 1;
};

// A weight as the steps use it.
struct BoundWeight {
  std::string key;        // of ResolvedSpec::weights(): the first candidate of its name
  std::string parameter;  // in the model's store; "": zeros, or an optional tensor that the file lacks
  std::string source;     // in the file
  Shape shape;            // of the parameter
  bool transposed = false;
  int64_t experts = 0;  // above 0: of each of these the parameter is expert_name(parameter, number)
};
std::string expert_name(const std::string& parameter, int64_t number);

// Not thread-safe until check_entries() has returned; read-only from then on.
class ResolvedSpec {
 public:
  // `tensors`: of the file. Throws MissingVariable; ErrorKind::Weights for tensors that are missing, do not fit or are
  // not used, and for metadata that the spec does not implement; ErrorKind::Name and Syntax for errors of the spec.
  ResolvedSpec(specs::Spec spec, const ModelMetadata& metadata, TensorTypes tensors, SpecOverrides overrides,
               std::string model);
  ResolvedSpec(const ResolvedSpec&) = delete;
  ResolvedSpec& operator=(const ResolvedSpec&) = delete;

  const specs::Spec& spec() const { return spec_; }
  Variables& variables() const { return *variables_; }
  // By the first candidate of the name in tensor_names, which `locals` complete. Throws ErrorKind::Name if no binding
  // has it.
  const BoundWeight& weight(const std::string& name, const std::string& place, const LocalValues& locals) const;
  const std::map<std::string, BoundWeight>& weights() const { return weights_; }
  const TensorTypes& tensors() const { return tensors_; }  // of the file
  // Types of the parameters, those of the file until the model has others.
  const TensorType* type_of(const std::string& parameter) const;
  void set_types(TensorTypes types) { types_ = std::move(types); }
  // Tokens that sequences may have; some scalings of rotary positions depend on it. The context of the model, unless
  // set_length() was called before entries are traced.
  int64_t length() const { return length_ > 0 ? length_ : context_; }
  void set_length(int64_t length) { length_ = length; }
  bool has_caches() const;
  // The linear maps and lookups of one run.
  std::vector<TracedMap> maps() const;
  // What adapters add to weights; their matrices must be parameters of the model.
  void adapt(AdaptedWeights adapted) { adapted_ = std::move(adapted); }
  const AdaptedWeights& adapted() const { return adapted_; }
  // Likewise, an adapter that is trained.
  void train(std::shared_ptr<const TrainedAdapter> trained) { trained_ = std::move(trained); }
  const TrainedAdapter* trained() const { return trained_.get(); }
  // Modules by the keys of weights, where the model says them; others have the names that architectures usually have.
  void name_modules(std::map<std::string, WeightModule> modules) { modules_ = std::move(modules); }
  const std::map<std::string, WeightModule>& modules() const { return modules_; }
  bool has_paged_caches(DType cache) const;  // pools of pages can take their place
  // Values of a run that the spec uses, and derived globals.
  LocalValues values_of(const EntrySizes& sizes) const;
  // Traces each entry for one token. Throws what the steps throw.
  void check_entries(DType cache) const;
  // Adds entries, states, context and vocabulary to a model. Their parameters have the types of the model's, if it has
  // any, else those of set_types().
  static void add_entries(std::shared_ptr<ResolvedSpec> resolved, Model& model, DType cache);

 private:
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

// The tensors of a model of which the metadata alone are known: those that the spec needs, in f32. The metadata give
// the numbers of rows as "@len:TENSOR", and "huggingface.tied_embeddings" says whether a second candidate stands for a
// first.
TensorTypes planned_tensors(const specs::Spec& spec, const ModelMetadata& metadata, const SpecOverrides& overrides,
                            const std::string& model);

// Runs `body` for each turn of the loop, or once; `locals` hold the loop's variable.
void for_each_turn(const std::optional<specs::Repeat>& repeat, Variables& variables, const LocalValues& locals,
                   const std::function<void(const LocalValues&)>& body);

}  // namespace harmonics::engine
