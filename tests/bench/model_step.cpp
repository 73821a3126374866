// Time and memory of training steps of a language model that a `.ndsl` file describes: of all weights, or of an
// adapter.
//
//   model_step MODEL [--set NAME=VALUE]... [--lora SETTINGS] [--base TYPE] [--recompute NAMES] [--optimizer TEXT]
//              [--precision NAME] [--batch N] [--tokens N] [--threads N] [--steps N] [--apart X] [--operations N]
//
// MODEL is a file or a built-in name; weights and tokens are random. --base is the type of the frozen weights of an
// adapter. --precision is that of the command line. --operations prints the N kinds of operations that take most time,
// each operation with its fastest run of the steps. Prints one JSON object; exit status 1 if planned and measured
// memory differ by more than the share X:
//
//   seconds, median      of the fastest step and of the middle one
//   cpu_seconds          the least CPU time of a step; on one thread it hardly depends on other load
//   flops, of_peak       of products, forward and backward, as traced; over the fastest step, of the measured peak
//   arena, states        bytes of the plan: results of a step; parameters and moments
//   packed               what kernels have packed of frozen weights
//   planned, measured    the sum of these; peak bytes of aligned memory during the steps, less those before the model
//   was made
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/execution/machine.hpp"
#include "engine/execution/product_rates.hpp"
#include "engine/execution/work.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/step_input.hpp"
#include "engine/training/lower.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/described.hpp"
#include "tests/bench/counted_memory.hpp"
#include "tests/bench/workload.hpp"

namespace harmonics::engine::bench {

namespace {

struct StepCase {
  std::string model, lora, base, recompute = "none", optimizer = "adamw(lr=1e-3)", precision = "fp32";
  SpecOverrides set;
  int64_t batch = 1, tokens = 256;
  int threads = 1, steps = 5, operations = 0;
  std::optional<double> apart;
};

StepCase parsed_case(int argc, char** argv) {
  StepCase c;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (!flag.starts_with("--")) {
      c.model = flag;
      continue;
    }
    if (++i == argc) throw Error(ErrorKind::Usage, flag + " needs a value");
    const std::string value = argv[i];
    const size_t at = value.find('=');
    if (flag == "--set" && at == std::string::npos) throw Error(ErrorKind::Usage, "--set needs NAME=VALUE");
    if (flag == "--set")
      c.set[value.substr(0, at)] = value.substr(at + 1);
    else if (flag == "--lora")
      c.lora = value;
    else if (flag == "--base")
      c.base = value;
    else if (flag == "--recompute")
      c.recompute = value;
    else if (flag == "--optimizer")
      c.optimizer = value;
    else if (flag == "--precision")
      c.precision = value;
    else if (flag == "--batch")
      c.batch = std::atoll(argv[i]);
    else if (flag == "--tokens")
      c.tokens = std::atoll(argv[i]);
    else if (flag == "--threads")
      c.threads = std::atoi(argv[i]);
    else if (flag == "--steps")
      c.steps = std::atoi(argv[i]);
    else if (flag == "--operations")
      c.operations = std::atoi(argv[i]);
    else if (flag == "--apart")
      c.apart = std::atof(argv[i]);
    else
      throw Error(ErrorKind::Usage, "unknown option " + flag);
  }
  if (c.model.empty() || c.batch < 1 || c.tokens < 1 || c.threads < 1 || c.steps < 1)
    throw Error(ErrorKind::Usage, "usage: model_step MODEL [--set NAME=VALUE] ...; numbers are 1 or more");
  return c;
}

Model opened_case(const StepCase& c) {
  if (c.lora.empty()) {
    NdslOptions options;
    options.set = c.set;
    options.trainable = true;
    return open_ndsl(c.model, options).model;
  }
  ModelOptions options;
  options.lora = parse_lora(c.lora);
  if (!c.base.empty()) options.weights = dtype_named(c.base);
  return model_of(import_described(c.model, "", Registry::global(), {c.set}), options);
}

// Rows of random tokens, and the other inputs of a step.
class StepInputs {
 public:
  StepInputs(const StepCase& c, int64_t vocabulary) {
    uint64_t state = 1;
    for (auto* rows : {&tokens_, &targets_})
      for (int64_t i = 0; i < c.batch * c.tokens; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        rows->push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocabulary)));
      }
  }
  const std::vector<const void*>& of(const Executable& plan, int64_t step) {
    values_.set(1e-3f, step, 1);
    addresses_.clear();
    for (const std::string& name : plan.input_names())
      if (const auto own = step_input_of(name))
        addresses_.push_back(values_.address(*own));
      else
        addresses_.push_back(name == "tokens" ? tokens_.data() : targets_.data());
    return addresses_;
  }

 private:
  std::vector<int32_t> tokens_, targets_;
  std::vector<const void*> addresses_;
  StepValues values_;
};

double process_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct OperationTime {
  int count = 0;
  double seconds = 0, flops = 0;
};

