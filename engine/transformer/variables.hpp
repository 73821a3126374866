// The variables of a model spec and where their values come from: a default of the spec, below the metadata of the
// file, below the spec's globals, below what the user sets for a run.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "dsl/spec/spec.hpp"
#include "engine/model/imported.hpp"

namespace harmonics::engine {

// A value that a user sets, by variable: whole numbers and real ones are numbers, anything else is a text.
using SpecOverrides = std::map<std::string, std::string>;

struct ResolvedValue {
  specs::Value value;
  std::string origin;  // "metadata llama.block_count"
};

// No value for a variable that is needed.
class MissingVariable : public Error {
 public:
  MissingVariable(const std::string& model, const std::string& variable, const std::string& place,
                  const std::vector<std::string>& remedies);
  const std::string& variable() const { return variable_; }
  const std::string& place() const { return place_; }  // where it is needed

 private:
  std::string variable_, place_;
};

// Values of loops and runs, which hide those of the spec.
using LocalValues = std::map<std::string, int64_t>;

class Variables {
 public:
  using RowsOf = std::function<std::optional<int64_t>(const std::string& tensor)>;
  // All arguments but the model's name must outlive it. `rows_of` gives the rows of a tensor of the file, for "@len:".
  // Throws ErrorKind::Usage for an override of a variable that the spec does not use.
  Variables(const specs::Spec& spec, const ModelMetadata& metadata, RowsOf rows_of, SpecOverrides overrides,
            std::string model);

  // The value of a variable, which is resolved when it is first asked for. Throws MissingVariable.
  const ResolvedValue& value(const std::string& variable, const std::string& place);
  // Of expressions. Variables of `locals` come first.
  int64_t whole(const specs::Expression& expression, const LocalValues& locals = {});
  double real(const specs::Expression& expression, const LocalValues& locals = {});
  // The text itself, or, as "{variable}", that variable's.
  std::string text(const std::string& text, const std::string& place);
  // Replaces each {variable}.
  std::string interpolated(const std::string& text, const std::string& place, const LocalValues& locals = {});

  // A tensor of the file by the name in tensor_names, for one turn of its loops; "" if no candidate is there. The first
  // candidate is for messages.
  std::string tensor(const std::string& name, const std::string& place, const LocalValues& locals,
                     std::string* first = nullptr);

  // What was resolved so far, by name.
  const std::map<std::string, ResolvedValue>& resolved() const { return resolved_; }
  const std::string& model() const { return model_; }

 private:
  std::optional<ResolvedValue> found(const std::string& variable);
  std::optional<ResolvedValue> of_metadata(const std::string& variable);
  ResolvedValue evaluated(const specs::Value& value, const std::string& place, const std::string& origin);
  specs::Lookup lookup(const specs::Expression& expression, const LocalValues& locals);

  const specs::Spec& spec_;
  const ModelMetadata& metadata_;
  RowsOf rows_of_;
  SpecOverrides overrides_;
  std::string model_;
  std::map<std::string, ResolvedValue> resolved_;
  std::set<std::string> open_;  // being resolved
};

}  // namespace harmonics::engine
