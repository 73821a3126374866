// The flags of the verbs that open a flow: run, infer, serve, explain, profile, bench.
#include <limits>

#include <harmonics/abi.h>
#include <harmonics/policy_abi.h>

#include "engine/base/byte_count.hpp"
#include "engine/base/model_limits.hpp"
#include "engine/cli/commands/verb_flags.hpp"
#include "engine/model/quantize.hpp"
#include "engine/passes/recomputation.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"

namespace harmonics::engine::cli {

std::vector<std::string> device_names() {
  std::vector<std::string> all = Registry::global().names(HX_DEVICE);
  all.insert(all.end(), {"reference", "auto"});
  return all;
}

namespace {

constexpr int64_t kMostBatch = int64_t{1} << 30, kMostEpochs = int64_t{1} << 40, kMostCycles = int64_t{1} << 20;
constexpr int64_t kAnyCount = std::numeric_limits<int64_t>::max();
constexpr double kAnyNumber = std::numeric_limits<double>::infinity();

std::vector<std::string> names_with(const std::vector<NamedRow>& rows, uint32_t kind) {
  std::vector<std::string> all;
  for (const NamedRow& row : rows) all.emplace_back(row.name);
  for (std::string& name : Registry::global().names(kind)) all.push_back(std::move(name));
  return all;
}
std::vector<std::string> optimizer_names() { return names_with(optimizer_rows(), HX_OPTIMIZER); }
std::vector<std::string> schedule_names() { return names_with(schedule_rows(), HX_SCHEDULE); }
std::vector<std::string> metric_names() { return Registry::global().names(HX_METRIC); }

void graph(Flags& f, const char* help = "the flow (.hmx)") { f.positional("GRAPH", help); }

void plugin(Flags& f) { f.texts("plugin", "PATH", "load a plugin library", &Options::plugins); }

void graph_name(Flags& f) {
  f.text("graph", "NAME", "harmonic of the file, if it has several (default: the first)", &Options::graph);
}

void insecure(Flags& f) {
  f.on("insecure", "allow unencrypted live streams and requests on addresses beyond this machine", &Options::insecure);
}

void packed_cache(Flags& f) {
  if (f.has("packed-cache")) return;  // serve: the weights of flows and of language models
  f.text("packed-cache", "SIZE", "size limit of the cache of packed weights on disk; off: no cache",
         [](Options& o, const std::string& v) {
           const auto bytes = v == "off" ? std::optional<uint64_t>(0) : parse_byte_count(v);
           if (!bytes)
             throw Error(ErrorKind::Usage, "--packed-cache takes a size such as 512M or 8G, or 'off', not '" + v + "'");
           o.packed_cache = *bytes;
         })
      .initial = "8G";
}

void streams(Flags& f,
             const char* weights = "start from the weights of this file or checkpoint (safetensors, NPZ, GGUF)") {
  f.group("Data");
  f.texts("producer", "[NAME=]ADDRESS", "bind a producer, e.g. images=file:train-images.idx", &Options::producers)
      .short_name = "p";
  graph_name(f);
  plugin(f);
  insecure(f);
  f.text("weights", "FILE", weights, &Options::weights);
  f.texts("weights-from", "DIR", "also allow weights= files of the flow in this folder (default: the flow's own)",
          &Options::weights_from);
  f.text("limits", "steps=N,weights=SIZE,seconds=N",
         "limits for compiling the flow: operations of one program, bytes of weights and moments, seconds to compile "
         "(default: steps=1000000,seconds=600 and the machine's memory)",
         [](Options& o, const std::string& v) { o.limits = parse_model_limits(v); });
  packed_cache(f);
}

void consumers(Flags& f, const char* help) {
  f.texts("consumer", "[NAME=]ADDRESS", help, &Options::consumers).short_name = "c";
}

void dead_letters(Flags& f) {
  f.text("dead-letters", "DIR", "keep unpaired, late and refused samples in this directory", &Options::dead_letters);
  f.text("dead-letters-limit", "SIZE", "size limit of that directory (default: 256M)", &Options::dead_letters_limit);
}

void seed(Flags& f, const char* help = "seed of weights, shuffling and dropout") {
  f.whole("seed", 0, kAnyCount, help, [](Options& o, int64_t v) { o.run.seed = v; }).initial = "0";
}

void counts(Flags& f) {
  f.group("Training");
  f.whole("batch", 1, kMostBatch, "samples per step", [](Options& o, int64_t v) { o.run.batch = v; }).initial = "64";
  seed(f);
}

void threads(Flags& f) {
  f.whole("threads", 1, 1024, "number of threads; results do not depend on it (default: all)",
          [](Options& o, int64_t v) { o.run.threads = static_cast<int>(v); })
      .example = "2";
}

// Adds flags of device and precision, without the number of threads.
void device(Flags& f) {
  FlagRow& where = f.text("device", "NAME", ": an accelerator if there is one",
                          [](Options& o, const std::string& v) { o.run.device = v; });
  where.names = device_names;
  where.initial = "cpu";
  f.text("deployment", "FILE", R"(JSON that selects hardware by kind: {"backend": "gpu", "fallback": true})",
         &Options::deployment);
  FlagRow& precision =
      f.text("precision", "NAME",
             ": fp16 or bf16 for products of sizes at which it is measured faster; narrow formats round the "
             "operands of products, sums and weights stay fp32; int8 quantises the operands of quantised weights, as "
             "generate, chat, serve, embed and bench MODEL do by default on the cpu",
             [](Options& o, const std::string& v) {
               o.run.precision = parse_precision(v);
               o.precision_given = true;
             });
  precision.choices = {"fp32", "fp16", "bf16", "fp8", "int8", "auto"};
  precision.initial = "fp32";
  FlagRow& policy =
      f.text("precision-policy", "POLICY",
             ", with its settings: chooses the precision of each product; without a choice --precision applies",
             [](Options& o, const std::string& v) { o.run.policy = v; });
  policy.names = [] { return Registry::global().names(HX_POLICY); };
  policy.example = "'wide(least=256)'";
  f.texts("override", "FUNCTIONAL=NAME",
          "implementation of a functional: attention=mine ('harmonics list implementations'), attention=cpu, "
          "attention=portable",
          &Options::overrides);
}

void machine(Flags& f) {
  f.group("Machine");
  threads(f);
  device(f);
}

void optimizer(Flags& f) {
  FlagRow& row = f.text("optimizer", "NAME", ", with its settings: 'sgd(lr=0.1, momentum=0.9)'",
                        [](Options& o, const std::string& v) { o.run.optimizer = v; });
  row.names = optimizer_names;
  row.initial = "adamw";
}

void training(Flags& f) {
  f.group("Training");
  optimizer(f);
  f.real("lr", Least::above_zero, kAnyNumber, "learning rate", [](Options& o, double v) { o.run.lr = v; }).initial =
      "0.001";
  FlagRow& schedule = f.text("schedule", "NAME", ", with its settings: 'cosine(warmup=500, final=0.1)'",
                             [](Options& o, const std::string& v) { o.run.schedule = v; });
  schedule.names = schedule_names;
  schedule.initial = "constant";
  f.real("clip", Least::zero, kAnyNumber, "clip gradients by global norm (0: no clipping)", [](Options& o, double v) {
     o.run.clip = v;
   }).example = "1";
  f.real("clip-value", Least::zero, kAnyNumber, "clip gradients by value (0: no clipping)", [](Options& o, double v) {
     o.run.clip_value = v;
   }).example = "0.5";
  f.whole("accumulate", 1, kMostBatch, "batches per step; their gradients are averaged", [](Options& o, int64_t v) {
     o.run.accumulate = v;
   }).initial = "1";
  f.text("recompute", "WHAT",
         "results to recompute in the backward pass, to save memory: rmsnorm, qkv, attention, swiglu, ffn, block, "
         "lora or patterns of scopes, separated by commas; auto: as few as keep a step's results within half of the "
         "memory, or within a SIZE: auto=2G (default: none)",
         [](Options& o, const std::string& v) { parse_recomputation(o.run.recomputation = v); })
      .example = "attention";
}

void stopping(Flags& f) {
  f.group("Stopping");
  f.whole("epochs", 0, kMostEpochs, "passes over the data", [](Options& o, int64_t v) { o.run.epochs = v; }).initial =
      "10";
  f.whole("steps", 1, kAnyCount, "stop after this many steps (batches, or groups of --accumulate)",
          [](Options& o, int64_t v) { o.run.steps = v; })
      .example = "1000";
  f.duration("for", "stop after a time: 90s, 10m, 1.5h", [](Options& o, double v) { o.run.seconds = v; });
  f.texts("until", "CONDITION", "stop when a condition on a metric holds: 'loss<0.05', 'val.accuracy>=0.98'", nullptr)
      .take = [](const FlagRow&, Options& o, const std::string& v) { o.run.until.push_back(v); };
  f.whole("patience", 1, kAnyCount, "stop after this many validations without a smaller loss",
          [](Options& o, int64_t v) { o.run.patience = v; })
      .example = "5";
  f.text("loss-guard", "SETTINGS",
         "skip batches whose loss is not finite or exceeds the mean of the last 100 steps by this many standard "
         "deviations; after patience batches in a row stop the run, or restore the last checkpoint (default: a loss "
         "that is not finite ends the run)",
         [](Options& o, const std::string& v) {
           const std::string folder = o.run.guard ? o.run.guard->folder : "";
           try {
             o.run.guard = parse_loss_guard(v);
           } catch (const Error& e) {
             throw Error(ErrorKind::Usage, "--loss-guard: " + std::string(e.what()), {}, e.notes());
           }
           o.run.guard->folder = folder;
         })
      .example = "deviations=6, patience=3, then=checkpoint";
  f.text("skipped-batches", "DIR", "write each batch that the loss guard skips to a file in this folder",
         [](Options& o, const std::string& v) {
           if (!o.run.guard) o.run.guard.emplace();
           o.run.guard->folder = v;
         });
  f.on("deterministic", "refuse settings that are not reproducible: time limits, live streams", nullptr).take =
      [](const FlagRow& row, Options& o, const std::string& v) { o.run.deterministic = read_switch(row, v); };
}

void watching(Flags& f) {
  f.group("Watching");
  f.texts("validate", "[NAME=]ADDRESS", "data to validate on after every epoch", &Options::validations);
  f.texts("test", "[NAME=]ADDRESS", "data to test on after training", &Options::tests).short_name = "t";
  FlagRow& metric = f.texts("metric", "METRIC", ", with its settings: 'topk(5)'; an additional metric", nullptr);
  metric.take = [](const FlagRow&, Options& o, const std::string& v) { o.run.metrics.push_back(v); };
  metric.names = metric_names;
  f.whole("window", 0, 10'000'000,
          "window of samples for metrics of predictions made before learning: 'window.loss' (default: 1000 for live "
          "streams, otherwise none)",
          [](Options& o, int64_t v) { o.run.window = v; })
      .example = "1000";
  f.text("plot", "FILE.svg", "draw the learning curve", &Options::plot);
  f.text("confusion", "FILE.svg", "draw the confusion matrix of --test or --validate data", &Options::confusion);
  f.text("report", "FILE.html", "write a report as a web page: curve, confusion matrix, examples, settings",
         &Options::report);
  f.texts("log", "FILE.csv|FILE.jsonl", "write metrics as CSV or JSON lines", &Options::logs);
  f.text("tensorboard", "DIR", "write event files for TensorBoard into this folder", &Options::tensorboard);
  f.whole("log-every", 0, kAnyCount, "steps between rows of --log and --tensorboard (0: a row at each epoch's end)",
          [](Options& o, int64_t v) { o.log_every = v; })
      .initial = "0";
}

void serving(Flags& f, const char* address, const char* help) {
  f.group("Serving");
  f.texts(address, "ADDRESS", help, &Options::serve);
  f.on("ui", "serve a web page to watch and control the run; its address is printed", &Options::ui);
  f.text("control", "PATH", "control socket of the run: harmonics ctl PATH", &Options::control);
  f.text("token", "TEXT",
         "bearer token; prefer HARMONICS_TOKEN (default: random, required only for requests that change the run)",
         &Options::token);
  FlagRow& latency = f.duration("latency", "maximum wait of a request for batching with others (0: none)",
                                [](Options& o, double v) { o.latency = v; });
  latency.take = [](const FlagRow& row, Options& o, const std::string& v) {
    o.latency = v == "0" ? 0 : duration_seconds(row.name, v);
  };
  latency.initial = "2ms";
}

void checkpoints(Flags& f) {
  f.group("Checkpoints");
  f.text("checkpoint", "DIR", "keep checkpoints of the run in this directory", &Options::checkpoint);
  f.text("every", "INTERVAL", "checkpoint interval: 5m, 500steps or 1epoch; also one when the run ends",
         [](Options& o, const std::string& v) { o.every = v; })
      .initial = "5m";
  f.whole("keep", 1, kMostCycles, "number of checkpoints to keep", [](Options& o, int64_t v) {
     o.keep = static_cast<int>(v);
   }).initial = "3";
  f.whole("keep-best", 1, kMostCycles, "number of checkpoints with the smallest validation losses to keep in addition",
          [](Options& o, int64_t v) { o.keep_best = static_cast<int>(v); })
      .example = "2";
  f.text("resume", "[DIR|FILE]",
         "continue from the newest checkpoint of --checkpoint, of another directory, or from one file",
         [](Options& o, const std::string& v) { o.resume = v; })
      .optional = true;
}

void spooling(Flags& f) {
  f.group("Live streams");
  f.text("spool", "DIR", "spool incoming samples to DIR, so that they can be replayed and senders may drop them",
         &Options::spool);
  f.text("spool-limit", "SIZE", "size limit of the spool (default: 4G)", &Options::spool_limit);
  f.on("spool-keep", "keep samples that checkpoints cover: file:DIR/NAME reads the stream again", &Options::spool_keep);
  dead_letters(f);
}

void cycle(Flags& f) {
  f.whole("cycle", 1, kMostCycles, "which cycle of the flow", [](Options& o, int64_t v) { o.cycle = v; }).initial = "1";
}

}  // namespace

void run_flags(VerbRow& verb) {
  Flags f(verb);
  graph(f);
  streams(f);
  consumers(f, "bind a consumer, e.g. results=file:out.csv");
  f.text("save", "FILE", "write the weights here (safetensors)", &Options::save);
  f.text("save-adapter", "PATH",
         "write the adapter of model(..., lora=...) here: a PEFT folder, or a GGUF file if PATH ends in .gguf",
         &Options::save_adapter);
  f.on("no-keep", "without --save and --checkpoint: keep no copy of the weights in the user's state folder",
       &Options::no_keep);
  f.on("infer", "ignore the training taps", &Options::inference);
  stopping(f);
  training(f);
  counts(f);
  watching(f);
  machine(f);
  serving(f, "serve",
          "answer requests during the run: 127.0.0.1:8080 over HTTP, port 0 for a free one, with their description at "
          "/docs; zmq+rep://127.0.0.1:5556 over ZeroMQ");
  checkpoints(f);
  spooling(f);
}

void infer_flags(VerbRow& verb) {
  Flags f(verb);
  graph(f, "the flow (.hmx; its training taps are ignored), or a model file or folder of another program (.gguf, ...)");
  streams(f, "predict with the weights of this file or checkpoint (safetensors, NPZ, GGUF)");
  consumers(f, "consumer for results (default: stdout:)");
  f.on("untrained", "use initial weights for parameters that --weights lacks", &Options::untrained);
  value_trace_flag(f);
  counts(f);
  machine(f);
  f.group("Live streams");
  dead_letters(f);
  f.group("Text");
  f.text("tokenizer", "FILE", "tokenizer of a model file (default: the one in the model's file)", &Options::tokenizer);
  adapter_flags(f);
  model_spec(f);
  f.text("prompt", "TEXT", "text models: continue this text",
         [](Options& o, const std::string& v) { o.prompt = v, o.prompt_given = true; });
  f.whole("generate", 1, 1 << 24, "text models: number of tokens to generate", [](Options& o, int64_t v) {
     o.generate = v;
   }).initial = "400";
  f.real("temperature", Least::zero, 100, "text models: sampling temperature; 0 takes the most likely token",
         [](Options& o, double v) { o.temperature = v; })
      .initial = "0.8";
}

namespace {

// Adds flags for sampling tokens.
void choice(Flags& f) {
  f.whole("max-tokens", 1, 1 << 24, "number of tokens to generate at most", [](Options& o, int64_t v) {
     o.max_tokens = v;
   }).initial = "256";
  f.real("temperature", Least::zero, 100, "sampling temperature; 0 takes the most likely token",
         [](Options& o, double v) { o.temperature = v; })
      .initial = "0.8";
  f.whole("top-k", 0, 1 << 24, "sample from this many most likely tokens; 0: from all", [](Options& o, int64_t v) {
     o.filters.top_k = v;
   }).initial = "40";
  f.real("top-p", Least::above_zero, 1, "sample from the most likely tokens with this total probability (nucleus)",
         [](Options& o, double v) { o.filters.top_p = v; })
      .initial = "0.95";
  f.real("min-p", Least::zero, 1, "sample from tokens with at least this fraction of the highest probability",
         [](Options& o, double v) { o.filters.min_p = v; })
      .initial = "0.05";
  f.real("typical", Least::above_zero, 1, "sample from the locally typical tokens with this total probability",
         [](Options& o, double v) { o.filters.typical = v; })
      .initial = "1";
  f.real("repeat-penalty", Least::above_zero, 100, "divisor of the scores of recent tokens", [](Options& o, double v) {
     o.filters.repeat_penalty = v;
   }).initial = "1";
  f.real("presence-penalty", Least::zero, 100, "subtracted from the scores of recent tokens", [](Options& o, double v) {
     o.filters.presence_penalty = v;
   }).initial = "0";
  f.real("frequency-penalty", Least::zero, 100, "subtracted for each occurrence of a token", [](Options& o, double v) {
     o.filters.frequency_penalty = v;
   }).initial = "0";
  f.whole("recent", 0, 1 << 24, "number of recent tokens that the penalties cover", [](Options& o, int64_t v) {
     o.filters.recent = v;
   }).initial = "64";
  f.real("dry", Least::zero, 100, "penalty of tokens that continue a repetition of --dry-length tokens",
         [](Options& o, double v) { o.filters.dry_multiplier = v; })
      .initial = "0";
  f.real("dry-base", Least::above_zero, 100, "factor of the DRY penalty for each further token",
         [](Options& o, double v) { o.filters.dry_base = v; })
      .initial = "1.75";
  f.whole("dry-length", 1, 1 << 24, "length of repetitions without a DRY penalty", [](Options& o, int64_t v) {
     o.filters.dry_length = v;
   }).initial = "2";
  f.whole("mirostat", 0, 2, "1 or 2: mirostat sampling in place of the filters; 0: off", [](Options& o, int64_t v) {
     o.filters.mirostat = static_cast<int>(v);
   }).initial = "0";
  f.real("mirostat-surprise", Least::above_zero, 100, "target surprise of mirostat in bits (tau)",
         [](Options& o, double v) { o.filters.mirostat_surprise = v; })
      .initial = "5";
  f.real("mirostat-rate", Least::above_zero, 1, "learning rate of mirostat (eta)", [](Options& o, double v) {
     o.filters.mirostat_rate = v;
   }).initial = "0.1";
  f.texts("stop", "TEXT", "stop before this text, which is not printed", &Options::stop);
  f.text("grammar", "FILE", "constrain the text to this grammar (GBNF)", &Options::grammar);
  f.text("json-schema", "FILE", "constrain the text to JSON of this schema", &Options::json_schema);
  seed(f, "seed of sampling");
}

// Adds flags for the types of the model's numbers and for its architecture.
void model_types(Flags& f) {
  FlagRow& weights = f.text("weight-type", "TYPE",
                            ": convert matrices to this type at the start, if their rows are whole blocks of it "
                            "(default: the types of the file)",
                            [](Options& o, const std::string& v) { o.weight_type = dtype_named(v); });
  weights.choices = quantized_types();
  weights.example = "q8_0";
  FlagRow& cache = f.text("cache-type", "TYPE",
                          ": element type of the cache of keys and values; q8_0 requires a head width divisible by 32",
                          [](Options& o, const std::string& v) { o.cache_type = dtype_named(v); });
  cache.choices = {"f32", "f16", "bf16", "q8_0"};
  cache.initial = "f32";
  model_spec(f);
  adapter_flags(f);
}

// Adds flags for the model, its memory and its caches.
void language_model(Flags& f) {
  f.group("Model");
  f.text("tokenizer", "FILE", "the model's tokenizer (default: the one in the model's file)", &Options::tokenizer);
  f.whole(
       "context", 1, 1 << 30,
       "maximum number of tokens of prompt and text; their memory is allocated at the start (default: the context that "
       "the model was trained for, in memory that grows)",
       [](Options& o, int64_t v) { o.context = v; })
      .example = "2048";
  packed_cache(f);
  model_types(f);
}

}  // namespace

void generate_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("MODEL", "the file or folder of a language model, or a .ndsl file with --weights");
  f.positional("TEXT", "continue this text, as --prompt does").required = false;
  f.group("Text");
  f.text("prompt", "TEXT", "continue this text (default: generate from the beginning)",
         [](Options& o, const std::string& v) { o.prompt = v, o.prompt_given = true; });
  choice(f);
  f.whole("log-probabilities", 0, 100,
          "with --json: print the log probability of each token and of this many most likely tokens",
          [](Options& o, int64_t v) { o.log_probabilities = v; })
      .example = "3";
  f.text("perplexity", "FILE", "print the model's perplexity on this text instead of generating", &Options::perplexity);
  session_flags(f, ": when the context is full, end the text, or drop half of its tokens");
  speculation_flags(f);
  language_model(f);
  ndsl_weights_flag(f);
  machine(f);
}

