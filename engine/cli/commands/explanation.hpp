// The output of `explain`: sections, as readable text or as members of one JSON object.
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
  void say(const std::string& text) const;  // prints only in the readable form
  // Appends an entry to the array of this key.
  void add(const char* key, boost::json::value entry);
  boost::json::object& object() { return object_; }

 private:
  bool json_;
  boost::json::object object_;
};

// Returns whether to show the part `what`: --show lists it, or nothing was selected and it is shown by default.
bool wants(const Options& options, const char* what);
// Returns whether a part is to be shown that needs a compiled program.
bool wants_programs(const Options& options);

// Settings to compile a program, and a suffix of its titles such as " of each batch".
struct ShownProgram {
  TensorBinding& binding;
  Executor& executor;
  CompileOptions compile;
  std::string of;
};
// Shows the requested forms of a program: as traced, after passes, and as a plan.
void show_program(const Program& traced, const std::vector<Selected>& opened, const ShownProgram& shown,
                  const Options& options, Explanation& e);
// Shows what a training step keeps, with and without the presets of --recompute. Shows nothing for a program without
// gradients.
void show_step_memory(const Program& step, const ShownProgram& shown, const Options& options, Explanation& e);
// Runs explain --memory for a model. Returns false for flows.
bool explain_model_memory(const Options& options);
// Run explain --html for a model and for a flow. explain_model_html() returns false for flows.
bool explain_model_html(const Options& options);
void explain_flow_html(BoundGraph& graph, const Options& options);
void show_parameters(const ParameterStore& store, Explanation& e);

// Shows inputs, results and FLOPs of all entries, or of that named by --entry.
void show_entries(const Model& model, const EntrySizes& sizes, const Options& options, Explanation& e);
// Runs explain for an imported model: its entries, and the program of one. Returns false if the options request neither
// or the file is no such model.
bool explain_entries(const Options& options);

}  // namespace harmonics::engine::cli
