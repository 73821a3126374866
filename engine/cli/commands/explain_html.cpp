// harmonics explain --html: writes a page with the blocks of a model or flow, shapes, parameters, and figures of a run.
#include <algorithm>

#include <fmt/core.h>

#include "engine/cli/commands/explanation.hpp"
#include "engine/cli/commands/model_page.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/execution/work.hpp"
#include "engine/passes/pass.hpp"
#include "engine/training/step_memory.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

// Returns the observable values of the entry in the order of computation.
std::vector<NamedValue> observed_values(const Program& program) {
  const std::string_view observed(kValueOutput);
  std::vector<NamedValue> values;
  for (const NamedValue& output : program.outputs)
    if (output.name.starts_with(observed)) values.push_back({output.name.substr(observed.size()), output.value});
  std::stable_sort(values.begin(), values.end(),
                   [](const NamedValue& a, const NamedValue& b) { return a.value < b.value; });
  return values;
}

void add_blocks(const Program& program, ModelPage& page) {
  std::string block;
  std::vector<std::pair<std::string, std::string>> parts;
  const auto end = [&] {
    if (!block.empty()) page.block(block, std::exchange(parts, {}));
    block.clear();
  };
  for (const NamedValue& value : observed_values(program)) {
    const auto [layer, operation] = layer_and_operation(value.name);
    const std::string& name = layer.empty() ? value.name : layer;
    if (name != block) end(), block = name;
    parts.emplace_back(operation.empty() ? "result" : operation, program.type(value.value).str());
  }
  end();
}

void add_program(const Program& program, ModelPage& page) {
  double flops = 0;
  int64_t parameters = 0;
  std::vector<std::vector<std::string>> rows;
  for (const Node& node : program.nodes) {
    flops += work_of(program, node).flops();
    if (node.op != Op::parameter) continue;
    const TensorType& type = program.type(node.outputs.at(0));
    parameters += type.shape.count();
    rows.push_back({node.callee, type.str()});
  }
  page.figure("parameters", thousands(parameters));
  page.figure("FLOPs forward", fmt::format("{:.4g}", flops));
  page.table("parameters", {"name", "type"}, rows);
}

void finish(ModelPage& page, const Options& options) {
  if (!options.numbers.empty()) page.numbers(options.numbers);
  page.write(options.html);
  if (options.json)
    print_json(boost::json::object{{"version", 1}, {"html", options.html}});
  else if (!options.quiet)
    say("page: " + options.html);
}

}  // namespace

bool explain_model_html(const Options& options) {
  if (options.html.empty() || options.files.empty()) return false;
  const std::string& file = options.files.front();
  Model model;
  if (is_ndsl(file)) {
    NdslOptions of_file = ndsl_options(options);
    of_file.plan_only = true;
    model = open_ndsl(file, of_file).model;
  } else if (is_model(file, Registry::global())) {
    expect_no_flow_flags(options);
    model = open_model(file, options).model;
  } else {
    return false;
  }
  EntrySizes sizes;
  sizes.batch = options.run.batch.value_or(1);
  sizes.tokens = options.tokens;
  sizes.operations = true;
  const Program program = dce(model.trace(model.entry("forward"), sizes));
  ModelPage page(model.name);
  page.figure("sequences", thousands(sizes.batch));
  page.figure("tokens of each", thousands(sizes.tokens));
  if (model.context > 0) page.figure("longest context", thousands(model.context));
  add_blocks(program, page);
  add_program(program, page);
  finish(page, options);
  return true;
}

void explain_flow_html(BoundGraph& graph, const Options& options) {
  const Graph& flow = graph.graph();
  ModelPage page(flow.name);
  page.figure("cycles", thousands(static_cast<int64_t>(flow.cycles.size())));
  for (const int n : flow.order()) {
    const GraphNode& node = flow.nodes[static_cast<size_t>(n)];
    const auto width = graph.widths().of.find(n);
    std::vector<std::pair<std::string, std::string>> parts;
    for (const GraphEdge& edge : flow.edges) {
      if (edge.target != n) continue;
      std::string calls;
      for (const BoundCall& call : edge.calls) calls += (calls.empty() ? "" : ", ") + call.item->name;
      parts.emplace_back("from " + flow.nodes[static_cast<size_t>(edge.source)].name, calls.empty() ? "affine" : calls);
    }
    if (width != graph.widths().of.end()) parts.emplace_back("result", width->second.shape.str());
    page.block(node.name, std::move(parts));
  }
  for (int cycle = 0; cycle < static_cast<int>(flow.cycles.size()); ++cycle) {
    const Model model = graph.model(cycle);
    EntrySizes sizes;
    sizes.batch = graph.settings(cycle, options.run).batch;
    page.figure("samples a step", thousands(sizes.batch));
    add_program(model.trace(model.entry("forward"), sizes), page);
  }
  finish(page, options);
}

}  // namespace harmonics::engine::cli
