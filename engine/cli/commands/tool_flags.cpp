// The flags of the verbs without a flow, which watch a run, transfer samples, check and write files, or list items.
#include <algorithm>
#include <limits>

#include "engine/base/byte_count.hpp"
#include "engine/cli/commands/catalogue.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/commands/verb_flags.hpp"
#include "engine/model/quantize.hpp"
#include "engine/plugin/kinds.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr double kAnyRate = std::numeric_limits<double>::infinity();
constexpr int64_t kMostSamples = int64_t{1} << 62;

std::vector<std::string> listed_kinds() {
  std::vector<std::string> all{"functions"};
  for (std::string& kind : catalogue_kinds()) all.push_back(std::move(kind));
  all.insert(all.end(), {"models", "verbs"});
  return all;
}

std::vector<std::string> kinds_of_plugins() {
  std::vector<std::string> all;
  for (const KindRow& row : kind_rows()) all.emplace_back(row.name);
  return all;
}

std::vector<std::string> pages() {
  std::vector<std::string> all = verb_names();
  all.emplace_back("hmx");
  return all;
}

// Returns the names of all items that 'inspect' accepts.
std::vector<std::string> named_things() {
  std::vector<std::string> all;
  for (const std::string& kind : catalogue_kinds())
    for (std::string& name : catalogue_names(singular(kind))) all.push_back(std::move(name));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void run_address(Flags& f) {
  f.positional("WHERE", "the control socket of a run, or its address (http://127.0.0.1:8080)");
}

void run_token(Flags& f) {
  f.group("Serving");
  f.text("token", "TEXT", "token of the run, if it is given by its address; prefer HARMONICS_TOKEN", &Options::token);
}

void library(Flags& f) { f.texts("plugin", "PATH", "load a plugin library", &Options::plugins); }

void sample_count(Flags& f, const char* help) {
  f.whole("count", 1, kMostSamples, help, [](Options& o, int64_t v) { o.count = static_cast<uint64_t>(v); }).example =
      "10";
}

void unencrypted(Flags& f) {
  f.on("insecure", "allow unencrypted live streams on addresses beyond this machine", &Options::insecure);
}

}  // namespace

void ctl_flags(VerbRow& verb) {
  Flags f(verb);
  run_address(f);
  f.positional("ACTION", "the command ('step [N]', 'lr RATE', 'lr schedule', which restores the schedule)").choices = {
      "status", "pause", "resume", "step", "checkpoint", "lr", "layer", "undo", "stop", "events"};
  PositionalRow& values = f.positional("VALUE", "of step and lr; of layer: its name, then ARGUMENT=VALUE...");
  values.required = false;
  values.repeats = true;
  run_token(f);
}

void top_flags(VerbRow& verb) {
  Flags f(verb);
  run_address(f);
  run_token(f);
  f.on("once", "print one view and end; the default if standard output is not a terminal", &Options::once);
}

void tap_flags(VerbRow& verb) {
  Flags f(verb);
  run_address(f);
  f.positional("NAME", "a producer or layer of the run's flow");
  run_token(f);
  sample_count(f, "number of samples (default: until the run ends)");
}

void send_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("ADDRESS", "the listener: tcp:127.0.0.1:5555, unix:PATH, zmq+dealer://...; or any consumer");
  f.group("Data");
  f.texts("from", "[NAME=]ADDRESS", "producer whose samples are sent; several are sent together", &Options::from)
      .required = true;
  sample_count(f, "maximum number of samples");
  f.real("rate", Least::above_zero, kAnyRate, "samples per second (default: as fast as the receiver takes them)",
         [](Options& o, double v) { o.rate = v; })
      .example = "100";
  library(f);
  f.group("Sending");
  f.text("producer-name", "NAME",
         "name of this sender (default: the addresses of --from); a restarted sender of that name continues at the "
         "receiver's position",
         &Options::producer_name);
  FlagRow& ack = f.text("ack", "WHEN", " (on the receiver's disk): until then samples are kept", &Options::ack);
  ack.choices = {"received", "durable"};
  ack.initial = "received";
  unencrypted(f);
}

