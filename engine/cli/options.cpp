// The one source that sees CLI11.
#include "engine/cli/options.hpp"

#include <charconv>
#include <cmath>
#include <functional>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "engine/base/address.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/command.hpp"
#include "engine/cli/command_table.hpp"
#include "engine/cli/configuration.hpp"
#include "engine/cli/terminal.hpp"

namespace harmonics::cli {

namespace {

double duration_seconds(const std::string& text, const char* flag = "--for") {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(std::min(used, text.size()));
  const double scale = unit == "ms" ? 1e-3 : unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : unit == "d" ? 86400 : -1;
  if (value <= 0 || scale < 0) throw CLI::ValidationError(flag, fmt::format("'{}' is not a duration; write 90s, 10m or 1.5h", text));
  return value * scale;
}

// With the value in the message, and without a range that ends in 309 digits.
CLI::Validator number_that(const char* what, const char* type, bool (*right)(double)) {
  return CLI::Validator(
      [what, right](const std::string& text) {
        double v = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
        const bool number = error == std::errc() && end == text.data() + text.size() && std::isfinite(v);
        return number && right(v) ? std::string() : fmt::format("'{}' is not {}", text, what);
      },
      type);
}
CLI::Validator above_zero() { return number_that("a number above 0", "POSITIVE", [](double v) { return v > 0; }); }
CLI::Validator at_least_zero() {
  return number_that("a number of at least 0", "NONNEGATIVE", [](double v) { return v >= 0; });
}

// Options added from here on stand under this heading in help.
void heading(CLI::App* app, const char* group) { app->option_defaults()->group(group); }

void insecure_flag(CLI::App* app, Options& o) { app->add_flag("--insecure", o.insecure, "live streams, and --serve, also beyond this machine without keys: anybody on the way may read and send"); }

void stream_options(CLI::App* app, Options& o) {
  heading(app, "Data");
  app->add_option("-p,--producer", o.producers, "bind a producer: [NAME=]ADDRESS, e.g. images=file:train-images.idx")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option("--graph", o.graph, "which harmonic of the file, when it holds several")->type_name("NAME");
  app->add_option("--plugin", o.plugins, "load a plugin library")->type_name("PATH");
  insecure_flag(app, o);
  app->add_option("--weights", o.weights, "start from these weights (safetensors)")->type_name("FILE");
  app->add_option("--weights-from", o.weights_from, "files that the flow names with weights= may lie in this folder too (default: its own alone)")->type_name("DIR")->take_all();
  app->add_option_function<std::string>("--limits", [&o](const std::string& v) { o.limits = parse_model_limits(v); }, "what the flow may take until it runs: operations of one program, bytes of weights and moments, seconds to compile (default steps=1000000,seconds=600 and the machine's memory)")->type_name("steps=N,weights=SIZE,seconds=N");
}

void dead_letter_options(CLI::App* app, Options& o) {
  app->add_option("--dead-letters", o.dead_letters, "keep in this directory the samples that found no partner or came late: file:DIR/NAME.hxs reads them")->type_name("DIR");
  app->add_option("--dead-letters-limit", o.dead_letters_limit, "the most bytes kept there (default 256M)")->type_name("SIZE");
}

void precision_option(CLI::App* app, Options& o) {
  app->add_option_function<std::string>("--precision", [&o](const std::string& v) { o.run.precision = parse_precision(v); }, "of products: fp32 (default), fp16 (operands and short sums in fp16, totals and weights in fp32), bf16 or fp8 (operands; for devices that multiply in them), or auto: fp16 where the device has it")
      ->type_name("NAME")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "fp8", "auto"}));
}

void override_option(CLI::App* app, Options& o) {
  app->add_option("--override", o.overrides, "who computes a functional: attention=mine ('harmonics list implementations'), attention=cpu, attention=portable")->type_name("FUNCTIONAL=NAME")->take_all();
}

void machine_options(CLI::App* app, Options& o) {
  heading(app, "Machine");
  app->add_option("--threads", o.run.threads, "threads to use; results do not depend on it (default: all)")->check(CLI::Range(1, 1024));
  app->add_option("--device", o.run.device,
                  "cpu, cuda, opencl, reference (slow, for checking), or auto: an accelerator if there is one")
      ->type_name("NAME");
  precision_option(app, o);
  override_option(app, o);
}

