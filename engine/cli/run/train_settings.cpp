#include "engine/cli/run/train_settings.hpp"

#include <algorithm>
#include <limits>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/corpus/live_corpus.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr int64_t kMostSteps = int64_t{1} << 40;

// ---- readers of values, one per row of the table ----

using TakeValue = std::function<void(TrainSettings&, const document::Node&, document::Problems&)>;

std::string in_quotes(const char* key) { return fmt::format("'{}'", key); }

TakeValue text_key(const char* key, std::string TrainSettings::*to) {
  return [=](TrainSettings& s, const document::Node& node, document::Problems& problems) {
    if (node.kind == document::Kind::scalar && !node.text.empty())
      s.*to = node.text;
    else
      problems.expected(node, in_quotes(key), "a string");
  };
}

TakeValue corpus_text_key(const char* key, std::string CorpusOptions::*to) {
  return [=](TrainSettings& s, const document::Node& node, document::Problems& problems) {
    if (node.kind == document::Kind::scalar && !node.text.empty())
      s.corpus.*to = node.text;
    else
      problems.expected(node, in_quotes(key), "a string");
  };
}

template <typename Take>
TakeValue whole_key(const char* key, int64_t least, int64_t most, Take take) {
  return [=](TrainSettings& s, const document::Node& node, document::Problems& problems) {
    const auto value = document::whole_of(node);
    if (value && *value >= least && *value <= most)
      take(s, *value);
    else
      problems.expected(node, in_quotes(key),
                        most >= kMostSteps ? fmt::format("a whole number of at least {}", least)
                                           : fmt::format("a whole number from {} to {}", least, most));
  };
}

template <typename Take>
TakeValue real_key(const char* key, double least, double most, bool above, Take take) {
  return [=](TrainSettings& s, const document::Node& node, document::Problems& problems) {
    const auto value = document::real_of(node);
    if (value && (above ? *value > least : *value >= least) && *value <= most)
      take(s, *value);
    else
      problems.expected(node, in_quotes(key),
                        fmt::format("a number {} {:g}{}", above ? "above" : "of at least", least,
                                    most < 1e300 ? fmt::format(" and at most {:g}", most) : ""));
  };
}

template <typename Take>
TakeValue truth_key(const char* key, Take take) {
  return [=](TrainSettings& s, const document::Node& node, document::Problems& problems) {
    const auto value = document::truth_of(node);
    if (value)
      take(s, *value);
    else
      problems.expected(node, in_quotes(key), "true or false");
  };
}

using WordChoice = std::pair<const char*, const char*>;  // the word in other programs, and the word here

template <typename Take>
TakeValue word_key(const char* key, std::vector<WordChoice> words, Take take) {
  return [=](TrainSettings& s, const document::Node& node, document::Problems& problems) {
    std::vector<std::string> known;
    for (const auto& [word, own] : words) {
      if (node.kind == document::Kind::scalar && node.text == word) return take(s, own);
      known.emplace_back(word);
    }
    const std::string meant = node.kind == document::Kind::scalar ? did_you_mean(node.text, known) : "";
    problems.add(
        node.span,
        fmt::format("{} is {}; it is one of {}", in_quotes(key), document::what_is(node), comma_separated(known)),
        meant);
  };
}

// ---- data sets ----

const char* const kDatasetKeys[] = {"path", "type", "weight", "columns", "train_on_inputs"};

void read_columns(const document::Node& node, DatasetOptions& set, document::Problems& problems) {
  if (node.kind != document::Kind::map)
    return problems.expected(node, "'columns'", "a map: what a field holds, and its name");
  for (const document::Entry& entry : node.entries) {
    if (entry.value.kind != document::Kind::scalar) {
      problems.expected(entry.value, "'" + entry.key + "'", "the name of a field");
      continue;
    }
    try {
      const Columns one = parse_columns(entry.key + ":" + entry.value.text);
      set.columns.insert(one.begin(), one.end());
    } catch (const Error& e) {
      problems.add(entry.place, e.what(), e.notes().empty() ? "" : e.notes().front());
    }
  }
}

