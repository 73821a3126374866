// Flags of several verbs: changes of a language model, and how its texts are computed.
#include "engine/cli/commands/verb_flags.hpp"

namespace harmonics::engine::cli {

void adapter_flags(Flags& f) {
  f.texts("lora", "FILE[=SCALE]",
          "apply this LoRA adapter, a GGUF file or a PEFT folder, with this factor (default: 1); several are summed",
          &Options::lora);
}

void speculation_flags(Flags& f) {
  f.text("draft", "MODEL", "speculative decoding: draft tokens with this smaller model of the same vocabulary",
         &Options::draft);
  f.whole("lookup", 1, 1 << 10,
          "speculative decoding: draft up to this many tokens that followed an earlier occurrence of the last tokens",
          [](Options& o, int64_t v) { o.lookup = v; })
      .example = "3";
  f.whole("draft-tokens", 1, 1 << 10, "maximum number of draft tokens in one step (default: 8)",
          [](Options& o, int64_t v) { o.draft_tokens = v; })
      .example = "4";
}

void overflow_flags(Flags& f, const char* overflow_help) {
  FlagRow& overflow = f.text("overflow", "WHAT", overflow_help, &Options::overflow);
  overflow.choices = {"stop", "shift"};
  overflow.initial = "stop";
  f.whole("keep", 0, 1 << 30, "with --overflow shift: number of first tokens that are never dropped",
          [](Options& o, int64_t v) { o.keep_tokens = v; })
      .initial = "0";
}

void session_flags(Flags& f, const char* overflow_help) {
  overflow_flags(f, overflow_help);
  f.text("session", "FILE", "continue the session in this file, if it exists, and write the file at the end",
         &Options::session);
}

void model_spec(Flags& f) {
  f.group("Model");
  f.text("spec", "FILE", "the model's spec in JSON (default: the one of its architecture)", &Options::spec);
  f.texts("set", "NAME=VALUE", "set a variable of the spec, overriding the file and the spec", &Options::set);
}

void ndsl_weights_flag(Flags& f) {
  f.text("weights", "FILE", "weights of a .ndsl file: a Hugging Face folder, saved weights or a checkpoint",
         &Options::weights);
}

void pooling_flag(Flags& f) {
  f.text("pooling", "HOW", ": pooling of the tokens' vectors (default: the model's, else last)", &Options::pooling)
      .choices = {"mean", "first", "last"};
}

void chat_template_flag(Flags& f) {
  f.text("chat-template", "FILE", "format messages with this template (Jinja; default: the model's)",
         &Options::chat_template);
}

}  // namespace harmonics::engine::cli
