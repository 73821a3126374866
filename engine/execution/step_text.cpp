#include "engine/execution/step_text.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/chain.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

std::string what(const Node& node) {
  if (node.op == Op::call && !has_chain(node.callee)) {
    const std::string activation = node.attributes.text("activation", "");
    return activation.empty() ? node.callee : node.callee + "+" + activation;
  }
  if (node.op == Op::host_call) return node.host->selected() ? node.host->selected()->op : "host_call";
  const bool reduces = node.op == Op::call;
  if (node.op != Op::fused_elementwise && !reduces) return std::string(op_name(node.op));
  std::string names;
  for (const ChainOp& op : chain_of(node.attributes, node.inputs.size()).ops) {
    if (names.size() > 40) {
      names += " ...";
      break;
    }
    names += (names.empty() ? "" : " ") + std::string(op_name(op.op));
  }
  return "{" + names + "}" + (reduces ? " " + node.attributes.text("reduction") : "");
}

std::string bytes_text(uint64_t bytes) {
  if (bytes < 10240) return fmt::format("{} B", bytes);
  if (bytes < 10240 * 1024) return fmt::format("{} KiB", (bytes + 1023) / 1024);
  return fmt::format("{} MiB", (bytes + 1024 * 1024 - 1) / (1024 * 1024));
}

}  // namespace

PlanStep describe_step(const Program& program, const Node& node) {
  PlanStep step;
  step.what = what(node);
  step.scope = program.scopes[node.scope];
  for (ValueId v : node.inputs) step.inputs.push_back(program.type(v).str());
  for (ValueId v : node.outputs) {
    step.outputs.push_back(program.type(v).str());
    step.bytes += program.type(v).bytes();
  }
  return step;
}

std::string print_plan(const Executable& executable) {
  std::vector<std::vector<std::string>> rows{{"step", "what", "kernel", "parts", "writes", "at", "scope"}};
  size_t number = 0;
  for (const PlanStep& s : executable.steps()) {
    const std::string at =
        !s.target.empty() ? s.target : fmt::format("{:#x}{}", s.offset, s.in_place ? " in place" : "");
    rows.push_back({std::to_string(number++), s.what, s.kernel,
                    s.phases > 1 ? fmt::format("{}x{}", s.phases, s.parts) : std::to_string(s.parts),
                    s.outputs.empty() ? bytes_text(s.bytes) : comma_separated(s.outputs), at, s.scope});
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += fmt::format("{:<{}}", row[i], i + 1 < row.size() ? widths[i] + 2 : 0);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  const MemoryReport m = executable.memory();
  return text + fmt::format("memory: {} for {} steps ({} without reuse, workspace {}), parameters and states {}\n",
                            bytes_text(m.arena_bytes), executable.steps().size(), bytes_text(m.unshared_bytes),
                            bytes_text(m.workspace_bytes), bytes_text(m.state_bytes));
}

}  // namespace harmonics::engine