void count_options(CLI::App* app, Options& o) {
  heading(app, "Training");
  app->add_option_function<int64_t>("--batch", [&o](int64_t v) { o.run.batch = v; }, "samples in a step (default 64)")->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app->add_option_function<int64_t>("--seed", [&o](int64_t v) { o.run.seed = v; }, "seed of weights, shuffling and dropout (default 0)")->check(CLI::Range(int64_t{0}, INT64_MAX));
}

void training_options(CLI::App* app, Options& o) {
  heading(app, "Training");
  app->add_option_function<std::string>("--optimizer", [&o](const std::string& v) { o.run.optimizer = v; }, "adamw (default), sgd, rmsprop, adam, lamb, lion or normuon, with settings: 'sgd(lr=0.1, momentum=0.9)'");
  app->add_option_function<double>(
         "--lr", [&o](double v) { o.run.lr = v; }, "learning rate (default 1e-3)")
      ->check(above_zero());
  app->add_option_function<std::string>("--schedule", [&o](const std::string& v) { o.run.schedule = v; }, "how the rate goes on: constant (default), linear, cosine, step or wsd, with settings: 'cosine(warmup=500, final=0.1)'");
  app->add_option_function<double>(
         "--clip", [&o](double v) { o.run.clip = v; }, "shorten all gradients together to this length (0: as they are)")
      ->check(at_least_zero());
  app->add_option_function<double>(
         "--clip-value", [&o](double v) { o.run.clip_value = v; },
         "cut every number of a gradient to this magnitude (0: as they are)")
      ->check(at_least_zero());
  app->add_option_function<int64_t>("--accumulate", [&o](int64_t v) { o.run.accumulate = v; }, "batches in a step: their gradients are averaged (default 1)")->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
}

void stopping_options(CLI::App* app, Options& o) {
  heading(app, "Stopping");
  app->add_option_function<int64_t>("--epochs", [&o](int64_t v) { o.run.epochs = v; }, "passes over the data (default 10)")->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app->add_option_function<int64_t>("--steps", [&o](int64_t v) { o.run.steps = v; }, "stop after this many steps (batches, or groups of --accumulate)")->check(CLI::Range(int64_t{1}, INT64_MAX));
  app->add_option_function<std::string>("--for", [&o](const std::string& v) { o.run.seconds = duration_seconds(v); }, "stop after a time: 90s, 10m, 1.5h")->type_name("DURATION");
  app->add_option("--until", o.run.until, "stop when a metric holds: 'loss<0.05', 'val.accuracy>=0.98'")->type_name("CONDITION")->take_all();
  app->add_flag("--deterministic", o.run.deterministic, "refuse what would make two runs differ: an end by the clock, live streams");
}

void watching_options(CLI::App* app, Options& o) {
  heading(app, "Watching");
  app->add_option("--validate", o.validations, "data to validate on after every epoch: [NAME=]ADDRESS")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option("-t,--test", o.tests, "data to test on after training: [NAME=]ADDRESS")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option("--metric", o.run.metrics, "measure this too: 'topk(5)', f1, auc, ... ('harmonics list metrics')")->type_name("METRIC")->take_all();
  app->add_option_function<int64_t>("--window", [&o](int64_t v) { o.run.window = v; }, "samples over which loss, accuracy and what --metric asks for are kept of predictions before they were learned: 'window.loss' (default 1000 where streams are live, else none)")->check(CLI::Range(int64_t{0}, int64_t{10000000}));
  app->add_option("--plot", o.plot, "draw the learning curve")->type_name("FILE.svg");
  app->add_option("--confusion", o.confusion, "draw what was taken for what, over --test or --validate data")->type_name("FILE.svg");
  app->add_option("--report", o.report, "the run as a page: curve, confusion, examples, settings")->type_name("FILE.html");
  app->add_option("--log", o.logs, "write metrics as CSV or JSON lines")->type_name("FILE.csv|FILE.jsonl")->take_all();
  app->add_option("--tensorboard", o.tensorboard, "write event files for TensorBoard into this folder")->type_name("DIR");
  app->add_option("--log-every", o.log_every, "steps between rows of --log and --tensorboard (default 0: every epoch alone)")->check(CLI::Range(int64_t{0}, INT64_MAX));
}

