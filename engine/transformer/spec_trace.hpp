// Traces the forward pass of a spec: steps become functionals and primitives by the table of operations.
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
  none,     // fills the caches only
  last,     // results after the last token
  all,      // results after each token
  vectors,  // the output "hidden" after each token
  loss,     // the mean cross entropy of the scores after each token and the tokens that follow
};

TensorType cache_type(const ResolvedSpec& resolved, const specs::Tensor& tensor, const LocalValues& locals,
                      const EntrySizes& sizes, DType dtype);

// Traces one run: `tokens` positions behind `start`, which reads and fills the caches; or, without caches, whole
// sequences from their first token.
class SpecTrace {
 public:
  SpecTrace(const ResolvedSpec& resolved, Tracer& tracer, const EntrySizes& sizes, bool cached, DType cache);
  void run(SpecResult result);

  // For operations: the fields of the step that is being traced.
  bool has(const char* field) const;
  HTensor value(const char* field) const;  // of an earlier step
  void set(const HTensor& result);         // its field "out"
  int64_t whole(const char* field) const;
  double real(const char* field) const;
  std::string text(const char* field) const;
  bool truth(const char* field, bool otherwise) const;
  Shape dims(const char* field) const;
  // The fields whose names begin so, without that.
  std::vector<std::pair<std::string, specs::Value>> fields_with(const std::string& prefix) const;
  HTensor named_weight(const std::string& name) const;
  HTensor weight(const char* field) const;  // an empty tensor: zeros, or an optional one that the file lacks
  std::vector<HTensor> experts(const char* field) const;
  // Groups of rows by the experts of the field, as grouped_linear takes them, and what adapters add to them.
  HTensor map_by_experts(const HTensor& rows, const HTensor& offsets, const char* field) const;
  // In training adds `coefficient` times the load balance of the experts to the loss: of all layers with the same
  // coefficient together. `scores` are the router's.
  void balance(const HTensor& scores, const HTensor& experts, double coefficient);
  // A weight as `linear` takes it, and what adapters add to it.
  HTensor map(const HTensor& x, const HTensor& weight, const HTensor& bias, bool transposed = false) const;
  bool is_transposed(const char* field) const;
  // Rows of a table by `ids`, and what adapters add to them.
  HTensor looked_up(const HTensor& table, const HTensor& ids) const;
  [[noreturn]] void fail(const std::string& what) const;

  const EntrySizes& sizes() const { return sizes_; }
  bool learns() const { return sizes_.training && !sizes_.frozen; }
  bool cached() const { return static_cast<bool>(start_); }
  bool last_only() const { return result_ == SpecResult::last; }
  // Leaves out the sequences whose results are not wanted: EntrySizes::scored.
  HTensor scored(const HTensor& last);
  const HTensor& tokens() const { return tokens_; }
  const HTensor& positions() const { return positions_; }
  const HTensor& lengths() const { return lengths_; }
  const HTensor& pages() const { return pages_; }          // empty: each sequence has its own caches
  const HTensor& documents() const { return documents_; }  // empty without EntrySizes::documents
  // In training elements become 0 at this rate, others x / (1 - rate); otherwise x. Each step drops others.
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
  HTensor auxiliary_loss() const;  // empty: there is none

  // Shares and choices of the experts, as load_balance_loss takes them: [rows, experts] and [rows, k].
  struct Balanced {
    double coefficient;
    std::vector<HTensor> shares, chosen;
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
  int64_t traced_ = 0;                   // steps
  std::set<std::string> observed_;       // names
  std::map<std::string, HTensor> turn_;  // EntrySizes::operations: values of this turn of a Repeat, by name
  std::vector<Balanced> balanced_;
};

// One operation of steps: `fields` are "name" or, for those that may be missing, "name?"; "prefix.*?" are all that
// begin so.
struct SpecOperation {
  std::string_view name;
  std::vector<std::string_view> fields;
  void (*trace)(SpecTrace&);
};
const std::vector<SpecOperation>& spec_operations();
// Attention of the step's fields in training, where probabilities drop at this rate.
HTensor attention_with_dropout(SpecTrace& t, double rate, bool causal);
// Those of spec_operations_ndsl.cpp.
std::vector<SpecOperation> further_spec_operations();

}  // namespace harmonics::engine