void receive_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("ADDRESS", "address to listen on, with tensors: 'tcp:127.0.0.1:5555#image,label'; or any producer");
  f.group("Data");
  f.texts("to", "[NAME=]ADDRESS", "consumer for the samples (default: JSON lines on standard output)", &Options::to);
  sample_count(f, "maximum number of samples");
  library(f);
  unencrypted(f);
}

void keys_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("FILE", "file for the key pair; the public key alone goes to FILE.pub");
}

void quantize_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("MODEL", "a GGUF file (of several parts, the first), a model folder, or a .ndsl file with --weights");
  f.positional("OUTPUT", "the file to write").required = false;
  FlagRow& type = f.text("type", "MIX", ": mix of element types, named after the type of most matrices", &Options::mix);
  type.choices = type_mix_names();
  type.initial = "q8_0";
  FlagRow& output = f.text("output-type", "TYPE", ": type of output.weight",
                           [](Options& o, const std::string& v) { o.output_type = dtype_named(v); });
  output.choices = quantized_types();
  output.example = "q8_0";
  FlagRow& embedding = f.text("embedding-type", "TYPE", ": type of token_embd.weight",
                              [](Options& o, const std::string& v) { o.embedding_type = dtype_named(v); });
  embedding.choices = quantized_types();
  embedding.example = "q8_0";
  f.texts("tensor", "PATTERN=TYPE",
          "type of the tensors whose names match, e.g. 'blk.0.*=q8_0'; the first match applies",
          &Options::tensor_types);
  f.on("pure", "use the type of the mix for all matrices", &Options::pure);
  f.text("importance", "FILE",
         "weight errors by the importance of columns (a file of harmonics importance or llama.cpp)",
         &Options::importance);
  f.text("weights", "FILE", "weights of a .ndsl file: a Hugging Face folder, saved weights or a checkpoint",
         &Options::weights);
  f.texts("set", "NAME=VALUE", "override a setting of a .ndsl file", &Options::set);
  f.on("requantize", "also convert matrices that are already quantized; errors accumulate", &Options::requantize);
  f.on("keep-split", "write as many GGUF files as the model has, named OUTPUT-00001-of-0000N.gguf",
       &Options::keep_split);
  f.on("dry-run", "print the tensors with their types and sizes; write nothing", &Options::dry_run);
  f.whole("threads", 1, 1024, "number of threads; results do not depend on it (default: all)",
          [](Options& o, int64_t v) { o.run.threads = static_cast<int>(v); })
      .example = "2";
}

void export_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("MODEL",
               "a file or folder that an importer reads, a .ndsl file or a built-in model, saved weights (safetensors, "
               "npz) or a checkpoint");
  f.positional("OUTPUT", "the file to write, or, with a slash at the end, a Hugging Face folder: NAME/");
  FlagRow& format = f.text("format", "NAME", ": the exporter (default: by the name of OUTPUT)", &Options::format);
  format.names = [] { return Registry::global().names(HX_EXPORTER); };
  format.example = "gguf";
  f.texts("option", "NAME=VALUE", "an option of the exporter ('harmonics inspect FORMAT' lists them)",
          &Options::format_options);
  f.texts("lora", "FILE[=SCALE]",
          "merge this LoRA adapter, a GGUF file or a PEFT folder, with this factor (default: 1) into the weights",
          &Options::lora);
  f.text(
      "weights", "FILE",
      "replace weights of MODEL by those of this file or checkpoint, which a flow has saved; for a .ndsl file also a "
      "Hugging Face folder",
      &Options::weights);
  f.texts("set", "NAME=VALUE", "override a setting of a .ndsl file", &Options::set);
  f.on("cpp", "write an entry of the model as one C++ file with its weights, which uses only the public headers",
       &Options::cpp);
  f.text("entry", "NAME", "with --cpp: the entry (default: forward)", &Options::entry);
  f.whole("tokens", 1, 1 << 20, "with --cpp: tokens of one run", [](Options& o, int64_t v) { o.tokens = v; }).initial =
      "1";
  f.text("tokenizer", "FILE", "copy this tokenizer.json, or the tokenizer of this folder, into the folder",
         &Options::tokenizer);
  f.text("shard-size", "SIZE", "for a folder: maximum size of one file of weights, such as 2G",
         [](Options& o, const std::string& v) {
           const auto bytes = parse_byte_count(v);
           if (!bytes) throw Error(ErrorKind::Usage, "--shard-size takes a size such as 512M or 2G, not '" + v + "'");
           o.shard_bytes = *bytes;
         })
      .example = "2G";
  f.texts("add-token", "TEXT",
          "for a folder: add this special token to the tokenizer, and a row with the mean of the others to the "
          "embedding and "
          "the head; eos_token=TEXT, pad_token=TEXT, bos_token=TEXT and unk_token=TEXT also set its role",
          &Options::added_tokens);
  library(f);
}