void serving_options(CLI::App* app, Options& o, const char* address, const char* help) {
  heading(app, "Serving");
  app->add_option(address, o.serve, help)->type_name("ADDRESS")->take_all();
  app->add_flag("--ui", o.ui, "a page to watch and control it by; its address is printed");
  app->add_option("--control", o.control, "a socket to watch and control the run by: harmonics ctl PATH")->type_name("PATH");
  app->add_option("--token", o.token, "what requests must show; better in HARMONICS_TOKEN (default: made up, and asked for only by what changes the run)")->type_name("TEXT");
  app->add_option_function<std::string>("--latency", [&o](const std::string& v) { o.latency = v == "0" ? 0 : duration_seconds(v, "--latency"); }, "requests wait this long for others to be computed with (default 2ms)")->type_name("DURATION");
}

void define_run(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx)")->required()->expected(1);
  stream_options(app, o);
  app->add_option("-c,--consumer", o.consumers, "bind a consumer: [NAME=]ADDRESS, e.g. results=file:out.csv")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option("--save", o.save, "write the weights here (safetensors)")->type_name("FILE");
  app->add_flag("--no-keep", o.no_keep, "without --save and --checkpoint: keep no copy of the weights in the user's state folder");
  app->add_flag("--infer", o.inference, "leave the training taps out");
  stopping_options(app, o);
  training_options(app, o);
  count_options(app, o);
  watching_options(app, o);
  machine_options(app, o);
  serving_options(app, o, "--serve", "answer requests while it runs: 127.0.0.1:8080 over HTTP, port 0 takes a free one; zmq+rep://127.0.0.1:5556 over ZeroMQ");
  heading(app, "Checkpoints");
  app->add_option("--checkpoint", o.checkpoint, "keep checkpoints of the run in this directory")->type_name("DIR");
  app->add_option_function<std::string>("--every", [&o](const std::string& v) { o.every = v; }, "how often to write one: 5m (default), 500steps, 1epoch; always when the run ends")->type_name("INTERVAL");
  app->add_option_function<int>("--keep", [&o](int v) { o.keep = v; }, "how many to keep (default 3)")->check(CLI::Range(1, 1 << 20));
  app->add_option_function<std::string>("--resume", [&o](const std::string& v) { o.resume = v; }, "go on from the newest checkpoint of --checkpoint, of another directory, or from one file")->type_name("[DIR|FILE]")->expected(0, 1)->default_str("");
  heading(app, "Live streams");
  app->add_option("--spool", o.spool, "bring what arrives to the disk first, in this directory: it can be asked for again, and who sends may forget it")->type_name("DIR");
  app->add_option("--spool-limit", o.spool_limit, "the most bytes the spool takes there (default 4G)")->type_name("SIZE");
  app->add_flag("--spool-keep", o.spool_keep, "keep there what checkpoints cover too: file:DIR/NAME reads the stream again");
  dead_letter_options(app, o);
  app->footer("Examples:\n"
              "  learn digits that are drawn, with no file at all\n"
              "    harmonics run samples/mnist.hmx --producer synth:digits --producer 'synth:digits#label'\n"
              "  learn from files, test, keep the weights\n"
              "    harmonics run mnist.hmx --producer train-images.idx --producer train-labels.idx \\\n"
              "      --test t10k-images.idx --test t10k-labels.idx --save mnist.safetensors\n"
              "  validate after every epoch, stop when it is good enough, look at the run\n"
              "    harmonics run g.hmx --producer x=x.csv --producer y=y.csv --validate x=vx.csv --validate y=vy.csv \\\n"
              "      --metric f1 --until 'val.accuracy>=0.98' --epochs 100 --report run.html --log metrics.csv\n"
              "  learn and answer at the same time\n"
              "    harmonics run g.hmx --producer x=tcp:127.0.0.1:5555 --serve 127.0.0.1:8080 --control run.sock\n"
              "  an hour with another optimizer and a rate that falls\n"
              "    harmonics run g.hmx --producer data.csv --for 1h --optimizer 'sgd(lr=0.1, momentum=0.9)' --schedule cosine");
}