DatasetOptions read_dataset(const document::Node& node, document::Problems& problems) {
  DatasetOptions set;
  if (node.kind == document::Kind::scalar) {  // only the path
    set.path = node.text;
    return set;
  }
  // YAML reads an address without quotes that ends with a colon as a key.
  if (node.entries.size() == 1 && node.entries.front().key == "stdin" &&
      node.entries.front().value.kind == document::Kind::null) {
    problems.add(node.span, "a data set has the key 'stdin'", "write the address in quotes: 'stdin:'");
    return set;
  }
  document::Fields fields(node, problems, "a data set");
  if (fields.need("path")) set.path = fields.text("path").value_or("");
  if (const document::Node* type = fields.find("type")) {
    try {
      set.kind = example_kind_named(type->text);
    } catch (const Error& e) {
      problems.add(type->span, e.what(), e.notes().empty() ? "" : e.notes().front());
    }
  }
  set.weight = fields.real("weight", 1e-9, 1e9).value_or(0);
  if (const document::Node* columns = fields.find("columns")) read_columns(*columns, set, problems);
  set.learns_prompts = fields.truth("train_on_inputs").value_or(false);
  fields.finish();
  return set;
}

TakeValue datasets_key(const char* key, std::vector<DatasetOptions>& (*to)(TrainSettings&)) {
  return [=](TrainSettings& s, const document::Node& node, document::Problems& problems) {
    std::vector<DatasetOptions>& sets = to(s);
    sets.clear();
    if (node.kind == document::Kind::list)
      for (const document::Node& item : node.items) sets.push_back(read_dataset(item, problems));
    else if (node.kind == document::Kind::map || node.kind == document::Kind::scalar)
      sets.push_back(read_dataset(node, problems));
    if (sets.empty()) problems.expected(node, in_quotes(key), "a list of data sets");
  };
}

void take_optimizer(TrainSettings& s, const char* own) { s.optimizer = own; }
void take_schedule(TrainSettings& s, const char* own) { s.schedule = own; }

const std::vector<WordChoice> kOptimizers = {{"adamw", "adamw"},
                                             {"adamw_torch", "adamw"},
                                             {"adamw_torch_fused", "adamw"},
                                             {"adamw_8bit", "adamw(moments=q8)"},
                                             {"adamw_bnb_8bit", "adamw(moments=q8)"},
                                             {"paged_adamw_8bit", "adamw(moments=q8)"},
                                             {"adam", "adam"},
                                             {"sgd", "sgd"},
                                             {"rmsprop", "rmsprop"},
                                             {"lamb", "lamb"},
                                             {"lion", "lion"},
                                             {"lion_8bit", "lion(moments=q8)"},
                                             {"normuon", "normuon"}};
const std::vector<WordChoice> kSchedules = {
    {"constant", "constant"},      {"constant_with_warmup", "constant"}, {"linear", "linear"},
    {"cosine", "cosine"},          {"cosine_with_min_lr", "cosine"},     {"wsd", "wsd"},
    {"warmup_stable_decay", "wsd"}};

