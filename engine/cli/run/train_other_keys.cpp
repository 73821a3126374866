// Configurations of other trainers: keys such as lora_r, recompute_attention and bf16 become those of `train`.
#include <algorithm>
#include <iterator>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/cli/run/train_settings.hpp"
#include "engine/passes/recomputation.hpp"
#include "engine/transformer/ndsl_settings.hpp"

namespace harmonics::engine::cli {

namespace {

using Pair = std::pair<const char*, const char*>;

// Entries of `lora`, and types of its base.
constexpr Pair kLoraParts[] = {{"lora_r", "r"},
                               {"lora_rank", "r"},
                               {"lora_alpha", "alpha"},
                               {"lora_dropout", "dropout"},
                               {"lora_target_modules", "target_modules"},
                               {"lora_model_dir", "from"},
                               {"peft_use_dora", "use_dora"},
                               {"peft_use_rslora", "use_rslora"}};
constexpr Pair kBases[] = {{"load_in_4bit", "nf4_64"},
                           {"load_in_8bit", "q8_0"},
                           {"qlora_bnb", "nf4_64"},
                           {"qlora_fp8", "e4m3_64"},
                           {"qlora_fp4", "fp4_64"}};

constexpr Pair kTypes[] = {
    {"alpaca", "instruction"}, {"completion", "text"}, {"chat_template", "chat"}, {"sharegpt", "chat"}};
constexpr Pair kColumns[] = {{"field", "text"},
                             {"field_messages", "messages"},
                             {"message_field_role", "role"},
                             {"message_field_content", "content"}};

// Keys of other programs that concern their own implementation or services; "*": any rest.
constexpr const char* kWithoutEffect[] = {"comet_*",
                                          "dataloader_*",
                                          "dataset_prepared_path",
                                          "ddp_*",
                                          "debug",
                                          "deepspeed",
                                          "ds_type",
                                          "eval_sample_packing",
                                          "flash_attention",
                                          "fsdp",
                                          "fsdp_*",
                                          "gradient_checkpointing_kwargs",
                                          "group_by_length",
                                          "hub_*",
                                          "local_rank",
                                          "mlflow_*",
                                          "model_type",
                                          "pad_to_sequence_len",
                                          "save_safetensors",
                                          "sdp_attention",
                                          "split",
                                          "strict",
                                          "tf32",
                                          "tokenizer_type",
                                          "trust_remote_code",
                                          "wandb_*",
                                          "xformers_attention"};

// Keys whose values do not translate, and what to write.
constexpr Pair kOtherwise[] = {{"evals_per_epoch", "write eval_steps: the number of steps between validations"},
                               {"saves_per_epoch", "write save_steps: the number of steps between checkpoints"}};

template <typename Rows>
const char* of_key(const Rows& rows, const std::string& key) {
  for (const auto& [name, own] : rows)
    if (key == name) return own;
  return nullptr;
}

bool has_no_effect(const std::string& key) {
  return std::any_of(std::begin(kWithoutEffect), std::end(kWithoutEffect), [&](std::string_view name) {
    return name.ends_with('*') ? key.starts_with(name.substr(0, name.size() - 1)) : key == name;
  });
}

// Returns "attention" for "recompute_attention"; "" for other keys.
std::string recomputed_by(const std::string& key) {
  constexpr std::string_view kPrefix = "recompute_";
  if (!key.starts_with(kPrefix)) return "";
  const std::vector<std::string>& presets = recomputation_presets();
  const std::string preset = key.substr(kPrefix.size());
  return preset == "lora" || std::find(presets.begin(), presets.end(), preset) != presets.end() ? preset : "";
}

document::Node scalar(const std::string& text, Span span) {
  document::Node node;
  node.kind = document::Kind::scalar;
  node.text = text;
  node.span = span;
  return node;
}

document::Node list_of(std::vector<document::Node> items, Span span) {
  document::Node node;
  node.kind = document::Kind::list;
  node.items = std::move(items);
  node.span = span;
  return node;
}

document::Node map_of(std::vector<document::Entry> entries, Span span) {
  document::Node node;
  node.kind = document::Kind::map;
  node.entries = std::move(entries);
  node.span = span;
  return node;
}

class OwnKeys {
 public:
  OwnKeys(document::Problems& problems, std::vector<std::string>& notes) : problems_(problems), notes_(notes) {}

