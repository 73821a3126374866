#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/execution/compiled_plan.hpp"
#include "engine/execution/device_plan.hpp"
#include "engine/execution/precision_policy.hpp"
#include "engine/execution/product_rates.hpp"
#include "engine/execution/recompute_budget.hpp"
#include "engine/execution/selection.hpp"
#include "engine/passes/pass.hpp"
#include "engine/passes/recomputation.hpp"
#include "engine/program/expand_calls.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

struct Context {
  const CompileOptions& options;
  KernelSource& kernels;
  TensorBinding* binding;
  Selection& selection;
  PrecisionRecipe recipe;
  std::vector<Selected> settled = {};  // calls run by a device kernel or replaced by their body

  bool has_kernel(const Program& program, const Node& node) const { return kernels.find(program, node) != nullptr; }
};

struct PassRow {
  std::string_view name;
  Program (*run)(const Program&, Context&);
  std::string_view after = "";  // names of passes that must run before, separated by spaces; see pass.hpp
};

Program run_simplify(const Program& p, Context&) { return simplify(p); }
Program run_cse(const Program& p, Context&) { return cse(p); }
Program run_dce(const Program& p, Context&) { return dce(p); }
Program run_advance_updates(const Program& p, Context&) { return advance_updates(p); }

// Returns a function that tells whether the device has a kernel for a call.
AcceptsCall accepts_call(Context& c) {
  return [&c](const std::string& callee, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
              Rounding rounding) {
    if (c.kernels.is_reference()) return true;
    std::vector<TensorType> outputs;
    if (const OpRow* primitive = find_op(callee)) {
      outputs = primitive->infer(attributes, inputs);
    } else {
      const FunctionalPtr functional = FunctionalTable::global().find(callee);
      if (!functional) return false;
      const auto body = body_program(*functional, attributes, inputs);
      for (const NamedValue& v : body->outputs) outputs.push_back(body->type(v.value));
    }
    return c.kernels.find(callee, attributes, inputs, outputs, 0, rounding) != nullptr;
  };
}

Program run_fuse_calls(const Program& p, Context& c) { return c.options.fuse ? fuse_calls(p, accepts_call(c)) : p; }
Program run_chunk_scores(const Program& p, Context& c) {
  constexpr uint64_t kLeastBytes = 32 << 20;  // smaller scores stay in cache
  return c.options.fuse && !c.kernels.is_reference() ? chunk_scores(p, kLeastBytes) : p;
}
// Returns whether a weight keeps the layout of its file. Transposing a large weight, which is read once from a mapping,
// takes longer than multiplying a few rows with it. For many rows the kernel packs it.
bool keeps_layout(const Context& c, const std::string& name, const TensorType& type) {
  constexpr uint64_t kLeastBytes = uint64_t{4} << 20;  // transposed rows of smaller weights are skipped for zero inputs
  const bool on_host = !c.kernels.device() || !has_own_memory(*c.kernels.device());
  return on_host && type.bytes() > kLeastBytes && c.binding->is_constant(name);
}
Program run_transpose_weights(const Program& p, Context& c) {
  if (!c.binding) return p;
  return transpose_weights(p, [&](const std::string& name, const TensorType& type, bool preferred) {
    const bool wanted = preferred && !c.kernels.is_reference() && !keeps_layout(c, name, type);
    return c.binding->layout(name, type, wanted ? Layout::transposed : Layout::natural) == Layout::transposed;
  });
}
Program run_fuse_updates(const Program& p, Context& c) {
  return c.options.fuse && !c.kernels.is_reference() ? fuse_updates(p, accepts_call(c)) : p;
}
Program run_absorb_conversions(const Program& p, Context& c) {
  return c.options.fuse && !c.kernels.is_reference() ? absorb_conversions(p, accepts_call(c)) : p;
}
Program run_convert_operands(const Program& p, Context& c) {
  if (c.kernels.is_reference()) return p;
  return convert_operands(p, [&c](const Program& program, const Node& node) { return c.has_kernel(program, node); });
}
Program run_set_precision(const Program& p, Context& c) { return set_precision(p, c.recipe); }
Program run_accumulate_products(const Program& p, Context& c) {
  return c.options.fuse && !c.kernels.is_reference() ? accumulate_products(p, accepts_call(c)) : p;
}
Program run_sum_with_products(const Program& p, Context& c) {
  return c.options.fuse && !c.kernels.is_reference() ? sum_with_products(p, accepts_call(c)) : p;
}
Program run_recompute_elementwise(const Program& p, Context& c) {
  constexpr uint64_t kLeastBytes = 1 << 20;  // smaller results stay in cache
  return c.options.fuse && !c.kernels.is_reference() ? recompute_elementwise(p, kLeastBytes) : p;
}
// Only on the host: its kernels compute gelu and its derivative together.
Program run_keep_derivatives(const Program& p, Context& c) {
  constexpr uint64_t kLeastBytes = 1 << 20;  // smaller results stay in cache
  const bool on_host = c.kernels.device() && !has_own_memory(*c.kernels.device());
  return c.options.fuse && on_host ? keep_derivatives(p, kLeastBytes, accepts_call(c)) : p;
}
Program run_finish_products(const Program& p, Context& c) {
  return c.options.fuse && !c.kernels.is_reference() ? finish_products(p, accepts_call(c)) : p;
}
Program run_fuse_pooling(const Program& p, Context& c) { return c.options.fuse ? fuse_pooling(p, accepts_call(c)) : p; }