void print_operations(Executable& plan, StepInputs& inputs, const StepCase& c, double peak) {
  std::vector<double> fastest(plan.steps().size(), std::numeric_limits<double>::infinity());
  PlanTimes times;
  for (int i = 0; i < c.steps; ++i) {
    plan.run_timed(inputs.of(plan, i + 2).data(), times);
    for (size_t s = 0; s < fastest.size(); ++s)
      fastest[s] = std::min(fastest[s], 1e-9 * static_cast<double>(times.stamps[s + 1] - times.stamps[s]));
  }
  std::map<std::string, OperationTime> kinds;
  double all = 0;
  for (size_t s = 0; s < fastest.size(); ++s) {
    const PlanStep& step = plan.steps()[s];
    std::string kind = step.what + " (" + step.kernel + ")";
    for (const std::string& input : step.inputs) kind += " " + input;
    for (const std::string& output : step.outputs) kind += (&output == step.outputs.data() ? " -> " : " ") + output;
    OperationTime& of = kinds[kind];
    ++of.count;
    of.seconds += fastest[s];
    all += fastest[s];
    if (step.node != UINT32_MAX) of.flops += work_of(plan.program(), plan.program().nodes[step.node]).products;
  }
  std::vector<std::pair<std::string, OperationTime>> rows(kinds.begin(), kinds.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  if (rows.size() > static_cast<size_t>(c.operations)) rows.resize(static_cast<size_t>(c.operations));
  fmt::print("{:>9} {:>6} {:>5} {:>8}  of {:.2f} ms\n", "ms", "share", "times", "of peak", 1e3 * all);
  for (const auto& [kind, of] : rows)
    fmt::print("{:>9.2f} {:>5.1f}% {:>5} {:>8.2f}  {}\n", 1e3 * of.seconds, 100 * of.seconds / all, of.count,
               peak > 0 ? of.flops / of.seconds / peak : 0, kind);
}

// Returns the ratio of measured to planned memory.
double report(const StepCase& c) {
  const int64_t before = aligned.live;
  const Model model = opened_case(c);
  StepOptions how;
  how.optimizer = parse_optimizer(c.optimizer);
  how.device.device = "cpu";
  how.batch = c.batch;
  how.tokens = c.tokens;
  const Lowered lowered = lower(model, how);
  const double flops = contraction_flops(dce(lowered.program));
  const auto executor = make_team_executor(c.threads);
  CompileOptions options;
  options.device = "cpu";
  options.training = true;
  options.recomputation = c.recompute;
  options.precision = parse_precision(c.precision);
  settle_precision(options, Registry::global(), false);
  const auto plan = compile(lowered.program, model.parameters.get(), *executor, options);
  StepInputs inputs(c, model.vocabulary);
  plan->run(inputs.of(*plan, 1).data());
  forget_peaks();
  std::vector<double> seconds;
  double cpu_seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < c.steps; ++i) {
    const auto& addresses = inputs.of(*plan, i + 2);
    const auto begin = std::chrono::steady_clock::now();
    const double cpu_begin = process_seconds();
    plan->run(addresses.data());
    cpu_seconds = std::min(cpu_seconds, process_seconds() - cpu_begin);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  const MemoryReport m = plan->memory();
  const uint64_t planned = m.arena_bytes + m.state_bytes + m.packed_bytes;
  const int64_t measured = aligned.peak - before;
  const double peak = peak_flops(c.threads);
  if (c.operations > 0) print_operations(*plan, inputs, c, peak);
  const boost::json::object o{{"model", c.model},
                              {"lora", c.lora},
                              {"base", c.base},
                              {"recompute", c.recompute},
                              {"precision", precision_name(options.precision)},
                              {"batch", c.batch},
                              {"tokens", c.tokens},
                              {"threads", c.threads},
                              {"seconds", seconds.front()},
                              {"median", seconds[seconds.size() / 2]},
                              {"cpu_seconds", cpu_seconds},
                              {"tokens_per_second", static_cast<double>(c.batch * c.tokens) / seconds.front()},
                              {"flops", flops},
                              {"of_peak", peak > 0 ? flops / seconds.front() / peak : 0},
                              {"loss", static_cast<double>(*plan->output("loss").data<float>())},
                              {"arena", m.arena_bytes},
                              {"states", m.state_bytes},
                              {"packed", m.packed_bytes},
                              {"planned", planned},
                              {"measured", measured},
                              {"resident", peak_resident()}};
  fmt::print("{}\n", boost::json::serialize(o));
  return static_cast<double>(measured) / static_cast<double>(planned);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  using namespace harmonics::engine::bench;
  try {
    const StepCase c = parsed_case(argc, argv);
    const double ratio = report(c);
    if (c.apart && std::abs(ratio - 1) > *c.apart) {
      fmt::print(stderr, "measured is {:.4f} of planned\n", ratio);
      return 1;
    }
  } catch (const harmonics::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
  return 0;
}