  document::Node of(const document::Node& root) {
    to_ = root;
    to_.entries.clear();
    for (const document::Entry& entry : root.entries)
      if (!takes(entry)) to_.entries.push_back(entry);
    add_lora();
    add_recomputed();
    if (precision_) add("precision", *precision_, precision_->value);
    for (document::Entry& entry : to_.entries)
      if (const TrainKey* key = find_train_key(entry.key);
          key && (key->name == std::string("datasets") || key->name == std::string("validation_datasets")))
        entry.value = data_sets(entry.value);
    if (!unused_.empty())
      notes_.push_back(
          fmt::format("{} {} no effect here", comma_separated(unused_), unused_.size() == 1 ? "has" : "have"));
    return std::move(to_);
  }

 private:
  // Returns whether this is a key of another program.
  bool takes(const document::Entry& entry) {
    const std::string& key = entry.key;
    const document::Node& value = entry.value;
    if (const char* part = of_key(kLoraParts, key)) {
      if (value.kind != document::Kind::null) add_part(part, entry, value);
    } else if (const char* base = of_key(kBases, key)) {
      if (truth(entry)) add_part("base", entry, scalar(base, value.span));
    } else if (key == "lora_target_linear") {
      if (truth(entry)) add_part("target_modules", entry, scalar("all-linear", value.span));
    } else if (key == "adapter") {
      take_adapter(entry);
    } else if (key == "lora" && document::truth_of(value)) {
      if (*document::truth_of(value)) adapts_ = entry;
    } else if (const std::string preset = recomputed_by(key); !preset.empty()) {
      if (truth(entry)) recomputed_.emplace_back(entry, preset);
    } else if (key == "bf16" || key == "fp16") {
      take_precision(entry);
    } else if (key == "train_on_inputs") {
      on_inputs_ = truth(entry);
    } else if (key == "chat_template" && value.kind == document::Kind::scalar && value.text == "tokenizer_default") {
      return true;  // the default here too
    } else if (const char* remedy = of_key(kOtherwise, key)) {
      if (value.kind != document::Kind::null)
        problems_.add(entry.place, fmt::format("'{}' is not understood", key), remedy);
    } else if (has_no_effect(key)) {
      if (asks(value)) unused_.push_back(key);
    } else {
      return false;
    }
    return true;
  }

  // Returns whether a value asks for something: it is neither empty nor false.
  static bool asks(const document::Node& value) {
    return value.kind != document::Kind::null && document::truth_of(value) != false &&
           !(value.kind == document::Kind::scalar && value.text.empty());
  }

  bool truth(const document::Entry& entry) {
    if (entry.value.kind == document::Kind::null) return false;
    const auto value = document::truth_of(entry.value);
    if (!value) problems_.expected(entry.value, "'" + entry.key + "'", "true or false");
    return value.value_or(false);
  }

  void take_adapter(const document::Entry& entry) {
    const document::Node& value = entry.value;
    if (value.kind == document::Kind::null || (value.kind == document::Kind::scalar && value.text.empty())) return;
    if (value.kind != document::Kind::scalar || (value.text != "lora" && value.text != "qlora"))
      return problems_.expected(value, "'adapter'", "lora or qlora");
    adapts_ = entry;
    if (value.text == "qlora") qlora_ = true;
  }

  void take_precision(const document::Entry& entry) {
    const document::Node& value = entry.value;
    const bool automatic = value.kind == document::Kind::scalar && value.text == "auto";
    if (!automatic && !truth(entry)) return;
    if (precision_) return one_setting(precision_->key, entry);
    precision_ = document::Entry{entry.key, entry.place, scalar(automatic ? "auto" : entry.key, value.span)};
  }

  void one_setting(const std::string& first, const document::Entry& second) {
    problems_.add(second.place, fmt::format("'{}' and '{}' are names of one setting", first, second.key), "keep one");
  }

  void add_part(const char* part, const document::Entry& entry, const document::Node& value) {
    for (size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].key == part) return one_setting(written_[i], entry);
    parts_.push_back({part, entry.place, value});
    written_.push_back(entry.key);
  }

  // Adds a key of `train` in place of a foreign one.
  void add(const char* key, const document::Entry& instead_of, document::Node value) {
    for (const document::Entry& entry : to_.entries)
      if (const TrainKey* known = find_train_key(entry.key); known && key == std::string(known->name))
        return one_setting(entry.key, instead_of);
    to_.entries.push_back({key, instead_of.place, std::move(value)});
  }

