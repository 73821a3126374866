#include "engine/cli/run/train_flow.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/core.h>

#include "dsl/load.hpp"
#include "engine/base/address.hpp"
#include "engine/base/file.hpp"
#include "engine/base/nearest_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"
#include "engine/corpus/live_corpus.hpp"
#include "engine/corpus/register.hpp"
#include "engine/execution/product_rates.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kSampledEvery = 100;  // default number of steps without validations

std::string quoted_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// The second model of the flow, which is not trained.
struct OtherModel {
  const char* layer = nullptr;  // null: there is none
  std::string path;
  bool is_initial = false;  // the trained model before training
};

OtherModel other_model(const TrainSettings& s) {
  if (s.distillation) return {"teacher", s.distillation->teacher};
  if (!s.preferences) return {};
  if (s.preferences->reference.empty()) return {"reference", s.model, true};
  return {"reference", s.preferences->reference};
}

std::string model_call(const std::string& path, bool packed, const std::map<std::string, std::string>& arguments) {
  std::string text = quoted_text(path);
  if (packed) text += ", documents=documents";
  for (const auto& [name, value] : arguments)
    if (!value.empty()) text += fmt::format(", {}={}", name, quoted_text(value));
  return text;
}

// `from`: the adapter to train further.
std::string train_flow_text(const TrainSettings& s, const std::string& model, const std::string& from,
                            const OtherModel& other, bool packed) {
  std::map<std::string, std::string> initial{{"set", s.model_settings}, {"type", s.base_type}}, trained = initial;
  trained["name"] = "model";
  trained["lora"] = from.empty() ? s.lora : s.lora + ", from=" + from;
  initial["adapter"] = from;
  std::string text = "harmonic train {\n  producer tokens;\n  producer next;\n";
  if (packed) text += "  producer documents;\n";
  text += "  layer scores;\n";
  if (other.layer) text += fmt::format("  layer {};\n", other.layer);
  text += "  cycle {\n";
  text += fmt::format("    tokens -(model({}))-> scores;\n", model_call(model, packed, trained));
  if (other.layer) {
    std::map<std::string, std::string> frozen = other.is_initial ? initial : std::map<std::string, std::string>{};
    frozen["name"] = other.layer;
    text += fmt::format("    tokens -(model({}, freeze=true))-> {};\n", model_call(other.path, packed, frozen),
                        other.layer);
  }
  text += fmt::format("    scores <-({})- next;\n  }}\n}}\n", train_losses_text(s));
  return text;
}

// The rows of a corpus to read.
struct RowsRead {
  bool held_out = false;
  int64_t pass = 0;  // rows per pass; 0: all
  std::string seed;  // shuffles the rows; "": in order
  int64_t most = 0;  // maximum number of rows; 0: all
};

// Returns the address of a field of a corpus.
std::string corpus_address(const std::string& path, const char* producer, const RowsRead& rows) {
  Address address;
  address.scheme = "corpus";
  address.path = path;
  address.fragment = producer;
  const auto add = [&](const char* name, const std::string& value) { address.options.push_back({name, value}); };
  if (rows.held_out) add("split", "validation");
  if (rows.pass > 0) add("pass", std::to_string(rows.pass));
  if (!rows.seed.empty()) add("order-seed", rows.seed);
  if (rows.pass > 0) add("shuffle", "0");
  if (rows.most > 0) add("take", std::to_string(rows.most));
  return std::string(producer) + "=" + address.str();
}

std::vector<std::string> corpus_addresses(const std::string& path, bool packed, const RowsRead& rows) {
  std::vector<std::string> all;
  for (const char* producer : {"tokens", "next", "documents"})
    if (packed || std::strcmp(producer, "documents") != 0) all.push_back(corpus_address(path, producer, rows));
  return all;
}

// Writes a tokenizer made from the data to a file, so that a resumed run uses the same one.
void keep_tokenizer(const CorpusTokenizer& made, CorpusOptions& options, const std::string& folder) {
  const std::string& json = made.json;
  if (json.empty()) return;
  options.tokenizer = folder + "/tokenizer.json";
  write_file_atomically(options.tokenizer, json);
}