std::vector<TrainKey> data_keys() {
  using S = TrainSettings;
  return {
      {"model",
       {"base_model", "model_name_or_path"},
       "a file or folder",
       "",
       "the model to fine-tune: a Hugging Face folder, a GGUF file, or another file that an importer reads",
       text_key("model", &S::model)},
      {"model_dsl",
       {},
       "a .ndsl file",
       "",
       "the architecture of a model to train from random weights",
       text_key("model_dsl", &S::model_dsl)},
      {"tokenizer",
       {"tokenizer_name", "tokenizer_path"},
       "a file, a folder, characters or bytes",
       "",
       "the tokenizer; default: the model's own; characters: one token for each character of the data; bytes: for each "
       "byte",
       corpus_text_key("tokenizer", &CorpusOptions::tokenizer)},
      {"chat_template",
       {"chat_template_file"},
       "a file",
       "",
       "chat template (Jinja); default: the model's own, else ChatML",
       corpus_text_key("chat_template", &CorpusOptions::chat_template)},
      {"datasets",
       {"dataset", "train_file"},
       "a list of data sets",
       "",
       "the training data; each item is a path, or a map with path, type, weight, columns and train_on_inputs",
       datasets_key("datasets", [](S& s) -> std::vector<DatasetOptions>& { return s.corpus.datasets; })},
      {"validation",
       {"val_set_size", "validation_split"},
       "a number of at least 0 and below 1",
       "0",
       "fraction of the examples held out for validation, selected by a hash of each; of plain text, its end",
       real_key("validation", 0, 0.999, false, [](S& s, double v) { s.corpus.validation = v; })},
      {"validation_datasets",
       {"test_datasets", "validation_file"},
       "a list of data sets",
       "",
       "data sets for validation, instead of a fraction of the training data",
       datasets_key("validation_datasets", [](S& s) -> std::vector<DatasetOptions>& { return s.validation_sets; })},
      {"sequence_len",
       {"max_seq_length", "max_length", "cutoff_len", "block_size"},
       "a whole number of at least 1",
       "512, or the model's context if that is shorter",
       "number of tokens in a row",
       whole_key("sequence_len", 1, 1 << 24, [](S& s, int64_t v) { s.corpus.window = static_cast<uint64_t>(v); })},
      {"sample_packing",
       {"packing"},
       "true or false",
       "true for plain text, else false",
       "put several examples in one row; attention does not cross their boundaries",
       truth_key("sample_packing", [](S& s, bool v) { s.sample_packing = v; })},
      {"too_long",
       {"excess_length_strategy"},
       "error, skip, truncate or split",
       "skip",
       "how to treat examples longer than a row; plain text is always split into rows",
       word_key("too_long",
                {{"error", "0"}, {"raise", "0"}, {"skip", "1"}, {"drop", "1"}, {"truncate", "2"}, {"split", "3"}},
                [](S& s, const char* own) { s.corpus.too_long = static_cast<TooLong>(*own - '0'); })},
      {"skip_malformed",
       {},
       "true or false",
       "false",
       "skip and count unreadable examples instead of stopping with an error",
       truth_key("skip_malformed", [](S& s, bool v) { s.corpus.skip_malformed = v; })},
      {"shuffle", {}, "true or false", "true", "shuffle the rows in each pass", truth_key("shuffle", [](S& s, bool v) {
         s.shuffle = v;
       })}};
}