void embed_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("MODEL", "the file or folder of an encoder or language model, or a .ndsl file with --weights");
  PositionalRow& text = f.positional("TEXT", "the texts");
  text.required = false;
  text.repeats = true;
  f.group("Text");
  f.text("file", "FILE", "each line of this file is a text; -: of standard input", &Options::text_file);
  pooling_flag(f);
  f.text("tokenizer", "FILE", "the model's tokenizer (default: the one in the model's file)", &Options::tokenizer);
  model_spec(f);
  ndsl_weights_flag(f);
  machine(f);
}

void chat_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("MODEL", "the file or folder of a language model, or a .ndsl file with --weights");
  f.group("Conversation");
  f.text("system", "TEXT", "the system message", &Options::system);
  chat_template_flag(f);
  session_flags(
      f,
      ": when the context is full, report an error, or drop the oldest messages, and half of the tokens of a long "
      "answer");
  choice(f);
  speculation_flags(f);
  language_model(f);
  ndsl_weights_flag(f);
  machine(f);
}

void importance_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("MODEL",
               "the file or folder of a language model, best in f32, f16 or bf16, or a .ndsl file with --weights");
  f.positional("TEXT", "a text file similar to the model's later input and output");
  f.positional("OUTPUT", "the file to write (.gguf)");
  f.whole("chunk", 1, 1 << 20, "tokens per chunk", [](Options& o, int64_t v) { o.chunk = v; }).initial = "512";
  f.whole("chunks", 1, kAnyCount, "maximum number of chunks (default: all)", [](Options& o, int64_t v) {
     o.chunks = v;
   }).example = "100";
  f.text("tokenizer", "FILE", "the model's tokenizer (default: the one in the model's file)", &Options::tokenizer);
  model_spec(f);
  ndsl_weights_flag(f);
  machine(f);
}