// A resumed run keeps its characters: after a change of the texts, new ones would shift the numbers of the others.
void reuse_characters(const TrainSettings& settings, CorpusOptions& options) {
  const std::string kept = settings.output + "/tokenizer.json";
  std::error_code failed;
  if (!settings.resume || options.tokenizer != "characters" || !fs::exists(kept, failed)) return;
  if (CheckpointFolder(settings.output + "/checkpoints").list().empty()) return;
  if (holds_characters(read_plain_file(kept))) options.tokenizer = kept;
}

// Sets the options of learning.
void set_learning(const TrainSettings& s, TrainPlan& plan) {
  Options& o = plan.options;
  RunSettings& run = o.run;
  run.batch = s.batch;
  run.accumulate = s.accumulate;
  if (plan.steps > 0) run.steps = plan.steps;
  if (!plan.corpus && plan.evaluate_every > 0) run.validate_every = plan.evaluate_every;
  run.lr = s.learning_rate;
  run.optimizer = optimizer_text(s);
  run.schedule = schedule_text(s);
  run.clip = s.clip;
  run.seed = s.seed;
  run.precision = parse_precision(s.precision);
  if (!s.recompute.empty()) run.recomputation = s.recompute;
  settle_precision(run, Registry::global(), run.deterministic);
  o.log_every = s.log_every;
  o.tokens_of_sample = static_cast<int64_t>(s.corpus.window);
  o.has_perplexity = !s.preferences && !s.distillation;
}

// Sets the end of the run and its outputs.
void set_outputs(const TrainSettings& s, TrainPlan& plan) {
  Options& o = plan.options;
  o.run.until = s.stop_when;
  o.run.patience = s.patience;
  o.run.guard = s.guard.value_or(LossGuardSettings());
  o.run.guard->folder = s.output + "/skipped_batches";
  o.checkpoint = s.output + "/checkpoints";
  o.every = s.save_every > 0 ? fmt::format("{}steps", s.save_every) : "5m";
  o.keep = static_cast<int>(s.keep);
  if (s.keep_best > 0) o.keep_best = static_cast<int>(s.keep_best);
  if (s.resume) o.resume = "";
  o.save = s.output + "/weights.safetensors";
  if (!s.lora.empty()) o.save_adapter = s.output + "/adapter";
  o.report = s.output + "/report.html";
  o.logs.push_back(s.output + "/log.jsonl");
  if (s.samples.prompts.empty()) return;
  o.samples = s.samples;
  if (o.samples.every <= 0) o.samples.every = plan.evaluate_every > 0 ? plan.evaluate_every : kSampledEvery;
  o.samples.tokenizer = plan.tokenizer.tokenizer;
}

// Throws unless preference data and the setting of preferences occur together.
void expect_pairs(const TrainSettings& s, const Corpus& corpus) {
  if (corpus.has_pairs() == s.preferences.has_value()) return;
  const std::string& path = corpus.counts().front().path;
  if (s.preferences)
    throw Error(ErrorKind::Usage, fmt::format("'dpo' learns from preferences, but '{}' has none", path))
        .note("each example needs 'chosen' and 'rejected'; columns: names fields that are called otherwise");
  throw Error(ErrorKind::Usage, fmt::format("'{}' has preferences, with a chosen and a rejected answer", path))
      .note("add dpo: {beta: 0.1} to learn them");
}

// Throws for settings that a live stream does not support, because its end is unknown.
void expect_live(const TrainSettings& s) {
  const std::string& path = s.corpus.datasets.front().path;
  if (!s.validation_sets.empty() && s.evaluate_every == 0)
    throw Error(ErrorKind::Usage, fmt::format("'{}' is a stream: its run has no epochs after which it validates", path))
        .note("say after how many steps it does: eval_steps: 100");
  if (!s.steps && s.schedule != "constant")
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is a stream without a known end, which the schedule {} needs", path, s.schedule))
        .note("give max_steps, or lr_scheduler: constant");
}

