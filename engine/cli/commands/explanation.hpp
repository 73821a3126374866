// What 'explain' prints: sections, as readable text or as members of one JSON object.
#pragma once

#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "engine/cli/options/options.hpp"
#include "engine/execution/executable.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine::cli {

class Explanation {
 public:
  explicit Explanation(const Options& options) : json_(options.json) {}

  void section(const char* key, const std::string& title, const std::string& text);
  void say(const std::string& text) const;  // readable text only
  // Appends to the array of this key.
  void add(const char* key, boost::json::value entry);
  boost::json::object& object() { return object_; }

 private:
  bool json_;
  boost::json::object object_;
};

// Whether --show asks for it, or nothing was asked for and it is among the defaults.
bool wants(const Options& options, const char* what);
// Returns whether --show lists a part that needs a compiled program.
bool wants_programs(const Options& options);

// How a program is compiled to be shown, and the end of its titles: " of each batch".
struct ShownProgram {
  TensorBinding& binding;
  Executor& executor;
  CompileOptions compile;
  std::string of;
};
// Shows one program as traced, after its passes and as a plan, as far as requested.
void show_program(const Program& traced, const std::vector<Selected>& opened, const ShownProgram& shown,
                  const Options& options, Explanation& e);
// What a training step keeps, with and without the presets of --recompute. Nothing of a program without gradients.
void show_step_memory(const Program& step, const ShownProgram& shown, const Options& options, Explanation& e);
// explain --memory of a model without a flow. False for flows.
bool explain_model_memory(const Options& options);
// explain --html of a model without a flow, which returns false for flows, and of a flow.
bool explain_model_html(const Options& options);
void explain_flow_html(BoundGraph& graph, const Options& options);
void show_parameters(const ParameterStore& store, Explanation& e);

// Inputs, results and FLOPs of the entries, or of the one that --entry names.
void show_entries(const Model& model, const EntrySizes& sizes, const Options& options, Explanation& e);
// explain of a model in a file of another program: its entries, and the program of one. False if the options ask for
// nothing of that, or the file is no such model.
bool explain_entries(const Options& options);

}  // namespace harmonics::engine::cli
