// The table of verbs.
#include <algorithm>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/options/command_table.hpp"
#include "engine/cli/commands/verb_flags.hpp"

namespace harmonics::engine::cli {

namespace {

struct Verb {
  const char *name, *help;
  void (*flags)(VerbRow&);
  int (*run)(const Options&);
  const char* schema;  // schema of the --json output: a file in docs/schema
  const char* examples;
  const char* notes = "";
  const char* alias = "";
};

constexpr const char* kRunExamples =
    "train on synthetic digits, without files\n"
    "  harmonics run samples/mnist.hmx --producer synth:digits --producer 'synth:digits#label'\n"
    "train on files, test, save the weights\n"
    "  harmonics run mnist.hmx --producer train-images.idx --producer train-labels.idx \\\n"
    "    --test t10k-images.idx --test t10k-labels.idx --save mnist.safetensors\n"
    "validate after every epoch, stop at an accuracy, write a report\n"
    "  harmonics run g.hmx --producer x=x.csv --producer y=y.csv --validate x=vx.csv --validate y=vy.csv \\\n"
    "    --metric f1 --until 'val.accuracy>=0.98' --epochs 100 --report run.html --log metrics.csv\n"
    "test saved weights without training\n"
    "  harmonics run g.hmx --weights w.safetensors --epochs 0 --producer x=x.csv --producer y=y.csv \\\n"
    "    --test x=tx.csv --test y=ty.csv\n"
    "train and answer requests at the same time\n"
    "  harmonics run g.hmx --producer x=tcp:127.0.0.1:5555 --serve 127.0.0.1:8080 --control run.sock\n"
    "train for an hour with another optimizer and a decaying learning rate\n"
    "  harmonics run g.hmx --producer data.csv --for 1h --optimizer 'sgd(lr=0.1, momentum=0.9)' --schedule cosine";

constexpr Verb kVerbs[] = {
    {"run", "train a flow, or run it if it has no training tap", run_flags, run_command, "run.json", kRunExamples},
    {"train", "train or fine-tune a language model from a configuration file", train_flags, train_command, "train.json",
     "harmonics train config.yaml\n"
     "harmonics train config.yaml --set learning_rate=3e-4 --set max_steps=500 --dry-run\n"
     "harmonics train config.yaml --resume --ui",
     "'harmonics train --keys' lists the keys of a configuration. 'harmonics sft' is an alias.", "sft"},
    {"tokenize", "convert text to tokens and back; train a tokenizer", tokenize_flags, tokenize_command,
     "tokenize.json",
     "harmonics tokenize model/ 'Once upon a time'\n"
     "harmonics tokenize model.gguf --file book.txt --count\n"
     "harmonics tokenize model/ --decode '40 1101 257'\n"
     "harmonics tokenize --train 8192 --file 'texts/*.txt' tokenizer.json"},
    {"infer", "run a flow without training", infer_flags, infer_command, "infer.json",
     "harmonics infer mnist.hmx --weights mnist.safetensors --producer t10k-images.idx\n"
     "harmonics infer char_gpt.hmx --weights gpt.safetensors --prompt 'ROMEO:'"},
    {"generate", "continue a text with a language model", generate_flags, generate_command, "generate.json",
     "harmonics generate model.gguf 'Once upon a time'\n"
     "harmonics generate my_model.ndsl --weights folder 'Once upon a time'\n"
     "harmonics generate stories260K.bin --tokenizer tok512.bin --max-tokens 64 --temperature 0 --json"},
    {"chat", "hold a conversation with a language model", chat_flags, chat_command, "chat.json",
     "harmonics chat model.gguf\n"
     "harmonics chat model.gguf --system 'Answer in one sentence.' --temperature 0.6\n"
     "echo 'What is a gradient?' | harmonics chat model.gguf --quiet",
     "In the conversation, /help lists the commands. Without a terminal, each line of standard input\n"
     "is a message."},
    {"embed", "print embeddings of texts", embed_flags, embed_command, "embed.json",
     "harmonics embed model.gguf 'A red fox' 'A brown dog'\n"
     "harmonics embed model.gguf --file lines.txt --pooling mean"},
    {"quantize", "quantize a model: write it with matrices of a smaller type", quantize_flags, quantize_command,
     "quantize.json",
     "harmonics quantize model.gguf model-q8.gguf\n"
     "harmonics quantize model.gguf model-q4.gguf --type q4_k_m --importance model.importance.gguf\n"
     "harmonics quantize model.gguf --type q3_k_m --tensor 'blk.0.*=q6_k' --dry-run"},
    {"importance", "measure the importance of columns of a model's matrices, for quantize", importance_flags,
     importance_command, "importance.json",
     "harmonics importance model.gguf text.txt model.importance.gguf\n"
     "harmonics importance model.gguf text.txt out.gguf --chunk 512 --chunks 100"},
    {"export", "write a model, or saved weights, in another format", export_flags, export_command, "export.json",
     "harmonics export model.gguf model.safetensors\n"
     "harmonics export model.gguf folder/\n"
     "harmonics export weights.safetensors weights.gguf --json"},
    {"serve", "answer requests over HTTP or ZeroMQ with saved weights or a language model", serve_flags, serve_command,
     "serve.json",
     "harmonics serve g.hmx --weights w.safetensors --listen 127.0.0.1:8080\n"
     "harmonics serve model.gguf --listen 127.0.0.1:8080\n"
     "curl -H 'Content-Type: application/json' -d '{\"inputs\": {\"x\": [[0.1, 0.2]]}}' "
     "http://127.0.0.1:8080/v1/predict"},
    {"ctl", "control a run: status, pause, step, checkpoint, learning rate, layers, stop", ctl_flags, ctl_command,
     "ctl.json",
     "harmonics ctl run.sock status\n"
     "harmonics ctl run.sock lr 1e-4\n"
     "harmonics ctl run.sock layer hidden rate=0.3\n"
     "harmonics ctl http://127.0.0.1:8080 pause --token 5f0c...",
     "'layer' changes arguments of the functions on the arrows into a layer, between two steps; the\n"
     "weights stay. 'undo' takes back the last change."},
    {"top", "watch a run in the terminal", top_flags, top_command, "top.json",
     "harmonics top run.sock\n"
     "harmonics top http://127.0.0.1:8080 --token 5f0c...\n"
     "harmonics top run.sock --once",
     "Keys: q quits, p pauses and resumes, s makes a step, c writes a checkpoint."},
    {"tap", "print samples that pass a producer or layer of a run", tap_flags, tap_command, "tap.json",
     "harmonics tap run.sock hidden --count 5\n"
     "harmonics tap http://127.0.0.1:8080 image | head -n 1"},
    {"validate", "check flows and models, and report all errors", validate_flags, validate_command, "validate.json",
     "harmonics validate *.hmx\n"
     "harmonics validate my_model.ndsl\n"
     "harmonics validate g.hmx --producer 'x=data.csv#0-3' --json"},
    {"explain", "show the shapes, program, kernels and memory of a flow or model", explain_flags, explain_command,
     "explain.json",
     "harmonics explain mnist.hmx --producer train-images.idx --producer train-labels.idx\n"
     "harmonics explain mnist.hmx --weights mnist.safetensors --infer --show kernels,memory\n"
     "harmonics explain mnist.hmx --dot | dot -Tsvg > mnist.svg\n"
     "harmonics explain model.gguf\n"
     "harmonics explain my_model.ndsl --set num_layers=2\n"
     "harmonics explain my_model.ndsl --memory --batch 2 --tokens 512\n"
     "harmonics explain mnist.hmx --html mnist.html"},
    {"profile", "time each kernel of a step beside the machine's roofline", profile_flags, profile_command,
     "profile.json",
     "harmonics profile mnist.hmx --producer train-images.idx --producer train-labels.idx --batch 1 --threads 1"},
    {"bench", "measure samples per second of a flow, tokens per second of a language model", bench_flags, bench_command,
     "bench.json",
     "harmonics bench mnist.hmx --producer train-images.idx --producer train-labels.idx --batch 1,64 --threads 1,2\n"
     "harmonics bench model.gguf --prefill 512 --decode 128 --threads 1,2"},
    {"send", "send a producer's samples to a process that listens at ADDRESS", send_flags, send_command, "send.json",
     "harmonics send tcp:127.0.0.1:5555 --from image=train-images.idx --from label=train-labels.idx --ack durable\n"
     "harmonics send unix:/tmp/digits --from synth:digits --rate 100"},
    {"receive", "receive samples and print or write them, without a flow", receive_flags, receive_command,
     "receive.json",
     "harmonics receive 'tcp:127.0.0.1:5555#image,label' --count 10\n"
     "harmonics receive zmq+router://127.0.0.1:5556 --to file:samples.npy"},
    {"keys", "create the key pair that ZeroMQ streams between machines need", keys_flags, keys_command, "keys.json",
     "harmonics keys camera.key"},
    {"ckpt", "list, show, verify and compare checkpoints", ckpt_flags, ckpt_command, "ckpt.json",
     "harmonics ckpt list runs/digits\n"
     "harmonics ckpt diff runs/a runs/b"},
    {"cache", "list or clear compiled programs and other cached files", cache_flags, cache_command, "cache.json",
     "harmonics cache list\n"
     "harmonics cache list opencl --json\n"
     "harmonics cache clear packed"},
    {"list", "list functions, streams, devices, metrics, optimizers, verbs, ...", list_flags, list_command, "list.json",
     "harmonics list functions\n"
     "harmonics list models\n"
     "harmonics list metrics --json"},
    {"list-models", "list the built-in models; the same as 'list models'", list_models_flags, list_models_command,
     "list-models.json", "harmonics list-models --dsl"},
    {"inspect", "describe one item: a function, a stream scheme, the data of an address, a weights file", inspect_flags,
     inspect_command, "inspect.json",
     "harmonics inspect conv\n"
     "harmonics inspect 'data.csv#age'\n"
     "harmonics inspect mnist.safetensors"},
    {"plugin", "create, check and reload plugins; find out why a plugin does not load", plugin_flags, plugin_command,
     "plugin.json",
     "write a project, build it, check it\n"
     "  harmonics plugin new my_act --kind activation\n"
     "  cmake -S my_act -B my_act/build && cmake --build my_act/build\n"
     "  harmonics plugin check my_act/build/libmy_act.so\n"
     "find out why it is not found or does not load\n"
     "  harmonics plugin doctor\n"
     "  harmonics plugin doctor ./libmy_act.so\n"
     "reload it in a running process\n"
     "  harmonics plugin reload $(pgrep -x harmonics)"},
    {"config", "show settings from files and the environment, with their origins", config_flags, config_command,
     "config.json",
     "printf '[run]\\nbatch = 128\\nepochs = 3\\n' > harmonics.toml\n"
     "harmonics config show run --origin",
     "Settings have the names of flags. Precedence, highest first: the flag, HARMONICS_FLAG in the\n"
     "environment, --config FILE, ./harmonics.toml (epochs, steps, batch, lr, optimizer, schedule, seed,\n"
     "threads, precision, device, quiet), ~/.config/harmonics/config.toml, /etc/harmonics/config.toml,\n"
     "the default."},
    {"completion", "print the completion script for bash, zsh or fish", completion_flags, completion_command,
     "completion.json",
     "source <(harmonics completion bash)\n"
     "harmonics completion zsh > ~/.zfunc/_harmonics\n"
     "harmonics completion fish > ~/.config/fish/completions/harmonics.fish"},
    {"man", "print the manual page of the program, of a verb or of the flow language", man_flags, man_command,
     "man.json",
     "harmonics man run | man -l -\n"
     "harmonics man hmx | man -l -"},
    {"version", "print the version, the folders of samples and documentation, licenses", version_flags, version_command,
     "version.json", "harmonics version --json\nharmonics version --licenses | less"},
};

VerbRow row_of(const Verb& verb) {
  VerbRow row{verb.name, verb.help, verb.examples, {}, {}, verb.notes, verb.run, verb.schema, verb.alias};
  verb.flags(row);
  Flags f(row);
  f.group("Output");
  f.on("json", "print one JSON object on the last line of standard output", &Options::json);
  f.on("quiet", "no progress and no summary", &Options::quiet).short_name = "q";
  FlagRow& color = f.text("color", "WHEN", "", &Options::color);
  color.choices = {"auto", "always", "never"};
  color.initial = "auto";
  f.on("help", "examples and flags", nullptr).short_name = "h";
  f.text("config", "FILE", "settings from this file (TOML), over those of ./harmonics.toml", &Options::config);
  return row;
}

}  // namespace

const CommandTable& command_table() {
  static const CommandTable table = [] {
    CommandTable rows;
    for (const Verb& verb : kVerbs) rows.push_back(row_of(verb));
    return rows;
  }();
  return table;
}

std::vector<std::string> verb_names() {
  std::vector<std::string> all;
  for (const Verb& verb : kVerbs) all.emplace_back(verb.name);
  return all;
}

const VerbRow& verb_named(const std::string& name) {
  for (const VerbRow& row : command_table())
    if (row.name == name) return row;
  Error e(ErrorKind::Usage, "there is no verb '" + name + "'");
  if (const std::string meant = did_you_mean(name, verb_names()); !meant.empty()) e.note(meant);
  throw e;
}

}  // namespace harmonics::engine::cli