std::vector<TrainKey> update_keys() {
  using S = TrainSettings;
  constexpr double kAny = std::numeric_limits<double>::infinity();
  return {{"micro_batch_size",
           {"per_device_train_batch_size", "batch_size"},
           "a whole number of at least 1",
           "8",
           "number of rows in a batch",
           whole_key("micro_batch_size", 1, 1 << 20, [](S& s, int64_t v) { s.batch = v; })},
          {"gradient_accumulation_steps",
           {"grad_accum"},
           "a whole number of at least 1",
           "1",
           "batches per step; their gradients are averaged",
           whole_key("gradient_accumulation_steps", 1, 1 << 20, [](S& s, int64_t v) { s.accumulate = v; })},
          {"max_steps",
           {"max_iters"},
           "a whole number of at least 1",
           "",
           "maximum number of steps; default: num_epochs decides",
           whole_key("max_steps", 1, kMostSteps, [](S& s, int64_t v) { s.steps = v; })},
          {"num_epochs",
           {"num_train_epochs", "epochs"},
           "a number above 0",
           "1",
           "number of passes over the data",
           real_key("num_epochs", 0, 1e6, true, [](S& s, double v) { s.epochs = v; })},
          {"learning_rate",
           {"lr"},
           "a number above 0",
           "0.001",
           "the largest learning rate of the run",
           real_key("learning_rate", 0, kAny, true, [](S& s, double v) { s.learning_rate = v; })},
          {"lr_scheduler",
           {"lr_scheduler_type"},
           "constant, linear, cosine or wsd",
           "cosine",
           "learning rate schedule",
           word_key("lr_scheduler", kSchedules, take_schedule)},
          {"warmup_steps",
           {"warmup_iters"},
           "a whole number of at least 0",
           "0",
           "number of steps over which the learning rate rises from 0",
           whole_key("warmup_steps", 0, kMostSteps, [](S& s, int64_t v) { s.warmup = static_cast<double>(v); })},
          {"warmup_ratio",
           {},
           "a number of at least 0 and below 1",
           "0",
           "the same, as a fraction of the run",
           real_key("warmup_ratio", 0, 0.999, false, [](S& s, double v) { s.warmup = v; })},
          {"min_lr_ratio",
           {"cosine_min_lr_ratio"},
           "a number from 0 to 1",
           "0",
           "final learning rate, as a fraction of the largest",
           real_key("min_lr_ratio", 0, 1, false, [](S& s, double v) { s.final_rate = v; })},
          {"decay_steps",
           {},
           "a number above 0",
           "0.2",
           "wsd: number of steps over which the learning rate falls, or below 1 a fraction of the run",
           real_key("decay_steps", 0, 1e12, true, [](S& s, double v) { s.decay = v; })},
          {"optimizer",
           {"optim"},
           "adamw, adamw_8bit, adam, sgd, rmsprop, lamb, lion, lion_8bit or normuon",
           "adamw",
           "the optimizer",
           word_key("optimizer", kOptimizers, take_optimizer)},
          {"weight_decay",
           {},
           "a number of at least 0",
           "the optimizer's",
           "decay of the weights towards 0",
           real_key("weight_decay", 0, kAny, false, [](S& s, double v) { s.weight_decay = v; })},
          {"adam_beta1",
           {"beta1"},
           "a number of at least 0 and below 1",
           "the optimizer's",
           "decay of the mean gradient",
           real_key("adam_beta1", 0, 0.999999, false, [](S& s, double v) { s.beta1 = v; })},
          {"adam_beta2",
           {"beta2"},
           "a number of at least 0 and below 1",
           "the optimizer's",
           "decay of the mean square",
           real_key("adam_beta2", 0, 0.999999, false, [](S& s, double v) { s.beta2 = v; })},
          {"adam_epsilon",
           {},
           "a number above 0",
           "the optimizer's",
           "added to the root of the mean square",
           real_key("adam_epsilon", 0, 1, true, [](S& s, double v) { s.epsilon = v; })},
          {"max_grad_norm",
           {"grad_clip", "gradient_clipping"},
           "a number of at least 0",
           "1",
           "clip gradients by global norm; 0: no clipping",
           real_key("max_grad_norm", 0, kAny, false, [](S& s, double v) { s.clip = v; })},
          {"precision",
           {"mixed_precision"},
           "fp32, bf16, fp16, fp8 or auto",
           "fp32",
           "precision of the operands of products; weights and sums stay fp32",
           word_key(
               "precision",
               {{"fp32", "fp32"}, {"no", "fp32"}, {"bf16", "bf16"}, {"fp16", "fp16"}, {"fp8", "fp8"}, {"auto", "auto"}},
               [](S& s, const char* own) { s.precision = own; })},
          {"seed",
           {"data_seed"},
           "a whole number of at least 0",
           "0",
           "seed of initial weights, shuffling and dropout",
           whole_key("seed", 0, std::numeric_limits<int64_t>::max(), [](S& s, int64_t v) { s.seed = v; })}};
}

