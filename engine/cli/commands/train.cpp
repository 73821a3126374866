// harmonics train: trains a language model by a configuration, as a generated flow in an ordinary cycle.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "dsl/document/document.hpp"
#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/bound/prepared_step.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/commands/train_tokens.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/run/train_flow.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/corpus/live_corpus.hpp"
#include "engine/model/imported.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

void print_keys(const Options& options) {
  boost::json::array rows;
  for (const TrainKey& key : train_keys()) {
    boost::json::array aliases;
    std::string others;
    for (const char* alias : key.aliases) {
      aliases.emplace_back(alias);
      others += (others.empty() ? "" : ", ") + std::string(alias);
    }
    if (options.json) {
      rows.push_back(boost::json::object{{"name", key.name},
                                         {"aliases", std::move(aliases)},
                                         {"values", key.values},
                                         {"default", key.initial},
                                         {"text", key.text}});
      continue;
    }
    print("{}: {}{}\n", key.name, key.values, *key.initial ? fmt::format(" (default: {})", key.initial) : "");
    print("    {}{}\n", key.text, others.empty() ? "" : "; also " + others);
  }
  if (options.json) print_json(boost::json::object{{"version", 1}, {"keys", std::move(rows)}});
}

struct DataTotals {
  int64_t examples = 0, tokens = 0, skipped = 0;
};

DataTotals totals_of(const Corpus& corpus) {
  DataTotals totals;
  for (const DatasetCounts& set : corpus.counts()) {
    totals.examples += static_cast<int64_t>(set.examples);
    totals.tokens += static_cast<int64_t>(set.tokens);
    totals.skipped += static_cast<int64_t>(set.skipped + set.empty + set.malformed);
  }
  return totals;
}

void announce_validation(const TrainPlan& plan) {
  if (plan.validation_rows == 0) return;
  say(fmt::format("validation on {}{} every {}", plan.validates_live ? "the next " : "",
                  number_of(static_cast<uint64_t>(plan.validation_rows), "row"),
                  number_of(static_cast<uint64_t>(plan.evaluate_every), "step")));
}

// Prints a note if the run ends before the learning rate has risen.
void note_short_run(const TrainPlan& plan, const TrainSettings& settings) {
  const auto steps = static_cast<double>(plan.steps);
  if (steps == 0 || settings.warmup <= steps) return;
  print_note(fmt::format("warmup_steps is {:.0f}, but the run has {}: its learning rate ends at {:.3g}, not at {:.3g}",
                         settings.warmup, number_of(static_cast<uint64_t>(plan.steps), "step"),
                         settings.learning_rate * steps / settings.warmup, settings.learning_rate));
}

void announce_plan(const TrainPlan& plan, const TrainSettings& settings) {
  if (plan.options.quiet) return;
  note_short_run(plan, settings);
  const int64_t tokens = plan.rows_of_step * static_cast<int64_t>(settings.corpus.window);
  if (!plan.corpus) {
    say(fmt::format("{} of {} of {}, as they arrive: {} a step",
                    plan.steps > 0 ? number_of(static_cast<uint64_t>(plan.steps), "step") : "steps",
                    number_of(static_cast<uint64_t>(plan.rows_of_step), "row"),
                    number_of(settings.corpus.window, "token"), number_of(static_cast<uint64_t>(tokens), "token")));
    announce_validation(plan);
    return;
  }
  const double passes = static_cast<double>(plan.steps * plan.rows_of_step) / static_cast<double>(plan.corpus->rows());
  const std::string count =
      passes < 100 ? fmt::format("{:.3g}", passes) : thousands(static_cast<int64_t>(std::llround(passes)));
  say(fmt::format("{} of {} of {}: {} a step, {} pass{} over {}", number_of(static_cast<uint64_t>(plan.steps), "step"),
                  number_of(static_cast<uint64_t>(plan.rows_of_step), "row"),
                  number_of(settings.corpus.window, "token"), number_of(static_cast<uint64_t>(tokens), "token"), count,
                  passes == 1 ? "" : "es", number_of(plan.corpus->rows(), "row")));
  announce_validation(plan);
}

struct StepMemory {
  int64_t weights = 0, trained = 0;  // numbers of weights
  MemoryReport bytes;
};

// Returns the memory of one step, from its compiled plan.
StepMemory memory_of(BoundGraph& graph, const Options& options) {
  const ResolvedSettings settings = graph.settings(0, options.run);
  LoweringOptions o;
  o.mode = Mode::train;
  o.batch = settings.batch;
  o.seed = settings.seed;
  o.device = options.run;
  static_cast<UpdateSettings&>(o) = settings;
  if (settings.accumulate > 1) o.accumulate = 1;
  o.branches = graph.graph().branches(0);
  const Lowered lowered = graph.lower(o);
  const auto executable = compile(lowered.program, &graph.store(), graph.executor(options.run.threads),
                                  graph.compile_options(options.run, true));
  StepMemory memory;
  memory.bytes = executable->memory();
  for (const auto& [name, parameter] : graph.store().all())
    if (parameter.role != Role::moment) memory.weights += parameter.type.shape.count();
  for (const TrainedParameter& parameter : lowered.trained)
    memory.trained += graph.store().all().at(parameter.name).type.shape.count();
  return memory;
}

