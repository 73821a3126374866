// harmonics explain for imported models: the entries and their programs.
#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/commands/explanation.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/execution/work.hpp"
#include "engine/model/state_binding.hpp"
#include "engine/passes/observe.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/step_input.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

// Returns whether the model is a .ndsl file, whose programs are planned but not run.
bool is_described(const Options& options) { return is_ndsl(options.files.front()); }

// Returns a model of a .ndsl file, without memory for its weights unless --weights names them or the device copies
// them.
OpenedModel open_described(const std::string& file, const Options& options) {
  refuse_flags(options,
               {"producer", "graph", "weights-from", "dot", "optimizer", "lr", "schedule", "infer", "recompute",
                "accumulate", "clip", "clip-value"},
               "a .ndsl file");
  expect_given_weights(options);
  NdslOptions of_file = ndsl_options(options);
  of_file.plan_only = options.run.device == "cpu" || options.run.device == "reference";
  OpenedModel opened{{}, open_ndsl(file, of_file).model};
  opened.model.limits = options.limits;
  return opened;
}

// Returns the entry's program without the outputs for observers.
Program entry_program(const Model& model, const Entry& entry, const EntrySizes& sizes) {
  return observe(model.trace(entry, sizes), [](const std::string& name) { return !name.starts_with(kValueOutput); });
}

struct EntrySignature {
  std::vector<std::pair<std::string, std::string>> inputs, outputs;  // name, type
  double flops = 0;
};

EntrySignature signature_of(const Program& program) {
  EntrySignature s;
  for (const Node* leaf : program.leaves(Op::input))
    if (!step_input_of(leaf->callee)) s.inputs.emplace_back(leaf->callee, program.type(leaf->outputs.at(0)).str());
  for (const NamedValue& output : program.outputs)
    s.outputs.emplace_back(output.name, program.type(output.value).str());
  const Program used = dce(program);
  for (const Node& node : used.nodes) s.flops += work_of(used, node).flops();
  return s;
}

std::string signature_text(const std::vector<std::pair<std::string, std::string>>& values) {
  std::string all;
  for (const auto& [name, type] : values) all += (all.empty() ? "" : ", ") + name + " " + type;
  return all.empty() ? "nothing" : all;
}

json::object signature_object(const std::vector<std::pair<std::string, std::string>>& values) {
  json::object all;
  for (const auto& [name, type] : values) all[name] = type;
  return all;
}

void expect_entry(const Model& model, const std::string& name) {
  if (name.empty() || model.find(name)) return;
  std::vector<std::string> known;
  for (const Entry& entry : model.entries) known.push_back(entry.name);
  Error e(ErrorKind::Usage, fmt::format("the model has no entry '{}'", name));
  const std::string meant = did_you_mean(name, known);
  throw e.note(meant.empty() ? "'--show entries' lists them" : meant);
}

void tell_entry(const Model& model, const EntrySizes& sizes, const Options& options, Explanation& e) {
  const Entry& entry = model.entry(!options.entry.empty() ? options.entry
                                   : model.find("decode") ? "decode"
                                                          : "forward");
  const bool of_texts = entry.name == "decode" || entry.name == "prefill";
  CompileOptions compile = text_compile_options(options);
  if (!of_texts) compile.precision = options.run.precision;
  compile.plan_only = is_described(options);
  StateBinding::States states;
  StateBinding binding(*model.parameters, states, [&](const std::string& name) {
    return std::any_of(model.states.begin(), model.states.end(), [&](const ModelState& s) { return s.name == name; });
  });
  const auto executor = make_sequential_executor();
  show_program(entry_program(model, entry, sizes), {}, {binding, *executor, compile, " of the entry " + entry.name},
               options, e);
}

}  // namespace

void show_entries(const Model& model, const EntrySizes& sizes, const Options& options, Explanation& e) {
  expect_entry(model, options.entry);
  e.say(fmt::format("entries of {}, for a batch of {} and {}\n", model.name, sizes.batch,
                    quantity(sizes.tokens, "token")));
  for (const Entry& entry : model.entries) {
    if (!options.entry.empty() && entry.name != options.entry) continue;
    const EntrySignature s = signature_of(entry_program(model, entry, sizes));
    e.say(fmt::format("  {:<10} {} -> {}\n  {:<10} {} FLOPs\n", entry.name, signature_text(s.inputs),
                      signature_text(s.outputs), "", thousands(static_cast<int64_t>(s.flops))));
    e.add("entries", json::object{{"name", entry.name},
                                  {"inputs", signature_object(s.inputs)},
                                  {"outputs", signature_object(s.outputs)},
                                  {"flops", s.flops}});
  }
  e.say("\n");
}

bool explain_entries(const Options& options) {
  const bool entries = std::find(options.show.begin(), options.show.end(), "entries") != options.show.end();
  if (!entries && options.entry.empty() && !wants_programs(options)) return false;
  if (options.files.empty()) return false;
  const std::string& file = options.files.front();
  if (!is_ndsl(file) && !is_model(file, Registry::global())) return false;
  if (!is_ndsl(file)) expect_no_flow_flags(options);
  const OpenedModel opened = is_ndsl(file) ? open_described(file, options) : open_model(file, options);
  const Model& model = opened.model;
  expect_entry(model, options.entry);
  EntrySizes sizes;
  sizes.batch = options.run.batch.value_or(1);
  sizes.tokens = options.tokens;
  sizes.capacity = std::max<int64_t>(64, sizes.tokens);  // initial capacity of a session
  Explanation e(options);
  e.object()["version"] = 1;
  e.object()["graph"] = model.name;
  if (entries || !wants_programs(options)) show_entries(model, sizes, options, e);
  if (wants_programs(options)) tell_entry(model, sizes, options, e);
  if (wants(options, "memory")) show_parameters(*model.parameters, e);
  opened.imported.expect_whole();
  if (options.json) print_json(e.object());
  return true;
}

}  // namespace harmonics::engine::cli
