// Traces the forward pass of a spec: steps become functionals and primitives according to the table of operations.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <harmonics/tensor.hpp>

#include "engine/program/tracer.hpp"
#include "engine/transformer/low_rank_terms.hpp"
#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

enum class SpecResult {
  none,     // only fill the caches
  last,     // results after the last token
  all,      // results after each token
  vectors,  // the output "hidden" after each token
  loss,     // mean cross entropy of the scores after each token and the next tokens
};

TensorType cache_type(const ResolvedSpec& resolved, const specs::Tensor& tensor, const LocalValues& locals,
                      const EntrySizes& sizes, DType dtype);

// Traces one run: with caches, `tokens` positions after `start`, reading and filling the caches; without caches, whole
// sequences.
class SpecTrace {
 public:
  SpecTrace(const ResolvedSpec& resolved, Tracer& tracer, const EntrySizes& sizes, bool cached, DType cache);
  void run(SpecResult result);

  // For operations: access to the fields of the current step.
  bool has(const char* field) const;
  HTensor value(const char* field) const;  // result of an earlier step
  void set(const HTensor& result);         // sets the value named by its field "out"
  int64_t whole(const char* field) const;
  double real(const char* field) const;
  std::string text(const char* field) const;
  bool truth(const char* field, bool otherwise) const;
  Shape dims(const char* field) const;
  // Returns the fields whose names begin with the prefix, with the prefix removed.
  std::vector<std::pair<std::string, specs::Value>> fields_with(const std::string& prefix) const;
  HTensor named_weight(const std::string& name) const;
  HTensor weight(const char* field) const;  // an empty tensor: zeros, or an optional one that the file lacks
  std::vector<HTensor> experts(const char* field) const;
  // Maps groups of rows by the experts of the field, as grouped_linear does, and adds the terms of adapters.
  HTensor map_by_experts(const HTensor& rows, const HTensor& offsets, const char* field) const;
  // In training, adds `coefficient` times the load-balance loss of the experts to the loss, computed over all layers
  // with the same coefficient. `scores`: those of the router.
  void balance(const HTensor& scores, const HTensor& experts, double coefficient);
  // In training, adds `coefficient` times the z loss of a router's scores to the loss, averaged over all layers with
  // the same coefficient.
  void limit_scores(const HTensor& scores, double coefficient);
  // Maps x by a weight, as `linear` does, and adds the terms of adapters.
  HTensor map(const HTensor& x, const HTensor& weight, const HTensor& bias, bool transposed = false) const;
  bool is_transposed(const char* field) const;
  // Returns rows of a table by `ids`, plus the terms of adapters.
  HTensor looked_up(const HTensor& table, const HTensor& ids) const;
  [[noreturn]] void fail(const std::string& what) const;

  const EntrySizes& sizes() const { return sizes_; }
  bool learns() const { return sizes_.training && !sizes_.frozen; }
  bool cached() const { return static_cast<bool>(start_); }
  bool last_only() const { return result_ == SpecResult::last; }
  // Removes sequences whose results are not needed (EntrySizes::scored).
  HTensor scored(const HTensor& last);
  const HTensor& tokens() const { return tokens_; }
  const HTensor& positions() const { return positions_; }
  const HTensor& lengths() const { return lengths_; }
  const HTensor& pages() const { return pages_; }          // empty: caches are not paged
  const HTensor& documents() const { return documents_; }  // empty without EntrySizes::documents
  // Applies dropout: in training, sets elements to 0 at this rate, and others to x / (1 - rate); otherwise returns x.
  // Each step has its own random stream.
  HTensor dropped(const HTensor& x, double rate);
  HTensor turned(const HTensor& x, const std::string& rope);
  HTensor rope_divisor(const specs::Rope& rope, const std::string& place, double context, int64_t pairs);
  HTensor appended(const std::string& cache, const HTensor& rows);
  void observe(const std::string& name, const HTensor& x);
  const std::vector<TracedMap>& maps() const { return terms_.maps(); }

 private:
  void steps(const std::vector<specs::Step>& all);
  void step(const specs::Step& step);
  void repeat(const specs::Step& step);
  void observe_operation(const specs::Step& step, const std::string& path);
  void observe_turn();
  HTensor bound(const BoundWeight& weight, const std::string& parameter) const;
  const specs::Value& field(const char* name) const;
  HTensor auxiliary_loss() const;  // empty: none

  // Router probabilities [rows, experts] and chosen experts [rows, k], the inputs of load_balance_loss.
  struct Balanced {
    double coefficient;
    std::vector<HTensor> shares, chosen;
  };
  // Router scores [rows, experts], the inputs of router_z_loss.
  struct Limited {
    double coefficient;
    std::vector<HTensor> scores;
  };

  const ResolvedSpec& resolved_;
  Variables& variables_;
  Tracer& tracer_;
  EntrySizes sizes_;
  DType cache_;
  SpecResult result_ = SpecResult::last;
  HTensor start_, tokens_, pages_, lengths_, positions_, documents_;
  std::map<std::string, HTensor> values_;
  LocalValues locals_;
  mutable LowRankTerms terms_;
  const specs::Step* at_ = nullptr;
  int64_t traced_ = 0;                    // number of steps so far
  std::set<const specs::Step*> checked_;  // steps whose fields are checked, for loops
  std::set<std::string> observed_;        // names of observed values
  std::map<std::string, HTensor> turn_;   // EntrySizes::operations: values of this iteration of a Repeat, by name
  std::vector<Balanced> balanced_;
  std::vector<Limited> limited_;
};

// One operation of steps. `fields`: "name", "name?" for optional ones, or "prefix.*?" for all with this prefix.
struct SpecOperation {
  std::string_view name;
  std::vector<std::string_view> fields;
  void (*trace)(SpecTrace&);
};
const std::vector<SpecOperation>& spec_operations();
// Traces attention with the step's fields in training, with dropout of probabilities.
HTensor attention_with_dropout(SpecTrace& t, double rate, bool causal);
// Traces the step Experts (spec_experts.cpp).
void trace_experts(SpecTrace& t);
// Returns the operations of spec_operations_ndsl.cpp.
std::vector<SpecOperation> further_spec_operations();

}  // namespace harmonics::engine