// Returns the measured seconds of a step on the first rows, after a step that touches the memory. Changes the weights
// of `graph`; nothing is saved.
double seconds_of_step(BoundGraph& graph, const Options& options) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTimed = 2;
  constexpr double kLongest = 30;  // seconds; no further step is measured after a longer one
  const ResolvedSettings settings = graph.settings(0, options.run);
  PreparedSettings prepared;
  static_cast<DeviceSettings&>(prepared) = options.run;
  prepared.trains = true;
  prepared.batch = settings.batch;
  prepared.threads = options.run.threads;
  prepared.seed = settings.seed;
  prepared.update = settings;
  const auto batch = static_cast<uint64_t>(settings.batch);
  PreparedStep step(graph, Rows(graph, 0, true, batch, settings.seed), prepared);
  step.run();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimed && (i == 0 || best < kLongest); ++i) {
    const auto begun = Clock::now();
    step.run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begun).count());
  }
  return best * static_cast<double>(settings.accumulate);
}

int dry_run(const TrainPlan& plan, const TrainSettings& settings) {
  const Options& options = plan.options;
  const std::unique_ptr<BoundGraph> graph = open_graph(plan.flow, options, false);
  const StepMemory memory = memory_of(*graph, options);
  const double seconds = seconds_of_step(*graph, options), all = seconds * static_cast<double>(plan.steps),
               rate_of_tokens = static_cast<double>(plan.rows_of_step) * static_cast<double>(settings.corpus.window) /
                                std::max(seconds, 1e-9);
  const DataTotals data = totals_of(*plan.corpus);
  if (options.json) {
    print_json(boost::json::object{{"version", 1},
                                   {"examples", data.examples},
                                   {"tokens", data.tokens},
                                   {"skipped_examples", data.skipped},
                                   {"rows", plan.corpus->rows()},
                                   {"validation_rows", plan.validation_rows},
                                   {"steps", plan.steps},
                                   {"tokens_of_step", plan.rows_of_step * static_cast<int64_t>(settings.corpus.window)},
                                   {"weights", memory.weights},
                                   {"arena_bytes", memory.bytes.arena_bytes},
                                   {"state_bytes", memory.bytes.state_bytes},
                                   {"seconds_of_step", seconds},
                                   {"seconds", all},
                                   {"tokens_per_second", rate_of_tokens},
                                   {"optimizer", *options.run.optimizer},
                                   {"schedule", *options.run.schedule}});
    return kDone;
  }
  const auto megabytes = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  print("weights    {} numbers{}\n", thousands(memory.weights),
        memory.trained < memory.weights ? fmt::format(", {} of them trained", thousands(memory.trained)) : "");
  print("data       {}, {}, {}\n", number_of(static_cast<uint64_t>(data.examples), "example"),
        number_of(static_cast<uint64_t>(data.tokens), "token"), number_of(plan.corpus->rows(), "row"));
  print("steps      {}, of {} tokens\n", thousands(plan.steps),
        thousands(plan.rows_of_step * static_cast<int64_t>(settings.corpus.window)));
  print("memory     {:.1f} MiB of weights and moments, {:.1f} MiB for a batch\n", megabytes(memory.bytes.state_bytes),
        megabytes(memory.bytes.arena_bytes));
  print("time       {} a step, {}; {} in all, without validation\n", duration(seconds), rate(rate_of_tokens, "tokens"),
        duration(all));
  print("training   {}, {}\n", *options.run.optimizer, *options.run.schedule);
  return kDone;
}

// Adds the tokenizer to a folder with weights: copies its files, and the chat template used in training.
void add_tokenizer(const TrainSettings& settings, const std::string& tokenizer, const std::string& folder) {
  std::error_code failed;
  const bool is_json = tokenizer.ends_with(".json") && std::filesystem::is_regular_file(tokenizer, failed);
  if (is_json || std::filesystem::is_directory(tokenizer, failed)) copy_tokenizer_files(tokenizer, folder);
  if (const std::string& chat = settings.corpus.chat_template; !chat.empty())
    write_file_atomically(folder + "/chat_template.jinja", read_plain_file(chat));
}

// Throws if a checkpoint has more steps than the run.
void expect_steps(const Checkpoint& checkpoint, const TrainPlan& plan, const TrainSettings& settings) {
  const int64_t step = checkpoint.state.step;
  if (plan.steps == 0 || step <= plan.steps) return;
  const std::string limit = settings.steps ? fmt::format("max_steps is {}", *settings.steps)
                                           : fmt::format("num_epochs: {:g} gives {}", settings.epochs,
                                                         number_of(static_cast<uint64_t>(plan.steps), "step"));
  throw Error(ErrorKind::Usage, fmt::format("the checkpoint is already at step {}, but {}", thousands(step), limit), {},
              {fmt::format("to train further, raise it: --set {}",
                           settings.steps ? fmt::format("max_steps={}", 2 * step) : std::string("num_epochs=EPOCHS")),
               "to start again, give another output_dir"});
}

