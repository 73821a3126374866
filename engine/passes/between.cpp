#include "engine/passes/between.hpp"

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/passes/pass.hpp"

namespace harmonics::engine {

namespace {

ValueId output_named(const Program& program, const std::string& name) {
  if (const NamedValue* output = program.output(name)) return output->value;
  std::vector<std::string> known;
  for (const NamedValue& output : program.outputs) known.push_back(output.name);
  Error e(ErrorKind::Name, fmt::format("program '{}' has no value '{}'", program.name, name));
  if (const std::string meant = did_you_mean(name, known); !meant.empty()) e.note(meant);
  throw e;
}

}  // namespace

Program between(const Program& program, const std::string& from, const std::string& input, const std::string& to) {
  const ValueId first = output_named(program, from), last = output_named(program, to);
  Rewriter rewriter(program);
  Node leaf{};
  leaf.op = Op::input;
  leaf.callee = input;
  const uint32_t index = rewriter.to().append(std::move(leaf), {program.type(first)});
  const ValueId given = rewriter.to().nodes[index].outputs.at(0);
  for (const Node& node : program.nodes) {
    rewriter.copy(node);
    if (program.values[first].node == static_cast<uint32_t>(&node - program.nodes.data())) rewriter.map(first, given);
  }
  const ValueId result = rewriter.mapped(last);
  Program cut = rewriter.finish();
  cut.outputs = {{to, result}};
  cut.updates.clear();
  return dce(cut);
}

}  // namespace harmonics::engine