// Sets the number of steps for data of known size.
void count_steps(const TrainSettings& s, TrainPlan& plan) {
  const auto rows = static_cast<int64_t>(plan.corpus->rows());
  plan.steps_of_epoch = std::max<int64_t>(1, (rows + plan.rows_of_step - 1) / plan.rows_of_step);
  const double steps = std::ceil(s.epochs * static_cast<double>(rows) / static_cast<double>(plan.rows_of_step));
  plan.steps = s.steps.value_or(std::max<int64_t>(1, static_cast<int64_t>(std::min(steps, 1e15))));
  plan.steps_of_pass = s.evaluate_every > 0 ? s.evaluate_every : plan.steps_of_epoch;
  plan.evaluate_every = std::min(plan.steps_of_pass, plan.steps);
}

// Generates the flow of the run.
void make_flow(const TrainSettings& s, const std::string& folder, bool packed, TrainPlan& plan) {
  // The name of a built-in model is not a path and is kept.
  const auto path_of = [&](fs::path model) {
    std::error_code failed;
    if (!fs::exists(model, failed)) return model.string();
    model = fs::absolute(model).lexically_normal();
    if (!model.has_filename()) model = model.parent_path();  // the path ends with a slash
    plan.options.weights_from.push_back(model.parent_path().string());
    return model.string();
  };
  plan.options.generated_flow = true;
  const std::string model = path_of(s.model.empty() ? s.model_dsl : s.model);
  OtherModel other = other_model(s);
  if (other.layer) other.path = path_of(other.path);
  std::error_code failed;
  if (!s.lora_from.empty() && !fs::exists(s.lora_from, failed))
    throw Error(ErrorKind::NoInput, fmt::format("there is no adapter '{}'", s.lora_from), {},
                {"give the folder of an adapter as PEFT writes it, or a file of GGUF"});
  const std::string from = s.lora_from.empty() ? "" : path_of(s.lora_from);
  plan.flow =
      parse_flow(std::make_shared<SourceText>((fs::absolute(folder.empty() ? "." : folder) / "train.hmx").string(),
                                              train_flow_text(s, model, from, other, packed)));
}

// A stream is opened by the run: what it reads is gone. Returns whether its rows have several documents.
bool expect_stream(const TrainSettings& settings, CorpusOptions& data) {
  if (settings.preferences) data.datasets.front().kind = ExampleKind::preference;
  expect_live_corpus(data);
  return settings.preferences || data.packing == RowPacking::pack;
}

// Opens the training data. Returns whether the rows have several documents.
bool open_training(const TrainSettings& settings, CorpusOptions& data, TrainPlan& plan) {
  if (is_live_corpus(data)) {
    expect_live(settings);
    plan.steps = settings.steps.value_or(0);
    plan.evaluate_every = settings.validation_sets.empty() ? 0 : settings.evaluate_every;
    const bool several = expect_stream(settings, data);
    plan.tokenizer = open_corpus_tokenizer(data.tokenizer, data.chat_template, {});
    return several;
  }
  plan.corpus = Corpus::open(data);
  plan.tokenizer = plan.corpus->tokenizer();
  count_steps(settings, plan);
  expect_pairs(settings, *plan.corpus);
  return plan.corpus->packs_documents();
}

// Opens the data to validate on, if there are any. Returns whether the rows have several documents.
bool open_validation(const TrainSettings& settings, CorpusOptions& held, TrainPlan& plan) {
  if (settings.corpus.validation == 0 && settings.validation_sets.empty()) return false;
  plan.validation_rows = settings.validation_rows;
  if (is_live_corpus(held)) {
    plan.validates_live = true;
    CorpusOptions stream = held;
    if (plan.corpus) stream.tokenizer.clear();  // the characters of the training data are known
    const bool several = expect_stream(settings, stream);
    held.datasets = stream.datasets;
    return several;
  }
  plan.validation = Corpus::open(held);
  expect_pairs(settings, *plan.validation);
  const auto rows = static_cast<int64_t>(plan.validation->rows());
  plan.validation_rows = plan.validation_rows > 0 ? std::min(plan.validation_rows, rows) : rows;
  return plan.validation->packs_documents();
}

}  // namespace