std::vector<TrainKey> run_keys() {
  using S = TrainSettings;
  return {{"eval_steps",
           {"eval_interval"},
           "a whole number of at least 1",
           "once in each epoch",
           "steps between validations",
           whole_key("eval_steps", 1, kMostSteps, [](S& s, int64_t v) { s.evaluate_every = v; })},
          {"eval_samples",
           {"max_eval_samples"},
           "a whole number from 1",
           "all rows; required by a stream",
           "rows of a validation: the first of files, the next of a stream",
           whole_key("eval_samples", 1, kMostSteps, [](S& s, int64_t v) { s.validation_rows = v; })},
          {"save_steps",
           {"save_interval"},
           "a whole number of at least 1",
           "every five minutes",
           "steps between checkpoints",
           whole_key("save_steps", 1, kMostSteps, [](S& s, int64_t v) { s.save_every = v; })},
          {"save_total_limit",
           {"keep_last"},
           "a whole number of at least 1",
           "3",
           "number of checkpoints to keep",
           whole_key("save_total_limit", 1, 1 << 20, [](S& s, int64_t v) { s.keep = v; })},
          {"save_best_limit",
           {"keep_best"},
           "a whole number of at least 0",
           "0",
           "number of checkpoints with the smallest validation losses to keep in addition",
           whole_key("save_best_limit", 0, 1 << 20, [](S& s, int64_t v) { s.keep_best = v; })},
          {"logging_steps",
           {"log_interval"},
           "a whole number of at least 0",
           "10",
           "steps between rows of log.jsonl",
           whole_key("logging_steps", 0, kMostSteps, [](S& s, int64_t v) { s.log_every = v; })},
          {"output_dir",
           {"out_dir"},
           "a folder",
           "trained",
           "folder for checkpoints, weights and the report",
           text_key("output_dir", &S::output)},
          {"resume",
           {"resume_from_checkpoint"},
           "true or false",
           "false",
           "continue from the newest checkpoint in output_dir",
           truth_key("resume", [](S& s, bool v) { s.resume = v; })},
          {"stop_when",
           {},
           "conditions",
           "",
           "stop when a condition on a metric holds: 'val.loss<1.5'",
           [](S& s, const document::Node& node, document::Problems& problems) {
             s.stop_when.clear();
             const std::vector<document::Node> one{node};
             for (const document::Node& item : node.kind == document::Kind::list ? node.items : one)
               if (item.kind == document::Kind::scalar)
                 s.stop_when.push_back(item.text);
               else
                 problems.expected(item, "'stop_when'", "a condition such as val.loss<1.5");
           }},
          {"early_stopping_patience",
           {"patience"},
           "a whole number of at least 1",
           "",
           "stop after this many validations without a smaller loss",
           whole_key("early_stopping_patience", 1, kMostSteps, [](S& s, int64_t v) { s.patience = v; })}};
}

void read_map(TrainSettings& settings, const document::Node& root, document::Problems& problems) {
  if (root.kind != document::Kind::map) return problems.expected(root, "a configuration", "a map of keys and values");
  std::vector<std::pair<const TrainKey*, std::string>> given;
  for (const document::Entry& entry : root.entries) {
    const TrainKey* key = find_train_key(entry.key);
    if (!key) {
      for (const std::string& meant : meant_by(entry.key, train_key_names()))
        problems.doubt(find_train_key(meant)->name);
      std::string meant = did_you_mean(entry.key, train_key_names());
      if (std::string own = own_setting(entry.key, "VALUE"); !own.empty())
        meant = "write " + own.replace(own.find('='), 1, ": ");
      problems.add(entry.place, fmt::format("there is no key '{}'", entry.key), meant);
      continue;
    }
    const auto before = std::find_if(given.begin(), given.end(), [&](const auto& g) { return g.first == key; });
    if (before != given.end())
      problems.add(entry.place, fmt::format("'{}' and '{}' are names of one setting", before->second, entry.key),
                   "keep one");
    given.emplace_back(key, entry.key);
    const size_t known = problems.count();
    if (entry.value.kind != document::Kind::null) key->take(settings, entry.value, problems);
    if (problems.count() != known) problems.doubt(key->name);
  }
}

// Returns the error with the name of the flag, because the value is in no file.
Error error_of_set(const std::string& setting, const Error& e) {
  const auto* several = dynamic_cast<const SourceErrors*>(&e);
  const std::vector<Error> all = several ? several->errors() : std::vector<Error>{e};
  Error named(ErrorKind::Usage, fmt::format("--set {}: {}", setting, all.front().what()));
  for (const std::string& note : all.front().notes()) named.note(note);
  for (size_t i = 1; i < all.size(); ++i) named.note(fmt::format("note: also {}", all[i].what()));
  return named;
}

