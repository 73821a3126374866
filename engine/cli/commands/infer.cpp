// harmonics infer: runs a flow without its taps, or a model, on data, or generates text.
#include <optional>
#include <thread>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/bound/generate.hpp"
#include "engine/bound/model_rows.hpp"
#include "engine/bound/traced_values.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/language_model.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

int write_text(BoundGraph& graph, const Options& options) {
  GenerateSettings s;
  s.prompt = options.prompt;
  s.symbols = options.generate;
  s.temperature = options.temperature;
  s.seed = static_cast<uint64_t>(options.run.seed.value_or(0));
  s.threads = options.run.threads;
  static_cast<DeviceSettings&>(s) = options.run;
  std::string text;
  const std::string refused = generate(graph, 0, s, [&](const std::string& symbol) {
    if (text.empty() && !options.json) print_data(options.prompt);  // only printed once the model has accepted it
    text += symbol;
    if (options.json) return;
    print_data(symbol);
    flush_output();
  });
  if (options.json)
    print_json(
        boost::json::object{{"version", 1}, {"graph", graph.graph().name}, {"prompt", options.prompt}, {"text", text}});
  else
    print("\n");
  if (!refused.empty() && !options.quiet) print_note("the whole window is recomputed for every symbol: " + refused);
  return kDone;
}

int report_values(const Options& options, const ValueFiles& values) {
  if (options.json)
    print_json(boost::json::object{
        {"version", 1}, {"folder", options.trace}, {"samples", values.samples()}, {"tensors", values.tensors()}});
  else if (!options.quiet)
    say(fmt::format("values of {} in '{}': {} in each file", number_of(values.samples(), "sample"), options.trace,
                    number_of(values.tensors(), "tensor")));
  return kDone;
}

// Writes the values for the tokens of --prompt to the folder of --trace.
int trace_text(const Options& options) {
  const LanguageModel language(options);
  ValueFiles values(options.trace, language.model.name);
  CompileOptions compile;
  static_cast<DeviceSettings&>(compile) = options.run;
  compile.limits = options.limits;
  EncodeOptions how;
  how.begin = true;
  trace_tokens(language.model, *language.executor, compile, language.tokenizer->encode(options.prompt, how), values);
  return report_values(options, values);
}

int trace_samples(const Flow& flow, const Options& options) {
  return with_source(flow.source, [&] {
    std::unique_ptr<BoundGraph> graph = open_graph(flow, options, true);
    expect_trained(*graph, options);
    ValueFiles values(options.trace, graph->graph().name);
    trace_flow(*graph, 0, options.run, values);
    return report_values(options, values);
  });
}

// Computes the results of a model for the samples of streams, and writes its values with --trace.
int infer_samples(const Model& model, const Options& options) {
  RowSettings rows;
  for (const std::string& text : options.producers) rows.producers.push_back(parse_binding(text));
  for (const std::string& text : options.consumers) rows.consumers.push_back(parse_binding(text));
  rows.batch = options.run.batch.value_or(rows.batch);
  rows.seed = static_cast<uint64_t>(options.run.seed.value_or(0));
  static_cast<DeviceSettings&>(rows.compile) = options.run;
  rows.compile.limits = options.limits;
  std::optional<ValueFiles> values;
  if (!options.trace.empty()) rows.values = &values.emplace(options.trace, model.name);
  const auto executor = make_team_executor(
      options.run.threads > 0 ? options.run.threads : static_cast<int>(std::thread::hardware_concurrency()));
  const RowReport done = infer_rows(model, *executor, std::move(rows));
  if (values) return report_values(options, *values);
  if (options.json)
    print_json(boost::json::object{
        {"version", 1}, {"model", model.name}, {"samples", done.samples}, {"seconds", done.seconds}});
  else if (!options.quiet)
    say(fmt::format("{} in {}", number_of(static_cast<uint64_t>(done.samples), "sample"), duration(done.seconds)));
  return kDone;
}

