// Flags of how a language model is changed and how its texts are computed, for several verbs.
#include "engine/cli/commands/verb_flags.hpp"

namespace harmonics::engine::cli {

void adapter_flags(Flags& f) {
  f.texts("lora", "FILE[=SCALE]",
          "apply this LoRA adapter, a GGUF file or a folder of PEFT, with this factor (default: 1); several add up",
          &Options::lora);
}

void speculation_flags(Flags& f) {
  f.text("draft", "MODEL", "let this smaller model of the same vocabulary draft tokens, which one run verifies",
         &Options::draft);
  f.whole("lookup", 1, 1 << 10,
          "draft what followed the last tokens, at most so many of them, where they occurred before in the text",
          [](Options& o, int64_t v) { o.lookup = v; })
      .example = "3";
  f.whole("draft-tokens", 1, 1 << 10, "tokens that one run verifies at most (default: 8)", [](Options& o, int64_t v) {
     o.draft_tokens = v;
   }).example = "4";
}

void overflow_flags(Flags& f, const char* overflow_help) {
  FlagRow& overflow = f.text("overflow", "WHAT", overflow_help, &Options::overflow);
  overflow.choices = {"stop", "shift"};
  overflow.initial = "stop";
  f.whole("keep", 0, 1 << 30, "with --overflow shift: first tokens that never go", [](Options& o, int64_t v) {
     o.keep_tokens = v;
   }).initial = "0";
}

void session_flags(Flags& f, const char* overflow_help) {
  overflow_flags(f, overflow_help);
  f.text("session", "FILE",
         "go on from this file, if it exists, with what was computed for its text, and write it at the end",
         &Options::session);
}

void ndsl_weights_flag(Flags& f) {
  f.text("weights", "FOLDER", "of a .ndsl file: the folder of Hugging Face with its weights and tokenizer",
         &Options::weights);
}

void pooling_flag(Flags& f) {
  f.text("pooling", "HOW",
         ": how the vectors of a text's tokens become one (default: as the model says, else the last one's)",
         &Options::pooling)
      .choices = {"mean", "first", "last"};
}

void chat_template_flag(Flags& f) {
  f.text("chat-template", "FILE", "write messages by this template (Jinja; default: the model's)",
         &Options::chat_template);
}

}  // namespace harmonics::engine::cli