void define_infer(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx); its training taps are left out")->required()->expected(1);
  stream_options(app, o);
  app->add_option("-c,--consumer", o.consumers, "where results go (default stdout:)")->type_name("[NAME=]ADDRESS")->take_all();
  count_options(app, o);
  machine_options(app, o);
  heading(app, "Live streams");
  dead_letter_options(app, o);
  heading(app, "Text");
  app->add_option_function<std::string>("--prompt", [&o](const std::string& v) { o.prompt = v, o.prompt_given = true; }, "text models: continue this text");
  app->add_option("--generate", o.generate, "text models: how many symbols to write (default 400)")->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app->add_option("--temperature", o.temperature, "text models: 0 takes the likeliest symbol (default 0.8)")->check(CLI::Range(0.0, 100.0));
  app->footer("Examples:\n  harmonics infer mnist.hmx --weights mnist.safetensors --producer t10k-images.idx\n"
              "  harmonics infer char_gpt.hmx --weights gpt.safetensors --prompt 'ROMEO:'");
}

void define_serve(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx); its training taps are left out")->required()->expected(1);
  stream_options(app, o);
  app->add_option("--cycle", o.cycle, "which cycle of the flow (default 1)")->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  serving_options(app, o, "--listen", "where requests come in (default 127.0.0.1:8080); port 0 takes a free one; zmq+rep://127.0.0.1:5556 over ZeroMQ");
  machine_options(app, o);
  app->footer("Examples:\n  harmonics serve mnist.hmx --weights mnist.safetensors --listen 127.0.0.1:8080\n"
              "  curl -d '{\"inputs\": {\"x\": [[0.1, 0.2]]}}' http://127.0.0.1:8080/v1/predict");
}

void watch_token_option(CLI::App* app, Options& o) {
  heading(app, "Serving");
  app->add_option("--token", o.token, "of the run, for addresses; better in HARMONICS_TOKEN")->type_name("TEXT");
}

void define_ctl(CLI::App* app, Options& o) {
  app->add_option("WHERE", o.files, "the control socket of a run, or its address (http://127.0.0.1:8080), and what it shall do: status, pause, resume, step [N], checkpoint, lr X, lr schedule, stop, events")->required()->expected(2, 3);
  watch_token_option(app, o);
  app->footer("Examples:\n  harmonics ctl run.sock status\n  harmonics ctl run.sock lr 1e-4\n"
              "  harmonics ctl http://127.0.0.1:8080 pause --token 5f0c...");
}

void define_top(CLI::App* app, Options& o) {
  app->add_option("WHERE", o.files, "the control socket of a run, or its address (http://127.0.0.1:8080)")->required()->expected(1);
  watch_token_option(app, o);
  app->add_flag("--once", o.once, "print what there is now and end; so it does where there is no terminal");
  app->footer("Keys: q quits, p pauses and resumes, s makes a step, c writes a checkpoint.\n\n"
              "Examples:\n  harmonics top run.sock\n  harmonics top http://127.0.0.1:8080 --token 5f0c...\n  harmonics top run.sock --once");
}

void define_tap(CLI::App* app, Options& o) {
  app->add_option("WHERE", o.files, "the control socket of a run, or its address (http://127.0.0.1:8080), and the name of a producer or layer")->required()->expected(2);
  watch_token_option(app, o);
  app->add_option_function<uint64_t>("--count", [&o](uint64_t v) { o.count = v; }, "so many samples (default: as long as the run goes on)")->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  app->footer("Examples:\n  harmonics tap run.sock hidden --count 5\n  harmonics tap http://127.0.0.1:8080 image | head -n 1");
}

void define_validate(CLI::App* app, Options& o) {
  heading(app, "Data");
  app->add_option("FILE", o.files, "flows to check (.hmx)")->required();
  app->add_option("--plugin", o.plugins, "load a plugin library")->type_name("PATH");
  app->add_option("-p,--producer", o.producers, "also check widths against this data: [NAME=]ADDRESS")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option("--graph", o.graph, "which harmonic of the file")->type_name("NAME");
  app->footer("Examples:\n  harmonics validate *.hmx\n  harmonics validate g.hmx --producer x=data.csv#0-3 --json");
}