// Only for devices with their own memory, where a kernel launch costs more than keeping gradients alive longer.
Program run_join_updates(const Program& p, Context& c) {
  return c.options.fuse && c.kernels.device() && has_own_memory(*c.kernels.device()) ? join_updates(p, accepts_call(c))
                                                                                     : p;
}

Program run_recompute(const Program& p, Context& c) {
  Recomputation what = parse_recomputation(c.options.recomputation);
  what.scopes.insert(what.scopes.end(), c.options.recompute.begin(), c.options.recompute.end());
  what.automatic = false;
  what.cheapest = c.options.recompute_cheapest;
  return recompute_parts(p, what);
}

// Replaces calls and primitives by the chosen implementations, or by their bodies if an override requests that.
void settle(Program& program, Context& c) {
  if (c.selection.idle()) return;
  expand_calls(program, [&](Node& node) {
    choose_in_place(program, node, c.selection);
    if (node.op != Op::call || !c.selection.wants_body(node.callee)) return false;
    c.settled.push_back(c.selection.settled(program, node, false));
    return true;
  });
}
Program run_select(const Program& p, Context& c) {
  if (c.selection.idle()) return p;
  Program chosen = p;
  settle(chosen, c);
  renumber(chosen);
  return chosen;
}

Program run_inline_calls(const Program& p, Context& c) {
  const auto has_kernel = [&](const Program& program, const Node& node) {
    const bool has = c.has_kernel(program, node);
    const std::string why_not = has ? "" : c.kernels.why_not(program, node);
    c.settled.push_back(c.selection.settled(program, node, has, why_not));
    return has;
  };
  return inline_calls(p, has_kernel, [&](Program& program) { settle(program, c); });
}

// Returns the choices of the program and `all`, sorted by scope, without duplicates.
std::vector<Selected> all_selected(const Program& program, std::vector<Selected> all) {
  for (const Node& node : program.nodes)
    if (const Selected* s = node.op == Op::host_call ? node.host->selected() : nullptr) {
      all.push_back(*s);
      all.back().scope = program.scope_of(node).text();
    }
  const auto key = [](const Selected& s) { return std::tie(s.scope, s.site, s.winner); };
  std::sort(all.begin(), all.end(), [&](const Selected& a, const Selected& b) { return key(a) < key(b); });
  all.erase(std::unique(all.begin(), all.end(), [&](const Selected& a, const Selected& b) { return key(a) == key(b); }),
            all.end());
  return all;
}

// Queries the device. The reference needs no such check, because it runs every chain.
HasKernel accepts_chain(Context& c) {
  return [&c](const Program& program, const Node& node) { return c.has_kernel(program, node); };
}
Program run_fuse_elementwise(const Program& p, Context& c) {
  if (!c.options.fuse) return p;
  return fuse_elementwise(p, c.kernels.is_reference() ? HasKernel() : accepts_chain(c));
}
Program run_fuse_reductions(const Program& p, Context& c) {
  return c.options.fuse && !c.kernels.is_reference() ? fuse_reductions(p, accepts_chain(c)) : p;
}

constexpr PassRow kPasses[] = {
    {"simplify", run_simplify},
    {"cse", run_cse, "simplify"},
    {"dce", run_dce, "cse"},
    {"set_precision", run_set_precision, "dce"},
    {"select", run_select},
    {"chunk_scores", run_chunk_scores, "dce set_precision select"},
    {"absorb_conversions", run_absorb_conversions, "dce set_precision select"},
    {"transpose_weights", run_transpose_weights, "dce select absorb_conversions"},
    {"fuse_calls", run_fuse_calls, "dce select"},
    {"recompute", run_recompute, "cse fuse_calls"},
    {"inline_calls", run_inline_calls, "fuse_calls recompute"},
    {"select", run_select, "inline_calls"},
    {"simplify", run_simplify, "inline_calls"},
    {"cse", run_cse, "inline_calls"},
    {"dce", run_dce, "inline_calls"},
    {"convert_operands", run_convert_operands, "inline_calls"},
    {"fuse_pooling", run_fuse_pooling, "inline_calls"},
    {"fuse_updates", run_fuse_updates, "transpose_weights inline_calls convert_operands"},
    {"absorb_conversions", run_absorb_conversions, "fuse_updates"},
    {"accumulate_products", run_accumulate_products, "fuse_updates"},
    {"sum_with_products", run_sum_with_products, "fuse_updates accumulate_products"},
    {"recompute_elementwise", run_recompute_elementwise, "cse fuse_pooling fuse_updates accumulate_products"},
    {"keep_derivatives", run_keep_derivatives, "inline_calls recompute_elementwise"},
    {"finish_products", run_finish_products,
     "fuse_updates accumulate_products sum_with_products recompute_elementwise keep_derivatives"},
    {"fuse_elementwise", run_fuse_elementwise, "fuse_pooling fuse_updates absorb_conversions finish_products"},
    {"fuse_reductions", run_fuse_reductions, "fuse_elementwise sum_with_products"},
    {"advance_updates", run_advance_updates, "fuse_updates accumulate_products fuse_reductions"},
    {"join_updates", run_join_updates, "fuse_updates advance_updates"},
};

