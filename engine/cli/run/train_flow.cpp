#include "engine/cli/run/train_flow.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <fmt/core.h>

#include "dsl/load.hpp"
#include "engine/base/address.hpp"
#include "engine/base/file.hpp"
#include "engine/base/nearest_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/corpus/register.hpp"
#include "engine/execution/product_rates.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

namespace fs = std::filesystem;

std::string quoted_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// Checked here, because an error of the flow would point into its generated text.
void expect_model(const TrainSettings& s, const std::string& folder) {
  const bool described = s.model.empty();
  const std::string& model = described ? s.model_dsl : s.model;
  std::error_code failed;
  if (fs::exists(model, failed) || fs::exists(fs::path(folder) / model, failed) || builtin_ndsl(model)) return;
  Error e(ErrorKind::NoInput, fmt::format("{}: there is no '{}'", described ? "model_dsl" : "model", model));
  const std::string meant = did_you_mean(model, builtin_ndsl_models());
  if (const std::string advice = meant.empty() ? advice_for_missing(model) : meant; !advice.empty()) e.note(advice);
  throw e.note("give a file or folder, or the name of a built-in model: 'harmonics list models'");
}

std::string train_flow_text(const TrainSettings& s, const std::string& model, bool packed, int64_t steps) {
  std::string arguments = quoted_text(model) + ", name=\"model\"";
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) arguments += fmt::format(", {}={}", name, quoted_text(value));
  };
  if (packed) arguments += ", documents=documents";
  add("set", s.model_settings);
  add("lora", s.lora);
  add("type", s.base_type);
  std::string text = "harmonic train {\n  producer tokens;\n  producer next;\n";
  if (packed) text += "  producer documents;\n";
  text += fmt::format("  layer scores;\n  cycle (steps {}) {{\n", steps);
  text += fmt::format("    tokens -(model({}))-> scores;\n", arguments);
  text += fmt::format("    scores <-(cross_entropy(ignore_index={}))- next;\n  }}\n}}\n", kNotLearned);
  return text;
}

void create_folder(const std::string& path) {
  if (const int failed = make_directories(path); failed != 0)
    throw Error(ErrorKind::Output, fmt::format("cannot create '{}': {}", path, std::strerror(failed)), {},
                {"give another output_dir"});
}

// The address of one field of a corpus. `seed`: of the order of rows; "": as they come.
std::string corpus_address(const std::string& path, const char* producer, bool held_out, int64_t pass,
                           const std::string& seed) {
  Address address;
  address.scheme = "corpus";
  address.path = path;
  address.fragment = producer;
  if (held_out) address.options.push_back({"split", "validation"});
  if (pass > 0) address.options.push_back({"pass", std::to_string(pass)});
  if (!seed.empty()) address.options.push_back({"order-seed", seed});
  if (pass > 0) address.options.push_back({"shuffle", "0"});
  return std::string(producer) + "=" + address.str();
}

std::vector<std::string> corpus_addresses(const std::string& path, bool packed, bool held_out, int64_t pass,
                                          const std::string& seed) {
  std::vector<std::string> all;
  for (const char* producer : {"tokens", "next", "documents"})
    if (packed || std::strcmp(producer, "documents") != 0)
      all.push_back(corpus_address(path, producer, held_out, pass, seed));
  return all;
}

// A tokenizer that was made of the data is a file from then on, so that a run that is continued has the same.
void keep_tokenizer(const Corpus& corpus, CorpusOptions& options, const std::string& folder) {
  const std::string& json = corpus.tokenizer().json;
  if (json.empty()) return;
  options.tokenizer = folder + "/tokenizer.json";
  write_file_atomically(options.tokenizer, json);
}