// Runs a model without a flow: continues a text, or computes its results for the samples of streams.
int infer_model(const Options& options) {
  const bool described = is_ndsl(options.files.front());
  if (!described) expect_no_flow_flags(options);
  if (options.prompt_given) refuse_beside(options, {"producer", "consumer"}, "--prompt");
  if (!options.trace.empty() && options.prompt_given) return trace_text(options);
  if (described && options.producers.empty() && options.weights.empty() && options.untrained && !options.prompt_given)
    throw Error(ErrorKind::Usage, "producer 'tokens' is not bound", {}, {"bind it: --producer tokens=FILE"});
  if (options.producers.empty() || options.prompt_given) {
    Options text = options;
    text.max_tokens = options.generate;
    return generate_command(text);
  }
  if (!described) return infer_samples(open_model(options.files.front(), options).model, options);
  if (options.weights.empty() && !options.untrained)
    throw Error(ErrorKind::Usage, fmt::format("'{}' has no weights", options.files.front()), {},
                {"add --weights FOLDER, or a file of safetensors", "--untrained computes with the initial ones"});
  const ImportedModel imported =
      import_described(options.files.front(), options.weights, Registry::global(), described_options(options));
  return infer_samples(model_of(imported, model_options(options)), options);
}

// Throws if no text was requested and the flow takes none: its data is missing.
void expect_text(BoundGraph& graph, const Options& options) {
  if (options.prompt_given || options.given.contains("generate")) return;
  for (const int n : graph.graph().producers_used(0, false)) {
    const auto type = graph.types().find(n);
    if (type != graph.types().end() && !type->second.symbols.empty()) continue;
    const std::string& name = graph.graph().nodes[static_cast<size_t>(n)].name;
    throw Error(ErrorKind::Usage, fmt::format("producer '{}' is not bound", name), {},
                {fmt::format("bind it: --producer {}=file:PATH", name)});
  }
}

// Returns whether the flow names files of weights.
bool names_weights(const Graph& graph) {
  for (const GraphEdge& e : graph.edges)
    for (const BoundCall& c : e.calls)
      if (!c.weights.empty()) return true;
  return false;
}

}  // namespace

void expect_trained(BoundGraph& graph, const Options& options) {
  if (!options.weights.empty() || options.untrained || names_weights(graph.graph())) return;
  for (int cycle = 0; cycle < static_cast<int>(graph.graph().cycles.size()); ++cycle) {
    const Model model = graph.model(cycle);
    model.trace(model.entry("forward"), {});  // declares its parameters
  }
  int64_t count = 0;
  for (const auto& [name, t] : graph.store().all())
    if (t.role == Role::weight && !t.of_model) count += t.type.shape.count();
  if (count > 0)
    throw Error(
        ErrorKind::Usage,
        fmt::format("no weights are given, but '{}' has {} to learn", graph.graph().name, thousands(count)), {},
        {"add --weights FILE, as written by run --save or --checkpoint", "--untrained computes with the initial ones"});
}

int infer_command(const Options& options) {
  if (!options.trace.empty() && options.producers.empty() && !options.prompt_given)
    throw Error(ErrorKind::Usage, "there is nothing to trace", {},
                {"bind data with --producer [NAME=]ADDRESS, or give a language model a text: --prompt TEXT"});
  if (!options.files.empty() && (is_ndsl(options.files.front()) || is_model(options.files.front(), Registry::global())))
    return infer_model(options);
  for (const auto& [name, given] :
       {std::pair("--spec", !options.spec.empty()), std::pair("--set", !options.set.empty())})
    if (given)
      throw Error(ErrorKind::Usage,
                  fmt::format("{} is for models, but '{}' is a flow", name,
                              options.files.empty() ? std::string("-") : options.files.front()),
                  {}, {"leave it out"});
  if (!options.files.empty()) refuse_flags(options, {"tokenizer"}, "a flow");
  const Flow flow = read_flow(options);
  if (!options.trace.empty()) return trace_samples(flow, options);
  if (!options.producers.empty() && !options.prompt_given) {
    refuse_without(options, {"generate", "temperature"}, "--prompt TEXT");
    Options inference = options;
    inference.inference = true;
    return run_command(inference);
  }
  return with_source(flow.source, [&] {
    if (options.weights.empty() && options.producers.empty())
      throw Error(ErrorKind::Usage, "nothing to infer from", {},
                  {"bind data with --producer [NAME=]ADDRESS, or give --weights of a text model to generate text"});
    std::unique_ptr<BoundGraph> graph = open_graph(flow, options, true);
    expect_text(*graph, options);
    if (options.weights.empty() && !options.untrained && !names_weights(graph->graph()))
      throw Error(ErrorKind::Usage, "no weights are given to generate text with", {},
                  {"add --weights FILE, as written by run --save or --checkpoint",
                   "--untrained generates with the initial ones"});
    return write_text(*graph, options);
  });
}

}  // namespace harmonics::engine::cli
