// The command line as plain data.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/cli/options/command_table.hpp"
#include "engine/cli/options/sample_settings.hpp"
#include "engine/language/sampler.hpp"

namespace harmonics::engine::cli {

struct Options {
  std::string verb;
  std::vector<std::string> files;                                     // positional arguments
  std::vector<std::string> producers, consumers, tests, validations;  // [NAME=]ADDRESS
  std::vector<std::string> plugins;
  std::vector<std::string> overrides;  // FUNCTIONAL=NAME
  RunSettings run;
  bool precision_given = false;  // --precision
  std::string graph;             // --graph NAME
  std::string deployment;        // --deployment FILE
  std::string weights, save, report;
  std::string save_adapter;                   // a PEFT folder, or a .gguf file
  bool dsl = false;                           // list-models --dsl
  bool no_keep = false;                       // keep no copy of otherwise unsaved weights
  std::vector<std::string> weights_from;      // --weights-from DIR
  ModelLimits limits;                         // --limits
  uint64_t packed_cache = uint64_t{8} << 30;  // bytes of packed weights on disk; 0: none
  std::string plot, confusion, tensorboard;   // pictures and TensorBoard events of a run
  std::vector<std::string> logs;              // .csv, .jsonl
  int64_t log_every = 0;                      // steps; 0: only at the end of every epoch
  bool json = false, quiet = false;
  std::vector<std::string> command_line;     // as given
  std::set<std::string> given;               // names of the flags on the command line
  std::string checkpoint;                    // --checkpoint DIR
  std::optional<std::string> every, resume;  // resume "": from --checkpoint
  std::optional<int> keep, keep_best;
  std::string spool, spool_limit;  // --spool DIR
  bool spool_keep = false;
  std::string dead_letters, dead_letters_limit;  // --dead-letters DIR
  std::string color = "auto";                    // auto, always, never
  std::string config;                            // --config FILE
  bool origin = false;                           // config show
  bool list = false, licenses = false;           // man, version
  std::string kind, directory, address;          // plugin
  std::optional<int64_t> calls;                  // plugin check
  // explain
  std::vector<std::string> show;  // summary flow widths program kernels memory; empty: the first three
  std::string after;              // pass name, or "all"
  bool dot = false, inference = false, select = false, placement = false, memory = false;
  std::string html, numbers;  // files
  std::string entry;          // of an imported model; empty: "decode", or "forward"
  int64_t tokens = 1;         // tokens per run of the entry
  // profile and bench
  int64_t cycle = 1;  // from 1
  std::string trace;
  std::vector<int64_t> batches;
  std::vector<int> threads;  // empty: one thread, and all threads of the machine
  double seconds = 1;        // per measurement
  // External access: run, serve, ctl
  std::vector<std::string> serve;    // ADDRESS
  std::vector<std::string> origins;  // of pages that may send requests
  std::string control, token;
  double latency = 0.002;  // seconds
  bool insecure = false, ui = false, once = false;
  // infer and generate
  std::string prompt, tokenizer;
  std::string pooling, text_file;  // embed; "": the model's pooling; no file
  std::string spec;                // --spec FILE
  std::vector<std::string> set;    // NAME=VALUE: variables of a spec
  std::optional<DType> weight_type;
  // quantize and importance
  std::string mix = "q8_0", importance;  // --type; --importance FILE
  std::optional<DType> output_type, embedding_type;
  std::vector<std::string> tensor_types;  // PATTERN=TYPE
  bool pure = false, dry_run = false, requantize = false, keep_split = false;
  int64_t chunk = 512, chunks = 0;  // importance: tokens per chunk; maximum chunks, 0: all
  // train and tokenize
  bool keys = false;                  // train: list the keys of configurations
  bool count_only = false;            // tokenize: print only counts
  bool special_tokens = false;        // tokenize: recognise special tokens in texts
  int64_t tokens_of_sample = 0;       // train: tokens per sample, to show rates in tokens
  std::string replay;                 // train: file of a skipped batch
  bool generated_flow = false;        // train: the flow is in no file
  bool has_perplexity = true;         // train: the loss is a mean cross entropy
  SampleSettings samples;             // train: texts during the run
  std::optional<int64_t> train_size;  // tokenize: number of tokens of a tokenizer to train
  std::string ids;                    // tokenize: ids to decode
  // bench MODEL
  std::vector<int64_t> prefill, decode;  // tokens; empty: 512 and 128
  std::vector<int64_t> texts;            // texts computed at once; empty: 1
  int64_t repeat = 5;
  std::string format;                       // export
  std::vector<std::string> format_options;  // NAME=VALUE
  uint64_t shard_bytes = 0;                 // maximum bytes per file of weights in a folder; 0: the exporter's default
  std::vector<std::string> added_tokens;    // TEXT or ROLE=TEXT
  DType cache_type = DType::F32;
  int64_t context = 0;  // maximum tokens of a sequence; 0: the context of the model's training
  bool prompt_given = false;
  bool cpp = false;        // export
  bool untrained = false;  // runs without weights intentionally
  int64_t generate = 400, max_tokens = 256;
  double temperature = 0.8;
  FilterSettings filters{.top_k = 40, .top_p = 0.95, .min_p = 0.05};
  std::vector<std::string> stop;
  std::string grammar, json_schema;                      // files
  std::optional<int64_t> log_probabilities;              // generate --json: number of alternatives per token
  std::string perplexity;                                // generate: file to measure
  std::string system, chat_template, overflow = "stop";  // chat and serve
  int64_t sequences = 4, queue = 64;                     // serve MODEL
  std::vector<std::string> lora;                         // FILE[=SCALE]
  std::string draft, session;                            // a model; a file
  int64_t lookup = 0, draft_tokens = 0;                  // 0: not given
  int64_t keep_tokens = 0;                               // for overflow "shift"
  uint64_t cache_memory = 0;                             // bytes of keys and values; 0: enough for all contexts
  // send and receive
  std::vector<std::string> from, to;  // [NAME=]ADDRESS
  double rate = 0;                    // samples per second; 0: limited only by the receiver
  std::optional<uint64_t> count;
  std::string producer_name, ack;
};

// Parses argv by the table of verbs. Flags that are not given are set from the environment and configuration files.
// Returns the verb to run, or null if help or the version was printed. Throws ErrorKind::Usage for invalid arguments.
const VerbRow* parse_options(const CommandTable& table, int argc, char** argv, Options& options);

}  // namespace harmonics::engine::cli