void serve_flags(VerbRow& verb) {
  Flags f(verb);
  graph(f, "the flow (.hmx; its training taps are ignored), or the file or folder of a language model");
  streams(f, "answer with the weights of this file or checkpoint (safetensors, NPZ, GGUF); required for flows");
  cycle(f);
  serving(f, "listen",
          "address for requests (default: 127.0.0.1:8080), with their description at /docs; port 0 for a free one; "
          "zmq+rep://127.0.0.1:5556 over ZeroMQ");
  language_model(f);
  chat_template_flag(f);
  pooling_flag(f);
  f.whole("sequences", 1, 256, "language models: number of texts generated concurrently", [](Options& o, int64_t v) {
     o.sequences = v;
   }).initial = "4";
  f.text("cache-memory", "SIZE",
         "language models: memory for keys and values of all texts and of cached prefixes (default: --sequences whole "
         "contexts)",
         [](Options& o, const std::string& v) {
           const auto bytes = parse_byte_count(v);
           if (!bytes || *bytes == 0)
             throw Error(ErrorKind::Usage, "--cache-memory takes a size such as 512M or 8G, not '" + v + "'");
           o.cache_memory = *bytes;
         });
  overflow_flags(f, ": when the context of a text is full, end the text, or drop half of its tokens");
  speculation_flags(f);
  f.whole("queue", 0, 1 << 16, "language models: maximum number of waiting requests", [](Options& o, int64_t v) {
     o.queue = v;
   }).initial = "64";
  f.texts("allow-origin", "ORIGIN",
          "language models: pages of this origin may send requests, e.g. https://chat.example.org; '*' allows all",
          &Options::origins);
  machine(f);
}