void validate_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("FILE", "flows (.hmx) and models (.ndsl, or the name of a built-in one) to check").repeats = true;
  f.group("Data");
  library(f);
  f.texts("producer", "[NAME=]ADDRESS", "also check shapes against this data", &Options::producers).short_name = "p";
  f.text("graph", "NAME", "harmonic of the file, if it has several", &Options::graph);
  f.texts("set", "NAME=VALUE", "override a setting of a .ndsl file", &Options::set);
}

void ckpt_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("ACTION", "the command").choices = {"list", "show", "verify", "diff"};
  f.positional("FILE", "a checkpoint, or a directory of them: all (list, verify), its newest (show, diff)").repeats =
      true;
}

void cache_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("ACTION", "the command").choices = {"list", "clear"};
  PositionalRow& kinds = f.positional("KIND", "a kind of entry (default: all)");
  kinds.choices = {"opencl", "cuda", "packed", "plugins", "plugins-opened", "product-rates"};
  kinds.required = false;
  kinds.repeats = true;
}

void list_flags(VerbRow& verb) {
  Flags f(verb);
  PositionalRow& kind =
      f.positional("KIND", "one kind; 'functions': activations, losses and layers (default: everything)");
  kind.required = false;
  kind.names = listed_kinds;
  f.group("Data");
  library(f);
}

void list_models_flags(VerbRow& verb) {
  Flags f(verb);
  f.group("Data");
  f.on("dsl", "models of .ndsl files (all built-in models)", &Options::dsl);
  library(f);
}

void inspect_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("THING",
               "a name of 'harmonics list', an address, a .safetensors file, a folder of checkpoints or a plugin .so")
      .names = named_things;
  f.group("Data");
  library(f);
}

void plugin_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("ACTION", "the command (new NAME, check FILE.so..., doctor [FILE.so|DIR...], list, reload PROCESS...)")
      .choices = {"new", "check", "doctor", "list", "reload"};
  PositionalRow& things = f.positional("THING", "a new name, plugin libraries, folders, processes");
  things.required = false;
  things.repeats = true;
  f.group("New");
  f.text("kind", "KIND", "", &Options::kind).names = kinds_of_plugins;
  f.text("directory", "DIR", "folder to write (default: the name of the plugin)", &Options::directory);
  f.group("Check");
  f.text("address", "ADDRESS",
         "address for a producer or consumer to open: 'my:path?option=1'; file for an importer or tokenizer",
         &Options::address);
  f.whole("seed", 0, std::numeric_limits<int64_t>::max(), "seed of the test data", [](Options& o, int64_t v) {
     o.run.seed = v;
   }).initial = "0";
  f.whole("calls", 1000, int64_t{1} << 40, "calls of each function in the check for leaks, 2 s at most",
          [](Options& o, int64_t v) { o.calls = v; })
      .initial = "1000000";
}

void config_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("ACTION", "the command").choices = {"show"};
  PositionalRow& whose = f.positional("VERB", "verb whose settings are shown (default: all that are set)");
  whose.required = false;
  whose.names = verb_names;
  f.on("origin", "also the origin of each value", &Options::origin);
}

void completion_flags(VerbRow& verb) { Flags(verb).positional("SHELL", "shell").choices = {"bash", "zsh", "fish"}; }

void man_flags(VerbRow& verb) {
  Flags f(verb);
  PositionalRow& page = f.positional("PAGE", "a verb, or hmx: the flow language (default: the program)");
  page.required = false;
  page.names = pages;
  f.on("list", "the verbs, one on each line", &Options::list);
}

void version_flags(VerbRow& verb) {
  Flags(verb).on("licenses", "print the licenses of the libraries bundled with the program", &Options::licenses);
}

}  // namespace harmonics::engine::cli
