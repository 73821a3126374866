// The keys of `train` for the model: settings, adapters, types of frozen weights, recomputation.
#include <fmt/format.h>

#include "engine/base/spelling.hpp"
#include "engine/cli/run/train_settings.hpp"
#include "engine/passes/recomputation.hpp"
#include "engine/transformer/added_tokens.hpp"
#include "engine/transformer/lora_settings.hpp"

namespace harmonics::engine::cli {

namespace {

// Adds an error with its first note as the remedy.
void add_refused(const document::Node& node, const Error& e, document::Problems& problems) {
  problems.add(node.span, e.what(), e.notes().empty() ? "" : e.notes().front());
}

// Settings that an adapter has already when it is trained further.
constexpr const char* kOfAdapter[] = {"r", "alpha", "target_modules", "use_dora", "use_rslora"};

void take_lora(TrainSettings& s, const document::Node& node, document::Problems& problems) {
  document::Fields fields(node, problems, "'lora'");
  std::string shape = fmt::format(", rank={}", fields.whole("r", 1, 1 << 16).value_or(8));
  shape += fmt::format(", alpha={}", fields.real("alpha", 1e-9, 1e9).value_or(16));
  std::string text = fmt::format("dropout={}", fields.real("dropout", 0, 0.999).value_or(0));
  if (const auto modules = fields.texts("target_modules"))
    shape += fmt::format(", targets={}", fmt::join(*modules, "+"));
  if (fields.truth("use_dora").value_or(false)) shape += ", dora";
  if (fields.truth("use_rslora").value_or(false)) shape += ", rslora";
  const std::string from = fields.text("from").value_or("");
  if (from.empty()) text += shape;
  s.base_type = fields.text("base").value_or("");
  std::vector<std::string> given;
  for (const char* name : kOfAdapter)
    if (fields.find(name)) given.push_back(name);
  fields.finish();
  if (from.find(',') != std::string::npos)
    problems.add(fields.find("from")->span, fmt::format("'from' is '{}'", from), "give a path without commas");
  if (!from.empty() && !given.empty())
    s.notes.push_back(fmt::format("{} of 'lora' {} no effect: the adapter '{}' has its own", comma_separated(given),
                                  given.size() == 1 ? "has" : "have", from));
  try {
    expect_lora(parse_lora(text));
    s.lora = text;
    s.lora_from = from;
  } catch (const Error& e) {
    add_refused(node, e, problems);
  }
}

void take_model_settings(TrainSettings& s, const document::Node& node, document::Problems& problems) {
  s.model_settings.clear();
  if (node.kind != document::Kind::map)
    return problems.expected(node, "'model_settings'", "a map of the model's settings: {num_layers: 2}");
  for (const document::Entry& entry : node.entries) {
    if (entry.value.kind != document::Kind::scalar) {
      problems.expected(entry.value, "'" + entry.key + "'", "one value");
      continue;
    }
    s.model_settings += fmt::format("{}{}={}", s.model_settings.empty() ? "" : ", ", entry.key, entry.value.text);
  }
}

void take_recompute(TrainSettings& s, const document::Node& node, document::Problems& problems) {
  std::string text = node.kind == document::Kind::scalar ? node.text : "";
  if (node.kind == document::Kind::list)
    for (const document::Node& item : node.items) text += (text.empty() ? "" : ",") + item.text;
  if (const auto whole = document::truth_of(node)) text = *whole ? "block" : "";
  try {
    if (!text.empty()) parse_recomputation(text);
    s.recompute = text;
  } catch (const Error& e) {
    add_refused(node, e, problems);
  }
}

void take_special_tokens(TrainSettings& s, const document::Node& node, document::Problems& problems) {
  s.special_tokens.clear();
  const auto take = [&](const document::Node& one, const std::string& role) {
    if (one.kind == document::Kind::scalar && !one.text.empty())
      s.special_tokens.push_back(role.empty() ? one.text : role + "=" + one.text);
    else
      problems.expected(one, "a special token", "a string");
  };
  if (node.kind == document::Kind::list) {
    for (const document::Node& one : node.items) take(one, "");
    return;
  }
  document::Fields fields(node, problems, "'special_tokens'");
  for (const std::string& role : token_roles())
    if (const document::Node* one = fields.find(role)) take(*one, role);
  for (const std::string& one : fields.texts("additional").value_or(std::vector<std::string>()))
    s.special_tokens.push_back(one);
  fields.finish();
}

}  // namespace

std::vector<TrainKey> train_model_keys() {
  return {{"special_tokens",
           {"added_tokens", "tokens"},
           "a list of strings, or a map with additional, bos_token, eos_token, pad_token and unk_token",
           "",
           "special tokens to add to the tokenizer; their rows in the tables of 'model' start as the mean of the other "
           "rows",
           take_special_tokens},
          {"model_settings",
           {"model_config"},
           "a map",
           "",
           "overrides settings of the model: {num_layers: 2}",
           take_model_settings},
          {"lora",
           {},
           "a map with r, alpha, dropout, target_modules, use_dora, use_rslora, from and base",
           "",
           "train an adapter instead of the weights; from: an adapter to train further; base: type to convert the "
           "frozen weights to, such as nf4_64; also adapter: lora or qlora with lora_r, lora_alpha, lora_dropout, "
           "lora_target_modules, lora_target_linear, lora_model_dir, load_in_4bit",
           take_lora},
          {"recompute",
           {"gradient_checkpointing"},
           "rmsnorm, qkv, attention, swiglu, ffn, block, lora, auto, auto=SIZE or true: block",
           "",
           "results to recompute in the backward pass, to save memory; also recompute_attention: true and so on",
           take_recompute}};
}

}  // namespace harmonics::engine::cli