void set_run(const TrainSettings& s, TrainPlan& plan) {
  Options& o = plan.options;
  RunSettings& run = o.run;
  run.batch = s.batch;
  run.accumulate = s.accumulate;
  run.steps = plan.steps;
  run.lr = s.learning_rate;
  run.optimizer = optimizer_text(s);
  run.schedule = schedule_text(s);
  run.clip = s.clip;
  run.seed = s.seed;
  run.until = s.stop_when;
  run.patience = s.patience;
  run.precision = parse_precision(s.precision);
  if (!s.recompute.empty()) run.recomputation = s.recompute;
  settle_precision(run, Registry::global(), run.deterministic);
  o.checkpoint = s.output + "/checkpoints";
  o.every = s.save_every > 0 ? fmt::format("{}steps", s.save_every) : "5m";
  o.keep = static_cast<int>(s.keep);
  if (s.keep_best > 0) o.keep_best = static_cast<int>(s.keep_best);
  run.guard = s.guard.value_or(LossGuardSettings());
  run.guard->folder = s.output + "/left_out";
  if (s.resume) o.resume = "";
  o.save = s.output + "/weights.safetensors";
  if (!s.lora.empty()) o.save_adapter = s.output + "/adapter";
  o.report = s.output + "/report.html";
  o.logs.push_back(s.output + "/log.jsonl");
  o.log_every = s.log_every;
  o.tokens_of_sample = static_cast<int64_t>(s.corpus.window);
  if (s.samples.prompts.empty()) return;
  o.samples = s.samples;
  if (o.samples.every <= 0) o.samples.every = plan.evaluate_every;
  o.samples.tokenizer = plan.corpus->tokenizer().tokenizer;
}

}  // namespace

TrainPlan plan_training(const TrainSettings& settings, const std::string& folder, const Options& given, bool write) {
  TrainPlan plan;
  plan.options = given;
  CorpusOptions data = settings.corpus;
  expect_model(settings, folder);
  plan.corpus = Corpus::open(data);
  const auto rows = static_cast<int64_t>(plan.corpus->rows());
  plan.rows_of_step = settings.batch * settings.accumulate;
  plan.steps_of_epoch = std::max<int64_t>(1, (rows + plan.rows_of_step - 1) / plan.rows_of_step);
  const double steps = std::ceil(settings.epochs * static_cast<double>(rows) / static_cast<double>(plan.rows_of_step));
  plan.steps = settings.steps.value_or(std::max<int64_t>(1, static_cast<int64_t>(std::min(steps, 1e15))));
  plan.evaluate_every = settings.evaluate_every > 0 ? settings.evaluate_every : plan.steps_of_epoch;
  plan.evaluate_every = std::min(plan.evaluate_every, plan.steps);

  CorpusOptions held = data;
  if (settings.validation_sets.empty()) {
    held.held_out = true;
  } else {
    held.datasets = settings.validation_sets;
    held.tokenizer = data.tokenizer;
  }
  const bool validates = data.validation > 0 || !settings.validation_sets.empty();
  if (write) {
    create_folder(settings.output);
    create_folder(settings.output + "/checkpoints");
    keep_tokenizer(*plan.corpus, data, settings.output);
    held.tokenizer = data.tokenizer;
  }
  if (validates) plan.validation = Corpus::open(held);
  const bool packed = plan.corpus->packs_documents() || (plan.validation && plan.validation->packs_documents());

  const auto described = [&](const CorpusOptions& options, const char* name) {
    const std::string text = corpus_json(options);
    if (!write) return text.substr(0, text.size() - 1);
    const std::string path = settings.output + "/" + name + ".corpus.json";
    write_file_atomically(path, text);
    return path;
  };
  const std::string seed = settings.shuffle ? std::to_string(settings.seed) : "";
  const std::string trained = described(data, "data");
  plan.options.producers = corpus_addresses(trained, packed, false, plan.evaluate_every * plan.rows_of_step, seed);
  if (validates) {
    const std::string other = settings.validation_sets.empty() ? trained : described(held, "validation");
    plan.options.validations = corpus_addresses(other, packed, settings.validation_sets.empty(), 0, "");
  }
  // A name that is no path is that of a built-in model.
  fs::path model = settings.model.empty() ? settings.model_dsl : settings.model;
  std::error_code failed;
  if (fs::exists(model, failed)) {
    model = fs::absolute(model);
    plan.options.weights_from.push_back(model.parent_path().string());
  }
  plan.flow =
      parse_flow(std::make_shared<SourceText>((fs::absolute(folder.empty() ? "." : folder) / "train.hmx").string(),
                                              train_flow_text(settings, model.string(), packed, plan.steps)));
  set_run(settings, plan);
  return plan;
}

}  // namespace harmonics::engine::cli
