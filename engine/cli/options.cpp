// The one source that sees CLI11.
#include "engine/cli/options.hpp"

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "engine/base/address.hpp"
#include "engine/cli/command.hpp"

namespace harmonics::cli {

namespace {

double duration_seconds(const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(std::min(used, text.size()));
  const double scale = unit == "ms" ? 1e-3 : unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : unit == "d" ? 86400 : -1;
  if (value <= 0 || scale < 0) throw CLI::ValidationError("--for", fmt::format("'{}' is not a duration; write 90s, 10m or 1.5h", text));
  return value * scale;
}

void stream_options(CLI::App* app, Options& o) {
  app->add_option("-p,--producer", o.producers, "bind a producer: [NAME=]ADDRESS, e.g. images=file:train-images.idx")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option("--graph", o.graph, "which harmonic of the file, when it holds several")->type_name("NAME");
  app->add_option("--plugin", o.plugins, "load a plugin library")->type_name("PATH");
  app->add_option("--weights", o.weights, "start from these weights (safetensors)")->type_name("FILE");
}

void precision_option(CLI::App* app, Options& o) {
  app->add_option_function<std::string>("--precision", [&o](const std::string& v) { o.run.precision = parse_precision(v); }, "of products: fp32 (default), fp16 (operands and short sums in fp16, totals and weights in fp32), or auto: fp16 where the processor has it")
      ->type_name("NAME")
      ->check(CLI::IsMember({"fp32", "fp16", "auto"}));
}

void machine_options(CLI::App* app, Options& o) {
  app->add_option("--threads", o.run.threads, "threads to use; results do not depend on it (default: all)")->check(CLI::Range(1, 1024));
  app->add_option("--device", o.run.device, "cpu, or reference (slow, for checking)")->type_name("NAME");
  precision_option(app, o);
}

void count_options(CLI::App* app, Options& o) {
  app->add_option_function<int64_t>("--batch", [&o](int64_t v) { o.run.batch = v; }, "samples in a step (default 64)")->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app->add_option_function<int64_t>("--seed", [&o](int64_t v) { o.run.seed = v; }, "seed of weights, shuffling and dropout (default 0)")->check(CLI::Range(int64_t{0}, INT64_MAX));
}

void training_options(CLI::App* app, Options& o) {
  app->add_option_function<std::string>("--optimizer", [&o](const std::string& v) { o.run.optimizer = v; }, "adamw (default), sgd, rmsprop, adam, lamb, lion or normuon, with settings: 'sgd(lr=0.1, momentum=0.9)'");
  app->add_option_function<double>("--lr", [&o](double v) { o.run.lr = v; }, "learning rate (default 1e-3)")->check(CLI::PositiveNumber);
  app->add_option_function<std::string>("--schedule", [&o](const std::string& v) { o.run.schedule = v; }, "how the rate goes on: constant (default), linear, cosine, step or wsd, with settings: 'cosine(warmup=500, final=0.1)'");
  app->add_option_function<double>("--clip", [&o](double v) { o.run.clip = v; }, "shorten all gradients together to this length (0: as they are)")->check(CLI::NonNegativeNumber);
  app->add_option_function<double>("--clip-value", [&o](double v) { o.run.clip_value = v; }, "cut every number of a gradient to this magnitude (0: as they are)")->check(CLI::NonNegativeNumber);
  app->add_option_function<int64_t>("--accumulate", [&o](int64_t v) { o.run.accumulate = v; }, "batches in a step: their gradients are averaged (default 1)")->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
}

void define_run(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx)")->required()->expected(1);
  stream_options(app, o);
  app->add_option("-c,--consumer", o.consumers, "bind a consumer: [NAME=]ADDRESS, e.g. results=file:out.csv")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option("-t,--test", o.tests, "data to test on after training: [NAME=]ADDRESS")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option_function<int64_t>("--epochs", [&o](int64_t v) { o.run.epochs = v; }, "passes over the data (default 10)")->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app->add_option_function<int64_t>("--steps", [&o](int64_t v) { o.run.steps = v; }, "stop after this many steps (batches, or groups of --accumulate)")->check(CLI::Range(int64_t{1}, INT64_MAX));
  app->add_option_function<std::string>("--for", [&o](const std::string& v) { o.run.seconds = duration_seconds(v); }, "stop after a time: 90s, 10m, 1.5h")->type_name("DURATION");
  app->add_option("--until", o.run.until, "stop when a metric holds: 'loss<0.05', 'output.accuracy>=0.98'")->type_name("CONDITION");
  app->add_flag("--deterministic", o.run.deterministic, "refuse what would make two runs differ: an end by the clock, live streams");
  training_options(app, o);
  count_options(app, o);
  machine_options(app, o);
  app->add_option("--save", o.save, "write the weights here (safetensors)")->type_name("FILE");
  app->add_option("--report", o.report, "draw the run: a page (.html) or the learning curve (.svg)")->type_name("FILE");
  app->add_flag("--infer", o.inference, "leave the training taps out");
  app->footer("Example:\n  harmonics run mnist.hmx --producer train-images.idx --producer train-labels.idx --save mnist.safetensors");
}

void define_infer(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx); its training taps are left out")->required()->expected(1);
  stream_options(app, o);
  app->add_option("-c,--consumer", o.consumers, "where results go (default stdout:)")->type_name("[NAME=]ADDRESS")->take_all();
  count_options(app, o);
  machine_options(app, o);
  app->add_option_function<std::string>("--prompt", [&o](const std::string& v) { o.prompt = v, o.prompt_given = true; }, "text models: continue this text");
  app->add_option("--generate", o.generate, "text models: how many symbols to write (default 400)")->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app->add_option("--temperature", o.temperature, "text models: 0 takes the likeliest symbol (default 0.8)")->check(CLI::Range(0.0, 100.0));
  app->footer("Examples:\n  harmonics infer mnist.hmx --weights mnist.safetensors --producer t10k-images.idx\n"
              "  harmonics infer char_gpt.hmx --weights gpt.safetensors --prompt 'ROMEO:'");
}