void define_explain(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx)")->required()->expected(1);
  stream_options(app, o);
  heading(app, "What to show");
  app->add_option("--show", o.show,
                  "summary, flow, widths, program, kernels, memory (default: summary, flow and widths)")
      ->delimiter(',')
      ->check(CLI::IsMember({"summary", "flow", "widths", "program", "kernels", "memory"}));
  app->add_option("--after", o.after, "the program after a pass (trace, cse, fuse_elementwise, ...; 'all')")->type_name("PASS");
  app->add_flag("--select", o.select, "who computes each call, and why the others do not");
  app->add_flag("--placement", o.placement, "what runs on the device, and what on the host with copies");
  app->add_flag("--dot", o.dot, "the graph in Graphviz' language: ... --dot | dot -Tsvg > graph.svg");
  app->add_flag("--infer", o.inference, "the inference program instead of the training step");
  training_options(app, o);
  count_options(app, o);
  heading(app, "Machine");
  app->add_option("--device", o.run.device, "as in run")->type_name("NAME");
  precision_option(app, o);
  override_option(app, o);
  app->footer("Examples:\n  harmonics explain mnist.hmx --producer train-images.idx --producer train-labels.idx\n"
              "  harmonics explain mnist.hmx --weights mnist.safetensors --infer --show kernels,memory\n"
              "  harmonics explain mnist.hmx --dot | dot -Tsvg > mnist.svg");
}

void define_profile(CLI::App* app, Options& o) {
  app->add_option("GRAPH", o.files, "the flow (.hmx)")->required()->expected(1);
  stream_options(app, o);
  heading(app, "Measuring");
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
  heading(app, "Measuring");
  app->add_option("--batch", o.batches, "batch sizes (default 1,64,256)")->delimiter(',')->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app->add_option("--threads", o.threads, "numbers of threads (default: 1 and all)")->delimiter(',')->check(CLI::Range(1, 1024));
  app->add_option("--seconds", o.seconds, "of each measurement (default 1)")->check(CLI::Range(0.01, 3600.0));
  app->add_option("--cycle", o.cycle, "which cycle of the flow (default 1)")->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->add_option_function<std::string>("--optimizer", [&o](const std::string& v) { o.run.optimizer = v; }, "as in run");
  app->add_flag("--infer", o.inference, "inference only");
  app->add_option_function<int64_t>("--seed", [&o](int64_t v) { o.run.seed = v; }, "seed of weights and random samples (default 0)")->check(CLI::Range(int64_t{0}, INT64_MAX));
  app->add_option("--device", o.run.device, "as in run")->type_name("NAME");
  precision_option(app, o);
  override_option(app, o);
  app->footer("Example:\n  harmonics bench mnist.hmx --producer train-images.idx --producer train-labels.idx --batch 1,64 --threads 1,2");
}

void define_send(CLI::App* app, Options& o) {
  app->add_option("ADDRESS", o.files, "who listens: tcp:127.0.0.1:5555, unix:PATH, zmq+dealer://...; or any consumer")->required()->expected(1);
  heading(app, "Data");
  app->add_option("--from", o.from, "what to send: [NAME=]ADDRESS of a producer; several are sent together")->type_name("[NAME=]ADDRESS")->required()->take_all();
  app->add_option_function<uint64_t>("--count", [&o](uint64_t v) { o.count = v; }, "at most so many samples")->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  app->add_option("--rate", o.rate, "samples a second (default: as fast as they are taken)")->check(above_zero());
  app->add_option("--plugin", o.plugins, "load a plugin library")->type_name("PATH");
  heading(app, "Sending");
  app->add_option("--producer-name", o.producer_name, "who sends (default: what --from says); the same again goes on where the receiver is")->type_name("NAME");
  app->add_option("--ack", o.ack, "until when samples are kept: received (default), or durable on the receiver's disk")->check(CLI::IsMember({"received", "durable"}));
  insecure_flag(app, o);
  app->footer("Examples:\n  harmonics send tcp:127.0.0.1:5555 --from image=train-images.idx --from label=train-labels.idx --ack durable\n"
              "  harmonics send unix:/tmp/digits --from synth:digits --rate 100");
}

void define_receive(CLI::App* app, Options& o) {
  app->add_option("ADDRESS", o.files, "where to listen, and which tensors: tcp:127.0.0.1:5555#image,label; or any producer")->required()->expected(1);
  heading(app, "Data");
  app->add_option("--to", o.to, "where samples go: [NAME=]ADDRESS of a consumer (default: JSON lines on standard output)")->type_name("[NAME=]ADDRESS")->take_all();
  app->add_option_function<uint64_t>("--count", [&o](uint64_t v) { o.count = v; }, "at most so many samples")->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  app->add_option("--plugin", o.plugins, "load a plugin library")->type_name("PATH");
  insecure_flag(app, o);
  app->footer("Examples:\n  harmonics receive 'tcp:127.0.0.1:5555#image,label' --count 10\n"
              "  harmonics receive zmq+router://127.0.0.1:5555 --to file:samples.npy");
}

