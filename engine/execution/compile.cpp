#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/execution/compiled_plan.hpp"
#include "engine/passes/pass.hpp"

namespace harmonics {

namespace {

struct Context {
  const CompileOptions& options;
  KernelSource& kernels;

  bool has_kernel(const Program& program, const Node& node) const { return kernels.find(program, node) != nullptr; }
};

struct PassRow {
  std::string_view name;
  Program (*run)(const Program&, Context&);
};

Program run_simplify(const Program& p, Context&) { return simplify(p); }
Program run_cse(const Program& p, Context&) { return cse(p); }
Program run_dce(const Program& p, Context&) { return dce(p); }
Program run_advance_updates(const Program& p, Context&) { return advance_updates(p); }

AcceptsCall accepts_call(Context& c) {
  return [&c](const std::string& callee, const AttributeMap& attributes, const std::vector<TensorType>& inputs) {
    if (c.kernels.is_reference()) return true;
    const Functional* functional = FunctionalTable::global().find(callee);
    if (!functional) return false;
    const auto body = body_program(*functional, attributes, inputs);
    std::vector<TensorType> outputs;
    for (const NamedValue& v : body->outputs) outputs.push_back(body->type(v.value));
    return c.kernels.find(callee, attributes, inputs, outputs) != nullptr;
  };
}

Program run_fuse_calls(const Program& p, Context& c) { return c.options.fuse ? fuse_calls(p, accepts_call(c)) : p; }
Program run_fuse_pooling(const Program& p, Context& c) { return c.options.fuse ? fuse_pooling(p, accepts_call(c)) : p; }

Program run_recompute(const Program& p, Context& c) { return recompute(p, c.options.recompute); }

Program run_inline_calls(const Program& p, Context& c) {
  return inline_calls(p, [&](const Program& program, const Node& node) { return c.has_kernel(program, node); });
}

// The reference runs any chain; a device is asked.
Program run_fuse_elementwise(const Program& p, Context& c) {
  if (!c.options.fuse) return p;
  if (c.kernels.is_reference()) return fuse_elementwise(p);
  return fuse_elementwise(p, [&](const Program& program, const Node& node) { return c.has_kernel(program, node); });
}

// The order matters: dead and equal nodes go before fuse_calls counts uses; recompute comes after a cse over the calls, and
// the cse over their bodies respects its clones; fuse_elementwise sees everything that is going to be elementwise.
constexpr PassRow kPasses[] = {
    {"simplify", run_simplify},   {"cse", run_cse},
    {"dce", run_dce},             {"fuse_calls", run_fuse_calls},
    {"recompute", run_recompute}, {"inline_calls", run_inline_calls},
    {"simplify", run_simplify},   {"cse", run_cse},
    {"dce", run_dce},             {"fuse_pooling", run_fuse_pooling},
    {"fuse_elementwise", run_fuse_elementwise},
    {"advance_updates", run_advance_updates},
};

bool is_disabled(const CompileOptions& options, std::string_view pass) {
  for (const std::string& d : options.disabled)
    if (d == pass) return true;
  return false;
}

void check_disabled(const CompileOptions& options) {
  std::vector<std::string> known = pass_names();
  for (const std::string& d : options.disabled) {
    if (std::find(known.begin(), known.end(), d) == known.end()) {
      Error error(ErrorKind::Name, fmt::format("there is no pass '{}' to switch off", d));
      if (auto near = nearest(d, known)) error.note("did you mean '" + *near + "'?");
      throw error;
    }
    // Without it calls the device has no kernel for could not run.
    if (d == "inline_calls") throw Error(ErrorKind::Usage, "the pass 'inline_calls' cannot be switched off");
  }
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const PassRow& row : kPasses)
    if (std::find(names.begin(), names.end(), row.name) == names.end()) names.emplace_back(row.name);
  return names;
}

std::unique_ptr<Executable> compile(const Program& program, TensorBinding* binding, Executor& executor, const CompileOptions& options) {
  check_disabled(options);
  verify(program);
  KernelSource kernels(options.device, options.registry ? *options.registry : Registry::global());
  Context context{options, kernels};
  Program current = program;
  for (const PassRow& row : kPasses) {
    if (is_disabled(options, row.name)) continue;
    current = row.run(current, context);
    if (options.observe) options.observe(std::string(row.name), current);
  }
  PlanParts parts = assemble(std::move(current), binding, kernels);
  parts.poison = options.poison;
  return std::make_unique<CompiledPlan>(std::move(parts), executor);
}

}  // namespace harmonics