void explain_flags(VerbRow& verb) {
  Flags f(verb);
  graph(f, "the flow (.hmx), a model (.ndsl), a spec (.json, with --weights), or a model file or folder");
  streams(f,
          "start from the weights of this file or checkpoint (safetensors, NPZ, GGUF); for a spec: the model's file");
  explain_show_flags(f);
  model_spec(f);
  adapter_flags(f);
  training(f);
  counts(f);
  f.group("Machine");
  device(f);
}

void profile_flags(VerbRow& verb) {
  Flags f(verb);
  graph(f);
  streams(f);
  f.group("Measuring");
  f.whole("steps", 1, 1 << 20, "number of steps to time (default: about a second's)", [](Options& o, int64_t v) {
     o.run.steps = v;
   }).example = "100";
  cycle(f);
  optimizer(f);
  f.text("trace", "FILE.json", "write the last steps as Chrome trace events, for Perfetto", &Options::trace);
  f.on("infer", "a step of inference instead of training", &Options::inference);
  counts(f);
  machine(f);
}

void bench_flags(VerbRow& verb) {
  Flags f(verb);
  graph(f, "the flow (.hmx), or the file or folder of a language model");
  streams(f);
  f.group("Language models");
  FlagRow& prefill = f.whole("prefill", 0, 1 << 24, "lengths of prompts in tokens; 0: none (default: 512)",
                             [](Options& o, int64_t v) { o.prefill.push_back(v); });
  prefill.example = "128,512";
  prefill.list = prefill.repeats = true;
  FlagRow& decode = f.whole("decode", 0, 1 << 24, "numbers of tokens to decode; 0: none (default: 128)",
                            [](Options& o, int64_t v) { o.decode.push_back(v); });
  decode.example = "128";
  decode.list = decode.repeats = true;
  FlagRow& texts = f.whole("texts", 1, 128, "numbers of texts decoded in one batch (default: 1)",
                           [](Options& o, int64_t v) { o.texts.push_back(v); });
  texts.example = "1,8";
  texts.list = texts.repeats = true;
  f.whole("repeat", 1, 1000, "number of runs of each measurement", [](Options& o, int64_t v) {
     o.repeat = v;
   }).initial = "5";
  model_types(f);
  f.group("Measuring");
  FlagRow& batches =
      f.whole("batch", 1, kMostBatch, "batch sizes", [](Options& o, int64_t v) { o.batches.push_back(v); });
  batches.initial = "1,64,256";
  batches.list = batches.repeats = true;
  FlagRow& numbers = f.whole("threads", 1, 1024, "numbers of threads (default: 1 and all)",
                             [](Options& o, int64_t v) { o.threads.push_back(static_cast<int>(v)); });
  numbers.example = "1,2";
  numbers.list = numbers.repeats = true;
  f.real("seconds", Least::above_zero, 3600, "duration of each measurement in seconds", [](Options& o, double v) {
     o.seconds = v;
   }).initial = "1";
  cycle(f);
  optimizer(f);
  f.on("infer", "inference only", &Options::inference);
  seed(f, "seed of weights and random samples");
  device(f);
}

}  // namespace harmonics::engine::cli