constexpr bool runs_before(size_t row, std::string_view pass) {
  for (size_t i = 0; i < row; ++i)
    if (kPasses[i].name == pass) return true;
  return false;
}
constexpr bool in_order() {
  for (size_t row = 0; row < std::size(kPasses); ++row)
    for (std::string_view rest = kPasses[row].after; !rest.empty();) {
      const size_t end = std::min(rest.find(' '), rest.size());
      if (!runs_before(row, rest.substr(0, end))) return false;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  return true;
}
static_assert(in_order(), "a pass is before one that it must follow");

// Returns the executor for bodies of scans that run on the host in plans of devices with their own memory.
Executor& host_executor() {
  static const std::unique_ptr<Executor> executor = make_sequential_executor();
  return *executor;
}

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
    // Calls without a device kernel cannot run.
    if (d == "inline_calls") throw Error(ErrorKind::Usage, "the pass 'inline_calls' cannot be switched off");
    // These passes are required: they choose implementations and the layout of weights.
    if (d == "select") throw Error(ErrorKind::Usage, "the pass 'select' cannot be switched off");
    if (d == "transpose_weights") throw Error(ErrorKind::Usage, "the pass 'transpose_weights' cannot be switched off");
  }
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const PassRow& row : kPasses)
    if (std::find(names.begin(), names.end(), row.name) == names.end()) names.emplace_back(row.name);
  return names;
}

std::unique_ptr<Executable> compile(const Program& program, TensorBinding* binding, Executor& executor,
                                    const CompileOptions& options) {
  check_disabled(options);
  if (keeps_budget(program, options))
    return compile(program, binding, executor, within_budget(program, binding, executor, options));
  verify(program);
  Registry& registry = options.registry ? *options.registry : Registry::global();
  DeviceSettings device = options;
  settle_precision(device, registry, false);
  KernelSource kernels(device.device, registry, device.precision);
  Selection selection(registry, options, options.training);
  PrecisionRecipe recipe = options.recipe ? *options.recipe : recipe_of(device);
  if (!device.policy.empty()) recipe.policy = decisions_of(device.policy, registry, kernels);
  Context context{options, kernels, binding, selection, std::move(recipe)};
  Program current = program;
  CompileTime time(options.limits);
  for (const PassRow& row : kPasses) {
    if (is_disabled(options, row.name)) continue;
    current = row.run(current, context);
    time.check(fmt::format("its {} operations, in the pass '{}'", current.nodes.size(), row.name));
    if (options.observe) options.observe(std::string(row.name), current);
  }
  const bool on_device = kernels.device() && has_own_memory(*kernels.device());
  const CompileBody compile_body = [&](const Program& body) {
    CompileOptions inner = options;
    inner.observe = {};
    inner.recompute = {};
    inner.recomputation = {};
    inner.recompute_cheapest = 0;
    if (on_device) {
      inner.device = registry.find(HX_DEVICE, "cpu") ? "cpu" : "reference";
      inner.precision = Precision::fp32;
      inner.policy.clear();
      inner.recipe.reset();
    }
    std::shared_ptr<Executable> plan = compile(body, nullptr, on_device ? host_executor() : executor, inner);
    for (const Selected& s : plan->selected()) context.settled.push_back(s);
    return plan;
  };
  const auto finished = [&](auto parts) {
    parts.poison = options.poison;
    parts.selected = all_selected(parts.program, std::move(context.settled));
    return parts;
  };
  if (on_device) {
    std::optional<KernelSource> host;
    if (registry.find(HX_DEVICE, "cpu")) host.emplace("cpu", registry);
    return std::make_unique<DevicePlan>(
        finished(assemble_on_device(std::move(current), binding, kernels, host ? &*host : nullptr, compile_body)),
        executor);
  }
  return std::make_unique<CompiledPlan>(
      finished(assemble(std::move(current), binding, kernels, compile_body, executor.threads(), options.plan_only)),
      executor);
}

}  // namespace harmonics::engine
