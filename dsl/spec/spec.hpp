// A model spec as plain data, equivalent to its JSON and independent of a weights file. docs/specs.md describes it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dsl/spec/expression.hpp"

namespace harmonics::engine::specs {

// A literal of the JSON. Its user decides whether a text is an expression or a name.
using Value = std::variant<int64_t, double, bool, std::string>;
std::string text_of(const Value& value);

struct Repeat {
  Expression count;
  std::string variable;  // 0 .. count - 1
};

struct Check {
  Expression zero;      // must be 0
  std::string message;  // with {variables}
};

// A tensor with a role: "cache" persists across runs, "intermediate" declares the shape of a step's result.
struct Tensor {
  std::string name, place, role;
  std::optional<Repeat> repeat;
  std::vector<Expression> dims;
  std::optional<uint32_t> grow_with_kv;  // the axis that grows with the sequence
};

// The layout of a matrix in the file.
enum class Layout {
  row_major,  // [n, k]: one row per output
  canonical,  // [k, n]
  experts,    // [experts, n, k]: bound as one row-major matrix per expert
};

struct WeightBinding {
  std::string tensor, place;  // `tensor`: a key of tensor_names
  std::optional<Repeat> repeat;
  std::vector<Expression> dims;
  Layout layout = Layout::row_major;
  std::optional<Expression> expected_k, expected_n;  // canonical
  std::optional<Expression> fallback_zero_len;       // zeros if the file has no such tensor
  bool optional = false;                             // may be missing
};

// Rotary position embedding. Texts are expressions, or name a variable that holds a text.
struct Rope {
  std::string place;
  std::map<std::string, Value> fields;
  std::map<std::string, std::vector<double>> lists =
      {};  // short_factors, long_factors: one number per pair, instead of tensors
};

struct Step {
  std::string op, place;
  std::map<std::string, Value> fields;
  std::map<std::string, std::vector<Expression>> lists;  // dims
  std::vector<Step> steps;                               // of Repeat
  // From a .ndsl file: the block's operation that the step belongs to, such as "QKV", and the values that observers
  // receive after it, as pairs of name and value.
  std::string operation = {};
  std::vector<std::pair<std::string, std::string>> observed = {};
};

// The matrix of a Hugging Face folder that has the rows of a GGUF tensor. "{i}" and "{e}" stand for the numbers of the
// layer and of the expert.
struct FolderModule {
  std::string tensor;               // "blk.{i}.attn_q.weight"
  std::string name;                 // "model.layers.{i}.self_attn.q_proj"
  bool has_adjacent_pairs = false;  // GGUF stores rotary pairs in adjacent rows, the folder half a head apart
  std::string by_head;  // key of the number of heads, if the folder stores the three parts of each head together
};

struct Spec {
  std::string path;  // of the JSON file, for errors
  std::string name;
  std::vector<std::string> architectures;  // values of general.architecture
  bool with_experts = false;  // of these, the models with experts; other specs may describe the ones without
  // metadata_keys: for each variable the keys to try, in order. "@len:KEY" is the length of a list, or the number of
  // rows of a tensor; "@period:KEY" a number, or the N of a list whose false items are those of every N-th block.
  std::map<std::string, std::vector<std::string>> keys;
  std::map<std::string, Value> defaults;              // overridden by the metadata
  std::map<std::string, Value> expected;              // required values of metadata keys
  std::vector<std::string> ignored;                   // metadata keys that do not affect results
  std::map<std::string, Value> globals;               // override the metadata
  std::map<std::string, Expression> derived_globals;  // evaluated for each run
  std::vector<std::string> dynamics;                  // per-run variables that the spec uses
  std::vector<Check> checks;
  std::vector<Tensor> tensors;
  std::map<std::string, Rope> ropes;
  std::map<std::string, std::vector<std::string>> tensor_names;  // candidates in the file, with {i}
  std::vector<WeightBinding> weight_bindings;
  std::vector<Step> forward;
  std::map<std::string, std::string> outputs;  // from result to value of the forward pass
  // By hf_mapping. renames_modules: transformers loads the folder's tensors into modules of the usual names.
  std::vector<FolderModule> folder_modules;
  bool renames_modules = false;
};

}  // namespace harmonics::engine::specs