void define_keys(CLI::App* app, Options& o) {
  app->add_option("FILE", o.files, "where to write the pair; the public key alone goes to FILE.pub")->required()->expected(1);
  app->footer("Example:\n  harmonics keys camera.key");
}

void define_list(CLI::App* app, Options& o) {
  app->add_option("KIND", o.files, "one kind, or 'functions' for activations, losses and layers (default: everything)")->expected(0, 1);
  heading(app, "Data");
  app->add_option("--plugin", o.plugins, "load a plugin library")->type_name("PATH");
  app->footer("Examples:\n  harmonics list functions\n  harmonics list metrics --json");
}

void define_ckpt(CLI::App* app, Options& o) {
  app->add_option("ACTION", o.files, "list DIR, show FILE, verify FILE, diff FILE FILE; a directory stands for its newest")->required()->expected(1, 3);
  app->footer("Examples:\n  harmonics ckpt list runs/digits\n  harmonics ckpt diff runs/a runs/b");
}

void define_plugin(CLI::App* app, Options& o) {
  app->add_option("ACTION", o.files, "new NAME, check FILE.so..., doctor [FILE.so|DIR...], list, reload PROCESS...")->required()->expected(1, -1);
  heading(app, "New");
  app->add_option("--kind", o.kind, "activation, loss, layer, producer, consumer, metric, functional, implementation, device, optimizer, schedule, predicate or augmentation")->type_name("KIND");
  app->add_option("--directory", o.directory, "where to write it (default: a folder of its name)")->type_name("DIR");
  heading(app, "Check");
  app->add_option("--address", o.address, "what a producer or consumer is to open: my:path?option=1")->type_name("ADDRESS");
  app->add_option_function<int64_t>("--seed", [&o](int64_t v) { o.run.seed = v; }, "seed of the numbers it is tried on (default 0)")->check(CLI::Range(int64_t{0}, INT64_MAX));
  app->add_option("--calls", o.calls, "calls of each function to find leaks, for 2 s at most (default 1000000)")
      ->type_name("NUMBER")->check(CLI::Range(int64_t{1000}, int64_t{1} << 40));
  app->footer("Examples:\n"
              "  write a project, build it, check it\n"
              "    harmonics plugin new my_act --kind activation\n"
              "    cmake -S my_act -B my_act/build && cmake --build my_act/build\n"
              "    harmonics plugin check my_act/build/libmy_act.so\n"
              "  why is it not found, or does not load?\n"
              "    harmonics plugin doctor\n"
              "    harmonics plugin doctor ./libmy_act.so\n"
              "  a run goes on with the build that is there now\n"
              "    harmonics plugin reload $(pgrep -x harmonics)");
}

void define_inspect(CLI::App* app, Options& o) {
  app->add_option("THING", o.files, "a name, a .safetensors file or a plugin .so")->required()->expected(1);
  heading(app, "Data");
  app->add_option("--plugin", o.plugins, "load a plugin library")->type_name("PATH");
  app->footer("Examples:\n  harmonics inspect conv\n  harmonics inspect mnist.safetensors");
}

void define_config(CLI::App* app, Options& o) {
  app->add_option("ACTION", o.files, "show, and whose settings: show [VERB]")->required()->expected(1, 2);
  app->add_flag("--origin", o.origin, "also where each value comes from");
  app->footer("Settings have the names of flags. What counts, the strongest first: the flag, HARMONICS_FLAG in the environment, --config FILE,\n"
              "./harmonics.toml (epochs, steps, batch, lr, optimizer, schedule, seed, threads, precision, device, quiet),\n"
              "~/.config/harmonics/config.toml, /etc/harmonics/config.toml, the default.\n\n"
              "Examples:\n  printf '[run]\\nbatch = 128\\nepochs = 3\\n' > harmonics.toml\n  harmonics config show run --origin");
}

void define_completion(CLI::App* app, Options& o) {
  app->add_option("SHELL", o.files, "bash, zsh or fish")->required()->expected(1)->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app->footer("Examples:\n  source <(harmonics completion bash)\n  harmonics completion zsh > ~/.zfunc/_harmonics\n  harmonics completion fish > ~/.config/fish/completions/harmonics.fish");
}