void take_set(TrainSettings& settings, const TrainKey& key, const std::string& text, TrainProblems& problems) {
  const size_t equals = text.find('=');
  try {
    const document::Document value = document::parse_document(
        std::make_shared<SourceText>("--set " + text.substr(0, equals), text.substr(equals + 1)));
    document::Problems own(value.source);
    if (key.name == std::string("model")) settings.model_dsl.clear();
    if (key.name == std::string("model_dsl")) settings.model.clear();
    key.take(settings, value.root, own);
    own.throw_any();
  } catch (const Error& e) {
    problems.doubt(key.name);
    problems.add_flag(error_of_set(text, e));
  }
}

void take_sets(TrainSettings& settings, const std::vector<std::string>& set, TrainProblems& problems) {
  for (const std::string& text : set) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const TrainKey* key = find_train_key(name);
    if (!key) {
      Error e(ErrorKind::Usage, fmt::format("--set '{}' names no key of a configuration", text));
      const size_t dot = name.find('.');
      std::string meant = did_you_mean(name, train_key_names());
      if (dot != std::string::npos && find_train_key(name.substr(0, dot)))  // "lora.r=8"
        meant = fmt::format("write --set '{}={{{}: {}}}'", name.substr(0, dot), name.substr(dot + 1),
                            equals == std::string::npos ? "VALUE" : text.substr(equals + 1));
      const std::string value = equals == std::string::npos ? "VALUE" : text.substr(equals + 1);
      if (const std::string own = own_setting(name, value); !own.empty()) meant = fmt::format("write --set '{}'", own);
      for (const std::string& one : meant_by(name, train_key_names())) problems.doubt(find_train_key(one)->name);
      problems.add_flag(e.note(meant.empty() ? "write KEY=VALUE, as in --set learning_rate=3e-4" : meant));
    } else if (equals == std::string::npos) {
      problems.doubt(key->name);
      problems.add_flag(Error(ErrorKind::Usage, fmt::format("--set {} has no value", text), {},
                              {fmt::format("write --set {}=VALUE; it is {}", text, key->values)}));
    } else {
      take_set(settings, *key, text, problems);
    }
  }
}

}  // namespace

std::vector<std::string> train_key_names() {
  std::vector<std::string> known;
  for (const TrainKey& key : train_keys()) {
    known.emplace_back(key.name);
    known.insert(known.end(), key.aliases.begin(), key.aliases.end());
  }
  return known;
}

const std::vector<TrainKey>& train_keys() {
  static const std::vector<TrainKey> keys = [] {
    std::vector<TrainKey> all = data_keys();
    for (std::vector<TrainKey> more :
         {train_model_keys(), train_loss_keys(), update_keys(), run_keys(), train_watch_keys()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return keys;
}

const TrainKey* find_train_key(const std::string& name) {
  for (const TrainKey& key : train_keys())
    if (name == key.name ||
        std::any_of(key.aliases.begin(), key.aliases.end(), [&](const char* a) { return name == a; }))
      return &key;
  return nullptr;
}

std::vector<std::string> train_dataset_keys() { return {std::begin(kDatasetKeys), std::end(kDatasetKeys)}; }

TrainSettings read_train_settings(const document::Document& config, const std::vector<std::string>& set,
                                  const std::string& folder) {
  TrainSettings settings;
  document::Document own = config;
  TrainProblems problems(own, set);
  own.root = in_own_keys(config.root, problems.file(), settings.notes);
  read_map(settings, own.root, problems.file());
  take_sets(settings, set, problems);
  if (own.root.kind == document::Kind::map) {
    check_train_settings(settings, problems);
    check_train_files(settings, folder, problems);
    settle_window(settings, folder, problems);
  }
  problems.throw_any();
  if (settings.corpus.tokenizer.empty()) settings.corpus.tokenizer = settings.model;
  const std::vector<DatasetOptions>& sets = settings.corpus.datasets;
  const bool texts = std::all_of(sets.begin(), sets.end(), [](const DatasetOptions& set) {
    return !is_live_address(set.path) && holds_texts(set);
  });
  if (settings.sample_packing && !(texts && *settings.sample_packing))
    settings.corpus.packing = *settings.sample_packing ? RowPacking::pack : RowPacking::pad;
  return settings;
}

}  // namespace harmonics::engine::cli
