// A model spec as plain data: what its JSON says, before a file of weights is seen. docs/specs.md describes it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dsl/spec/expression.hpp"

namespace harmonics::engine::specs {

// A literal of the JSON. Texts may be expressions or names, which the reader of the value decides.
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

// Of a role: "cache" lasts from run to run, "intermediate" is the shape that a step's result must have.
struct Tensor {
  std::string name, place, role;
  std::optional<Repeat> repeat;
  std::vector<Expression> dims;
  std::optional<uint32_t> grow_with_kv;  // the axis that grows with the sequence
};

// How the rows of a matrix lie in the file.
enum class Layout {
  row_major,  // [n, k]: a row for each result
  canonical,  // [k, n]
  experts,    // [experts, n, k]: bound as one row-major matrix for each expert
};

struct WeightBinding {
  std::string tensor, place;  // a name of tensor_names
  std::optional<Repeat> repeat;
  std::vector<Expression> dims;
  Layout layout = Layout::row_major;
  std::optional<Expression> expected_k, expected_n;  // canonical
  std::optional<Expression> fallback_zero_len;       // zeros if the file has no such tensor
  bool optional = false;                             // may be missing
};

// Rotary positions; texts are expressions, or name a variable that holds a text.
struct Rope {
  std::string place;
  std::map<std::string, Value> fields;
  std::map<std::string, std::vector<double>> lists =
      {};  // short_factors, long_factors: of each pair, instead of tensors
};

struct Step {
  std::string op, place;
  std::map<std::string, Value> fields;
  std::map<std::string, std::vector<Expression>> lists;  // dims
  std::vector<Step> steps;                               // of Repeat
  // Of a .ndsl file: the operation of the block that the step belongs to, "QKV", and what observers of operations see
  // after it: name and value.
  std::string operation = {};
  std::vector<std::pair<std::string, std::string>> observed = {};
};

struct Spec {
  std::string path;  // of the JSON, for errors and origins
  std::string name;
  std::vector<std::string> architectures;  // values of general.architecture
  // metadata_keys: for each variable the keys to look for, in order; "@len:KEY" is the length of a list, or the number
  // of rows of a tensor.
  std::map<std::string, std::vector<std::string>> keys;
  std::map<std::string, Value> defaults;              // below the metadata
  std::map<std::string, Value> expected;              // keys of the metadata that may have this value only
  std::vector<std::string> ignored;                   // keys that change no result
  std::map<std::string, Value> globals;               // above the metadata
  std::map<std::string, Expression> derived_globals;  // evaluated for each run
  std::vector<std::string> dynamics;                  // variables of a run that the spec uses
  std::vector<Check> checks;
  std::vector<Tensor> tensors;
  std::map<std::string, Rope> ropes;
  std::map<std::string, std::vector<std::string>> tensor_names;  // candidates in the file, with {i}
  std::vector<WeightBinding> weight_bindings;
  std::vector<Step> forward;
  std::map<std::string, std::string> outputs;  // result: value of the forward pass
};

}  // namespace harmonics::engine::specs