void create_output_folder(const std::string& path) {
  if (const int failed = make_directories(path); failed != 0)
    throw Error(ErrorKind::Output, fmt::format("cannot create '{}': {}", path, std::strerror(failed)), {},
                {"give another output_dir"});
}

void expect_unused(const TrainSettings& settings) {
  const std::string folder = settings.output + "/checkpoints";
  std::error_code failed;
  if (settings.resume || !fs::is_directory(folder, failed) || CheckpointFolder(folder).list().empty()) return;
  throw Error(ErrorKind::Usage, fmt::format("'{}' holds the checkpoints of a run", folder), {},
              {"add --resume to continue that run, or give another output_dir"});
}

TrainPlan plan_training(const TrainSettings& settings, const std::string& folder, const Options& given, bool write) {
  TrainPlan plan;
  plan.options = given;
  plan.rows_of_step = settings.batch * settings.accumulate;
  CorpusOptions data = settings.corpus;
  reuse_characters(settings, data);
  CorpusOptions held = data;
  held.held_out = settings.validation_sets.empty();
  if (!held.held_out) held.datasets = settings.validation_sets;
  const bool packs = open_training(settings, data, plan);
  const bool packed = open_validation(settings, held, plan) || packs;
  if (write) {
    create_output_folder(settings.output);
    create_output_folder(settings.output + "/checkpoints");
    expect_unused(settings);
    keep_tokenizer(plan.tokenizer, data, settings.output);
    held.tokenizer = data.tokenizer;
  }
  const auto described = [&](const CorpusOptions& options, const char* name) {
    const std::string text = corpus_json(options);
    if (!write) return text.substr(0, text.size() - 1);
    const std::string path = settings.output + "/" + name + ".corpus.json";
    write_file_atomically(path, text);
    return path;
  };
  const bool live = !plan.corpus;
  const std::string seed = settings.shuffle && !live ? std::to_string(settings.seed) : "";
  const std::string trained = described(data, "data");
  plan.options.producers =
      corpus_addresses(trained, packed, {false, live ? 0 : plan.steps_of_pass * plan.rows_of_step, seed});
  if (plan.validation || (plan.validates_live && write)) {
    const std::string other = settings.validation_sets.empty() ? trained : described(held, "validation");
    plan.options.validations =
        corpus_addresses(other, packed, {settings.validation_sets.empty(), 0, "", settings.validation_rows});
  }
  make_flow(settings, folder, packed, plan);
  set_learning(settings, plan);
  set_outputs(settings, plan);
  return plan;
}

TrainPlan plan_replay(const TrainSettings& settings, const std::string& folder, const Options& given,
                      const std::string& batch) {
  const TensorFile file = read_safetensors(batch);
  const auto tokens = file.tensors.find("tokens");
  if (tokens == file.tensors.end() || !file.tensors.count("next") || tokens->second.rank() != 2)
    throw Error(ErrorKind::Stream,
                fmt::format("'{}' is not a batch of a language model: it lacks 'tokens' or 'next'", batch))
        .note("the loss guard writes such files to 'skipped_batches' in the output folder");
  TrainPlan plan;
  plan.options = given;
  plan.rows_of_step = tokens->second.shape()[0];
  plan.steps = 1;
  make_flow(settings, folder, file.tensors.count("documents") != 0, plan);
  set_learning(settings, plan);
  Options& o = plan.options;
  o.run.batch = plan.rows_of_step;
  o.run.accumulate = 1;
  for (const char* name : {"tokens", "next", "documents"})
    if (file.tensors.count(name)) o.producers.push_back(fmt::format("{0}={1}#{0}", name, batch));
  o.no_keep = true;
  std::vector<std::string> notes;
  const auto newest = CheckpointFolder(settings.output + "/checkpoints").newest(notes);
  if (newest && o.weights.empty()) o.weights = newest->path;
  return plan;
}

}  // namespace harmonics::engine::cli