void define_man(CLI::App* app, Options& o) {
  app->add_option("VERB", o.files, "of one verb (default: of the program)")->expected(0, 1);
  app->footer("Example:\n  harmonics man run | man -l -");
}

struct Definition {
  const char *verb, *help;
  void (*define)(CLI::App*, Options&);
};
constexpr Definition kDefinitions[] = {
    {"run", "train a flow, or run it when it has no training tap", define_run},
    {"infer", "run a flow without training", define_infer},
    {"serve", "answer requests with weights that were learned before", define_serve},
    {"ctl", "look at a run and control it: status, pause, step, checkpoint, learning rate, stop", define_ctl},
    {"top", "watch a run in the terminal", define_top},
    {"tap", "print samples that pass a producer or layer of a run", define_tap},
    {"validate", "check flows and report every mistake", define_validate},
    {"explain", "show what a flow becomes: widths, program, kernels, memory", define_explain},
    {"profile", "where a step's time goes, against what the machine could do", define_profile},
    {"bench", "samples a second of a flow, by batch size and threads", define_bench},
    {"send", "send samples of any producer to who listens, without a flow", define_send},
    {"receive", "print or write the samples that are sent here, without a flow", define_receive},
    {"keys", "a pair of keys for streams over ZeroMQ between machines", define_keys},
    {"ckpt", "checkpoints: list, show, verify, diff", define_ckpt},
    {"list", "what exists: activations, losses, layers, producers, consumers, devices, metrics, functionals, implementations, optimizers, schedules, predicates, augmentations, primitives", define_list},
    {"inspect", "one thing in full: a function, a scheme of streams, what an address gives, a weights file", define_inspect},
    {"plugin", "plugins: write a new one, check one, find out why one does not load", define_plugin},
    {"config", "settings from files and the environment, and where each comes from", define_config},
    {"completion", "a script that completes commands in bash, zsh or fish", define_completion},
    {"man", "the manual page of the program or of a verb", define_man},
    {"version", "the version and what it was built with", [](CLI::App*, Options&) {}},
};

std::unique_ptr<CLI::App> make_app(Options& o) {
  auto app = std::make_unique<CLI::App>("Harmonics trains and serves neural models described as flows of streams.");
  app->name("harmonics");
  app->require_subcommand(1);
  app->set_help_all_flag("--help-all", "help of every verb");
  app->set_version_flag("--version", "harmonics " HARMONICS_VERSION);
  app->footer("Start here:\n"
              "  harmonics run samples/mnist.hmx --producer synth:digits --producer 'synth:digits#label'\n"
              "  harmonics explain samples/mnist.hmx --producer synth:digits --producer 'synth:digits#label'\n"
              "  harmonics list functions        what a flow can be made of\n"
              "  harmonics run --help            every flag, with examples");
  for (const Definition& d : kDefinitions) {
    CLI::App* sub = app->add_subcommand(d.verb, d.help);
    d.define(sub, o);
    heading(sub, "Output");
    sub->add_flag("--json", o.json, "print one JSON object on the last line of standard output");
    sub->add_flag("-q,--quiet", o.quiet, "no progress and no summary");
    sub->add_option("--color", o.color, "colours: auto, always or never (default auto)")->check(CLI::IsMember({"auto", "always", "never"}));
    sub->add_option("--config", o.config, "settings from this file (TOML), over those of ./harmonics.toml")->type_name("FILE");
  }
  return app;
}