  void add_lora() {
    if (!adapts_) {
      if (!parts_.empty() && std::none_of(to_.entries.begin(), to_.entries.end(),
                                          [](const document::Entry& entry) { return entry.key == "lora"; }))
        problems_.add(parts_.front().place, fmt::format("'{}' has no effect without an adapter", written_.front()),
                      "add adapter: lora");
      else if (!parts_.empty())
        problems_.add(parts_.front().place, fmt::format("'{}' is an entry of 'lora'", written_.front()),
                      fmt::format("write lora: {{{}: …}}", parts_.front().key));
      return;
    }
    const bool has_base =
        std::any_of(parts_.begin(), parts_.end(), [](const document::Entry& e) { return e.key == "base"; });
    if (qlora_ && !has_base) parts_.push_back({"base", adapts_->place, scalar("nf4_64", adapts_->value.span)});
    add("lora", *adapts_, map_of(std::move(parts_), adapts_->value.span));
  }

  void add_recomputed() {
    if (recomputed_.empty()) return;
    std::vector<document::Node> presets;
    for (const auto& [entry, preset] : recomputed_) presets.push_back(scalar(preset, entry.value.span));
    const document::Entry& first = recomputed_.front().first;
    add("recompute", first, list_of(std::move(presets), first.value.span));
  }

  document::Node data_sets(const document::Node& value) {
    document::Node sets = value;
    if (value.kind == document::Kind::list)
      for (document::Node& item : sets.items) item = data_set(item);
    else if (value.kind != document::Kind::null)
      sets = data_set(value);
    return sets;
  }

  document::Node data_set(const document::Node& value) {
    if (value.kind == document::Kind::scalar) {
      if (!on_inputs_) return value;
      return map_of({{"path", value.span, value}, {"train_on_inputs", value.span, scalar("true", value.span)}},
                    value.span);
    }
    if (value.kind != document::Kind::map) return value;
    document::Node to = value;
    to.entries.clear();
    std::vector<document::Entry> columns;
    for (const document::Entry& entry : value.entries) {
      const document::Node& of = entry.value;
      if (const char* column = of_key(kColumns, entry.key)) {
        columns.push_back({column, entry.place, of});
      } else if (entry.key == "message_property_mappings" && of.kind == document::Kind::map) {
        columns.insert(columns.end(), of.entries.begin(), of.entries.end());
      } else if (const char* type = of_key(kTypes, of.text);
                 type && entry.key == "type" && of.kind == document::Kind::scalar) {
        to.entries.push_back({entry.key, entry.place, scalar(type, of.span)});
      } else if (has_no_effect(entry.key)) {
        if (asks(of) && std::find(unused_.begin(), unused_.end(), entry.key) == unused_.end())
          unused_.push_back(entry.key);
      } else {
        to.entries.push_back(entry);
      }
    }
    if (!columns.empty()) {
      const auto given = std::find_if(to.entries.begin(), to.entries.end(),
                                      [](const document::Entry& entry) { return entry.key == "columns"; });
      if (given != to.entries.end() && given->value.kind == document::Kind::map)
        given->value.entries.insert(given->value.entries.end(), columns.begin(), columns.end());
      else
        to.entries.push_back({"columns", columns.front().place, map_of(columns, columns.front().value.span)});
    }
    if (on_inputs_ && !to.find("train_on_inputs"))
      to.entries.push_back({"train_on_inputs", value.span, scalar("true", value.span)});
    return to;
  }

  document::Problems& problems_;
  std::vector<std::string>& notes_;
  document::Node to_;
  std::optional<document::Entry> adapts_, precision_;
  bool qlora_ = false, on_inputs_ = false;
  std::vector<document::Entry> parts_;  // of the adapter
  std::vector<std::string> written_;    // their keys as written
  std::vector<std::pair<document::Entry, std::string>> recomputed_;
  std::vector<std::string> unused_;
};

}  // namespace

document::Node in_own_keys(const document::Node& root, document::Problems& problems, std::vector<std::string>& notes) {
  if (root.kind != document::Kind::map) return root;
  return OwnKeys(problems, notes).of(root);
}

std::string own_setting(const std::string& key, const std::string& value) {
  if (const char* part = of_key(kLoraParts, key)) return fmt::format("lora={{{}: {}}}", part, value);
  if (const char* base = of_key(kBases, key)) return fmt::format("lora={{base: {}}}", base);
  if (const std::string preset = recomputed_by(key); !preset.empty()) return "recompute=" + preset;
  if (key == "bf16" || key == "fp16") return "precision=" + key;
  for (const NdslKey& row : ndsl_keys())
    if (key == row.name ||
        std::any_of(row.synonyms.begin(), row.synonyms.end(), [&](const char* other) { return key == other; }))
      return fmt::format("model_settings={{{}: {}}}", row.name, value);
  return "";
}

}  // namespace harmonics::engine::cli
