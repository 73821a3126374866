// Variables of a model spec. Their values come from, in increasing precedence, defaults of the spec, metadata of the
// file, globals of the spec, and the user's overrides.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "dsl/spec/spec.hpp"
#include "engine/model/imported.hpp"

namespace harmonics::engine {

// Values set by the user, by variable. Integers and reals are numbers; anything else is text.
using SpecOverrides = std::map<std::string, std::string>;

struct ResolvedValue {
  specs::Value value;
  std::string origin;  // "metadata llama.block_count"
};

// Error: a required variable has no value.
class MissingVariable : public Error {
 public:
  MissingVariable(const std::string& model, const std::string& variable, const std::string& place,
                  const std::vector<std::string>& remedies);
  const std::string& variable() const { return variable_; }
  const std::string& place() const { return place_; }  // where it is needed

 private:
  std::string variable_, place_;
};

// Values of loops and runs, which take precedence over those of the spec.
using LocalValues = std::map<std::string, int64_t>;

class Variables {
 public:
  using RowsOf = std::function<std::optional<int64_t>(const std::string& tensor)>;
  // `spec` and `metadata` must outlive this object. `rows_of` returns the number of rows of a tensor of the file, for
  // "@len:". Throws ErrorKind::Usage for an override of a variable that the spec does not use.
  Variables(const specs::Spec& spec, const ModelMetadata& metadata, RowsOf rows_of, SpecOverrides overrides,
            std::string model);

  // Returns the value of a variable, resolving it on first use. Throws MissingVariable.
  const ResolvedValue& value(const std::string& variable, const std::string& place);
  // Evaluate expressions. `locals` take precedence.
  int64_t whole(const specs::Expression& expression, const LocalValues& locals = {});
  double real(const specs::Expression& expression, const LocalValues& locals = {});
  // Returns the text, or the value of the variable if it is "{variable}".
  std::string text(const std::string& text, const std::string& place);
  // Replaces each {variable} by its value.
  std::string interpolated(const std::string& text, const std::string& place, const LocalValues& locals = {});

  // Returns the tensor of the file for a name in tensor_names, in one iteration of its loops; "" if no candidate
  // exists. `first` receives the first candidate, for messages.
  std::string tensor(const std::string& name, const std::string& place, const LocalValues& locals,
                     std::string* first = nullptr);

  // Returns the values resolved so far, by name.
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
  std::set<std::string> open_;  // variables being resolved, to detect cycles
};

}  // namespace harmonics::engine