// Writes a folder of the model with its new weights, for generate, chat and serve. Returns an exit code. The weights
// themselves are already saved.
int write_folder(const TrainSettings& settings, const std::string& tokenizer, bool quiet) {
  Options of_export;
  of_export.verb = "export";
  const bool described = settings.model.empty();
  of_export.files = {described ? settings.model_dsl : settings.model, settings.output + "/model/"};
  of_export.weights = settings.output + "/weights.safetensors";
  if (described) of_export.tokenizer = tokenizer;
  for (const auto& [name, value] : settings_in(settings.model_settings).value_or(std::map<std::string, std::string>()))
    of_export.set.push_back(name + "=" + value);
  of_export.quiet = true;
  try {
    export_command(of_export);
    add_tokenizer(settings, tokenizer, of_export.files.back());
    if (!quiet) say("model: " + of_export.files.back());
    return kDone;
  } catch (const Error& e) {
    print_error(Error(e.kind(), fmt::format("the model was not written as a folder: {}", e.what()), {},
                      {fmt::format("its weights are in {}: harmonics export {} FOLDER/ --weights {}", of_export.weights,
                                   cli::quoted(of_export.files.front()), cli::quoted(of_export.weights))}));
    return exit_code(e.kind());
  }
}

}  // namespace

int train_command(const Options& options) {
  if (options.keys) {
    print_keys(options);
    return kDone;
  }
  if (options.files.empty())
    throw Error(ErrorKind::Usage, "'train' lacks CONFIG", {},
                {"write harmonics train config.yaml; 'harmonics train --keys' lists its keys"});
  const std::string& path = options.files.front();
  if (path.ends_with(".hmx"))
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is a flow; 'train' takes the configuration of a language model", path), {},
                {fmt::format("train a flow with: harmonics run {}", path)});
  if (path.ends_with(".ndsl"))
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is a model; 'train' takes the configuration of a language model", path), {},
                {fmt::format("name it in a configuration: model_dsl: {}", path)});
  if (!path.ends_with(".json") && is_model(path, Registry::global()))
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is a model; 'train' takes the configuration of a language model", path), {},
                {fmt::format("name it in a configuration: model: {}", path)});
  if (!options.replay.empty()) refuse_beside(options, {"resume", "dry-run"}, "--replay");
  const auto source = std::make_shared<SourceText>(path, read_plain_file(path));
  TrainSettings written;  // settings as in the configuration
  std::optional<TokensAdded> tokens;
  TrainPlan plan;
  const int checked = with_source(source, [&] {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    const document::Document given = document::parse_document(source);
    if (given.root.kind == document::Kind::null)
      throw Error(ErrorKind::Syntax, fmt::format("'{}' is empty; it must be a map of keys and values", path), {},
                  {"'harmonics train --keys' lists the keys"});
    written = read_train_settings(given, options.set, folder);
    for (const std::string& note : written.notes) print_note(note);
    if (options.resume || !options.replay.empty()) written.resume = true;
    if (options.dry_run && is_live_corpus(written.corpus))
      throw Error(ErrorKind::Usage,
                  fmt::format("--dry-run reads the data, but '{}' is a stream", written.corpus.datasets.front().path),
                  {}, {"leave it out, or name a file with the same examples"});
    if (!options.dry_run && !written.special_tokens.empty()) expect_unused(written);
    tokens.emplace(written, !options.dry_run, options.quiet);
    const TrainSettings& settings = tokens->settings();
    Options of_run = options;
    of_run.set.clear();
    if (!options.replay.empty()) {
      plan = plan_replay(settings, folder, of_run, options.replay);
      return kDone;
    }
    plan = plan_training(settings, folder, of_run, !options.dry_run);
    if (options.resume && !options.resume->empty()) plan.options.resume = options.resume;
    return kDone;
  });
  if (checked != kDone) return checked;
  if (!options.replay.empty()) {
    if (!options.quiet)
      say(plan.options.weights.empty() ? std::string("one step with the first weights")
                                       : "one step with the weights of " + plan.options.weights);
    return run_flow(plan.flow, plan.options);
  }
  const TrainSettings& settings = tokens->settings();
  announce_plan(plan, settings);
  if (options.dry_run) return with_source(nullptr, [&] { return dry_run(plan, settings); });
  // The configuration replaces that of the resumed run only once its checkpoint was restored.
  const RunEvents events{
      [&](const Checkpoint& checkpoint) { expect_steps(checkpoint, plan, settings); },
      [&] { write_file_atomically(settings.output + "/config.yaml", train_settings_text(written)); }};
  const int code = run_flow(plan.flow, plan.options, events);
  if (code != kDone) return code;
  const std::string kept = settings.output + "/tokenizer.json";
  std::error_code failed;
  const std::string tokenizer = std::filesystem::exists(kept, failed) ? kept : settings.corpus.tokenizer;
  if (!settings.lora.empty())
    add_tokenizer(settings, tokenizer, settings.output + "/adapter");
  else if (settings.model.empty() || is_model(settings.model, Registry::global()))
    return write_folder(settings, tokenizer, options.quiet);
  return code;
}

}  // namespace harmonics::engine::cli