void define_validate(CLI::App* app, Options& o) {
  app->add_option("FILE", o.files, "flows to check (.hmx)")->required();
  app->add_option("--plugin", o.plugins, "load a plugin library")->type_name("PATH");
  app->add_option("-p,--producer", o.producers, "also check widths against this data: [NAME=]ADDRESS")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option("--graph", o.graph, "which harmonic of the file")->type_name("NAME");
}

void define_explain(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx)")->required()->expected(1);
  stream_options(app, o);
  app->add_option("--show", o.show, "flow, widths, program, kernels, memory (default: flow and widths)")->delimiter(',')->check(CLI::IsMember({"flow", "widths", "program", "kernels", "memory"}));
  app->add_option("--after", o.after, "the program after a pass (trace, cse, fuse_elementwise, ...; 'all')")->type_name("PASS");
  app->add_flag("--dot", o.dot, "the graph in Graphviz' language: ... --dot | dot -Tsvg > graph.svg");
  app->add_flag("--infer", o.inference, "the inference program instead of the training step");
  training_options(app, o);
  count_options(app, o);
  app->add_option("--device", o.run.device, "cpu or reference")->type_name("NAME");
  precision_option(app, o);
}

void define_profile(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx)")->required()->expected(1);
  stream_options(app, o);
  app->add_option_function<int64_t>("--steps", [&o](int64_t v) { o.run.steps = v; }, "how many steps to time (default: about a second's)")->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->add_option("--cycle", o.cycle, "which cycle of the flow (default 1)")->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->add_option_function<std::string>("--optimizer", [&o](const std::string& v) { o.run.optimizer = v; }, "as in run");
  app->add_option("--trace", o.trace, "write the last steps as Chrome trace events, for Perfetto")->type_name("FILE.json");
  app->add_flag("--infer", o.inference, "a step of inference instead of training");
  count_options(app, o);
  machine_options(app, o);
  app->footer("Example:\n  harmonics profile mnist.hmx --producer train-images.idx --producer train-labels.idx --batch 1 --threads 1");
}

void define_bench(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx)")->required()->expected(1);
  stream_options(app, o);
  app->add_option("--batch", o.batches, "batch sizes (default 1,64,256)")->delimiter(',')->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app->add_option("--threads", o.threads, "numbers of threads (default: 1 and all)")->delimiter(',')->check(CLI::Range(1, 1024));
  app->add_option("--seconds", o.seconds, "of each measurement (default 1)")->check(CLI::Range(0.01, 3600.0));
  app->add_option("--cycle", o.cycle, "which cycle of the flow (default 1)")->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->add_option_function<std::string>("--optimizer", [&o](const std::string& v) { o.run.optimizer = v; }, "as in run");
  app->add_flag("--infer", o.inference, "inference only");
  app->add_option_function<int64_t>("--seed", [&o](int64_t v) { o.run.seed = v; }, "seed of weights and random samples (default 0)")->check(CLI::Range(int64_t{0}, INT64_MAX));
  app->add_option("--device", o.run.device, "cpu or reference")->type_name("NAME");
  precision_option(app, o);
  app->footer("Example:\n  harmonics bench mnist.hmx --producer train-images.idx --producer train-labels.idx --batch 1,64 --threads 1,2");
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& o) {
  CLI::App app{"Harmonics trains and serves neural models described as flows of streams."};
  app.name("harmonics");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of every verb");
  app.footer("Start here:\n  harmonics run samples/mnist.hmx --producer 'synth:digits' --producer 'synth:digits#label'\n  harmonics list functions\n  harmonics run --help");
  o.run.device = "cpu";
  const auto verb = [&](const char* name, const char* description, void (*define)(CLI::App*, Options&)) {
    CLI::App* sub = app.add_subcommand(name, description);
    define(sub, o);
    sub->add_flag("--json", o.json, "print one JSON object on the last line of standard output");
    sub->add_flag("-q,--quiet", o.quiet, "no progress and no summary");
  };
  verb("run", "train a flow, or run it when it has no training tap", define_run);
  verb("infer", "run a flow without training", define_infer);
  verb("validate", "check flows and report every mistake", define_validate);
  verb("explain", "show what a flow becomes: widths, program, kernels, memory", define_explain);
  verb("profile", "where a step's time goes, against what the machine could do", define_profile);
  verb("bench", "samples a second of a flow, by batch size and threads", define_bench);
  verb("list", "what exists: activations, losses, layers, producers, consumers, devices, optimizers, schedules, functionals, primitives", [](CLI::App* a, Options& opt) {
    a->add_option("KIND", opt.files, "one kind, or 'functions' for activations, losses and layers (default: everything)")->expected(0, 1);
    a->add_option("--plugin", opt.plugins, "load a plugin library")->type_name("PATH");
  });
  verb("inspect", "one thing in full: a function, a stream's scheme, a weights file", [](CLI::App* a, Options& opt) {
    a->add_option("THING", opt.files, "a name, a .safetensors file or a plugin .so")->required()->expected(1);
    a->add_option("--plugin", opt.plugins, "load a plugin library")->type_name("PATH");
  });
  verb("version", "the version and what it was built with", [](CLI::App*, Options&) {});
  app.set_version_flag("--version", "harmonics " HARMONICS_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? kDone : kWrongUse;
  }
  o.verb = app.get_subcommands().front()->get_name();
  return std::nullopt;
}

}  // namespace harmonics::cli
