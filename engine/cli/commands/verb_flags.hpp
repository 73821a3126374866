// The flags of each verb.
#pragma once

#include "engine/cli/options/flags.hpp"

namespace harmonics::engine::cli {

void run_flags(VerbRow& verb);
void train_flags(VerbRow& verb);
void tokenize_flags(VerbRow& verb);
void infer_flags(VerbRow& verb);
void generate_flags(VerbRow& verb);
void embed_flags(VerbRow& verb);
void chat_flags(VerbRow& verb);
void serve_flags(VerbRow& verb);
void validate_flags(VerbRow& verb);
void explain_flags(VerbRow& verb);
void profile_flags(VerbRow& verb);
void bench_flags(VerbRow& verb);
void ctl_flags(VerbRow& verb);
void top_flags(VerbRow& verb);
void tap_flags(VerbRow& verb);
void send_flags(VerbRow& verb);
void receive_flags(VerbRow& verb);
void keys_flags(VerbRow& verb);
void quantize_flags(VerbRow& verb);
void importance_flags(VerbRow& verb);
void export_flags(VerbRow& verb);
void ckpt_flags(VerbRow& verb);
void cache_flags(VerbRow& verb);
void list_flags(VerbRow& verb);
void list_models_flags(VerbRow& verb);
void inspect_flags(VerbRow& verb);
void plugin_flags(VerbRow& verb);
void config_flags(VerbRow& verb);
void completion_flags(VerbRow& verb);
void man_flags(VerbRow& verb);
void version_flags(VerbRow& verb);

// Add flags that several verbs share.
void adapter_flags(Flags& f);
void explain_show_flags(Flags& f);
void value_trace_flag(Flags& f);
void speculation_flags(Flags& f);
void overflow_flags(Flags& f, const char* overflow_help);
void session_flags(Flags& f, const char* overflow_help);
void model_spec(Flags& f);
void ndsl_weights_flag(Flags& f);
void pooling_flag(Flags& f);
void chat_template_flag(Flags& f);

// Returns the registered devices, "reference" and "auto".
std::vector<std::string> device_names();

}  // namespace harmonics::engine::cli
