// The flags of train and tokenize.
#include "engine/cli/commands/verb_flags.hpp"
#include "engine/cli/run/train_settings.hpp"

namespace harmonics::engine::cli {

void train_flags(VerbRow& verb) {
  verb.settings = train_key_names;
  Flags f(verb);
  f.positional("CONFIG", "the configuration (YAML)").required = false;
  f.on("keys", "print the keys of a configuration, with their values and defaults", &Options::keys);
  f.group("Training");
  f.texts("set", "KEY=VALUE", "override a value of the configuration", &Options::set);
  f.text("model", "NAME", "the same as --set model=NAME",
         [](Options& o, const std::string& v) { o.set.push_back("model=" + v); });
  f.text("model-dsl", "FILE", "the same as --set model_dsl=FILE",
         [](Options& o, const std::string& v) { o.set.push_back("model_dsl=" + v); });
  f.text("resume", "[DIR|FILE]", "continue from the newest checkpoint of output_dir, of another directory, or a file",
         [](Options& o, const std::string& v) { o.resume = v; })
      .optional = true;
  f.text("weights", "FILE", "start from the weights that another run saved, or from a checkpoint", &Options::weights);
  f.on("dry-run", "print rows, steps, weights, memory and time; write nothing", &Options::dry_run);
  f.text("replay", "FILE", "run one step on a batch that the loss guard skipped; write nothing", &Options::replay);
  f.texts("plugin", "PATH", "load a plugin library", &Options::plugins);
  f.group("Machine");
  f.whole("threads", 1, 1024, "number of threads; results do not depend on it (default: all)",
          [](Options& o, int64_t v) { o.run.threads = static_cast<int>(v); })
      .example = "2";
  FlagRow& device = f.text("device", "NAME", ": an accelerator if there is one",
                           [](Options& o, const std::string& v) { o.run.device = v; });
  device.names = device_names;
  device.initial = "cpu";
  f.group("Serving");
  f.texts("serve", "ADDRESS", "answer requests during the run: 127.0.0.1:8080 over HTTP, port 0 for a free one",
          &Options::serve);
  f.on("ui", "serve a web page to watch and control the run; its address is printed", &Options::ui);
  f.text("control", "PATH", "control socket of the run: harmonics ctl PATH", &Options::control);
  f.text("token", "TEXT", "bearer token; prefer HARMONICS_TOKEN (default: random)", &Options::token);
}

void tokenize_flags(VerbRow& verb) {
  Flags f(verb);
  f.positional("TOKENIZER", "file or folder of a model or a tokenizer; with --train, the file to write");
  PositionalRow& text = f.positional("TEXT", "the text (default: --file, or standard input)");
  text.required = false;
  text.repeats = true;
  f.text("file", "FILE", "the text of this file; with --train a file, a pattern or a folder", &Options::text_file);
  f.text("decode", "IDS", "print the text of these ids: '40 1101 257'", &Options::ids);
  f.on("count", "print only the numbers of tokens and bytes", &Options::count_only);
  f.on("special", "recognise special tokens in the text", &Options::special_tokens);
  f.whole("train", 256, 1 << 24, "train a byte-level tokenizer with this vocabulary size on the text of --file",
          [](Options& o, int64_t v) { o.train_size = v; })
      .example = "8192";
}

}  // namespace harmonics::engine::cli