// "TEXT:{a,b}" has a and b.
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> all;
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return all;
  for (size_t at = open + 1; at < close;) {
    const size_t end = std::min(type.find(',', at), close);
    all.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

// "INT:INT in [1 - 8]" is a NUMBER to people.
std::string metavar(const CLI::Option& option) {
  const std::string type = option.get_type_name(), plain = type.substr(0, type.find(':'));
  if (option.get_items_expected_max() == 0) return "";
  if (plain == "INT" || plain == "UINT" || plain == "FLOAT" || plain.empty()) return "NUMBER";
  return plain;
}

VerbRow row_of(const CLI::App& sub) {
  VerbRow row{sub.get_name(), sub.get_description(), sub.get_footer(), {}, {}};
  for (const CLI::Option* option : sub.get_options()) {
    const std::vector<std::string> choices = choices_in(option->get_type_name());
    if (option->get_lnames().empty()) {
      row.positionals.push_back({option->get_name(true), option->get_description(), option->get_required(), option->get_items_expected_max() > 1, choices});
      continue;
    }
    const bool repeats = option->get_items_expected_max() > 1 || option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    row.flags.push_back({option->get_lnames().front(), option->get_snames().empty() ? "" : option->get_snames().front(), metavar(*option), option->get_description(), option->get_group(), repeats, choices});
  }
  return row;
}

// "batch = 128"
std::string assignment(const std::string& flag, const Setting& setting) {
  std::string values;
  for (const std::string& value : setting.values) values += (values.empty() ? "" : ", ") + value;
  return flag + " = " + values;
}

// Flags that were not given take their values from the configuration. Returns what to say of the current folder's file,
// which counts without being named.
std::vector<std::string> configure(CLI::App& sub, const Options& o) {
  const Configuration configuration = Configuration::read(command_table(), o.config.empty() ? std::nullopt : std::optional(o.config));
  std::vector<std::string> notes = configuration.notes();
  std::string taken;
  bool quiet_here = false;
  for (CLI::Option* option : sub.get_options()) {
    if (option->get_lnames().empty() || option->count() > 0) continue;
    const Setting* setting = configuration.find(sub.get_name(), option->get_lnames().front());
    if (!setting) continue;
    try {
      for (const std::string& value : setting->values) option->add_result(value);
      option->run_callback();
    } catch (const CLI::Error& e) {
      throw Error(ErrorKind::Type, fmt::format("{}: {}", setting->origin, e.what()), {}, {"'harmonics " + sub.get_name() + " --help' says what --" + option->get_lnames().front() + " takes"});
    }
    if (!Configuration::is_from_here(*setting)) continue;
    quiet_here |= option->get_lnames().front() == "quiet";
    taken += (taken.empty() ? "" : ", ") + assignment(option->get_lnames().front(), *setting);
  }
  if (!taken.empty()) notes.push_back("./harmonics.toml sets " + taken);
  if (o.quiet && !quiet_here) notes.clear();
  return notes;
}

// CLI11 lists what it could not place; the nearest flag or verb is what people want to know.
int wrong_use(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv) {
  if (e.get_exit_code() == 0) return app.exit(e), static_cast<int>(kDone);
  const CLI::App* sub = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
  Error error(ErrorKind::Usage, e.what());
  const auto* row = sub ? &*std::find_if(command_table().begin(), command_table().end(), [&](const VerbRow& r) { return r.name == sub->get_name(); }) : nullptr;
  std::vector<std::string> known;
  for (const VerbRow& verb : command_table())
    if (!row) known.push_back(verb.name);
  if (row)
    for (const FlagRow& f : row->flags) known.push_back("--" + f.name);
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (row ? word.rfind("--", 0) != 0 : word.rfind('-', 0) == 0) continue;
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    error = Error(ErrorKind::Usage, row ? fmt::format("'{}' has no flag {}", row->name, word) : fmt::format("there is no verb '{}'", word));
    if (auto near = nearest(word, known)) error.note("did you mean '" + *near + "'?");
    break;
  }
  error.note(row ? fmt::format("'harmonics {} --help' shows what it takes", row->name) : "'harmonics --help' shows the verbs");
  print_error(error);
  return kWrongUse;
}

}  // namespace

const FlagRow* VerbRow::find(const std::string& flag) const {
  for (const FlagRow& f : flags)
    if (f.name == flag) return &f;
  return nullptr;
}

const CommandTable& command_table() {
  static const CommandTable table = [] {
    Options unused;
    const std::unique_ptr<CLI::App> app = make_app(unused);
    CommandTable rows;
    for (const CLI::App* sub : app->get_subcommands({})) rows.push_back(row_of(*sub));
    return rows;
  }();
  return table;
}

std::optional<int> parse_options(int argc, char** argv, Options& o) {
  const std::unique_ptr<CLI::App> app = make_app(o);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return wrong_use(*app, e, argc, argv);
  }
  CLI::App& sub = *app->get_subcommands().front();
  o.verb = sub.get_name();
  o.command_line.assign(argv, argv + argc);
  const std::vector<std::string> notes = configure(sub, o);
  use_colours(o.color);
  for (const std::string& note : notes) print_note(note);
  return std::nullopt;
}

}  // namespace harmonics::cli
