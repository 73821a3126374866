#include "engine/cli/run/train_lora.hpp"

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/transformer/lora_settings.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::cli {

namespace {

using document::Kind;

// Names of PEFT and others, and ours.
constexpr std::pair<std::string_view, std::string_view> kLoraNames[] = {{"rank", "rank"},
                                                                        {"r", "rank"},
                                                                        {"lora_r", "rank"},
                                                                        {"lora_rank", "rank"},
                                                                        {"alpha", "alpha"},
                                                                        {"lora_alpha", "alpha"},
                                                                        {"dropout", "dropout"},
                                                                        {"lora_dropout", "dropout"},
                                                                        {"targets", "targets"},
                                                                        {"target_modules", "targets"},
                                                                        {"lora_target_modules", "targets"},
                                                                        {"rslora", "rslora"},
                                                                        {"use_rslora", "rslora"},
                                                                        {"dora", "dora"},
                                                                        {"use_dora", "dora"},
                                                                        {"init", "init"},
                                                                        {"seed", "seed"},
                                                                        {"from", "from"}};

std::string_view own_name(const std::string& key) {
  for (const auto& [theirs, ours] : kLoraNames)
    if (theirs == key) return ours;
  return {};
}

std::string joined(const document::Node& list) {
  std::string all;
  for (const document::Node& item : list.items) all += (all.empty() ? "" : "+") + item.text;
  return all;
}

}  // namespace

std::string lora_of_configuration(const document::Node& node, document::Problems& problems) {
  std::string text = node.text;
  const size_t before = problems.count();
  if (node.kind != Kind::map && node.kind != Kind::scalar)
    problems.expected(node, "'lora'", "a map of settings, or a text: rank=16, alpha=32");
  for (const document::Entry& entry : node.entries) {
    const std::string_view name = own_name(entry.key);
    if (name.empty()) {
      std::vector<std::string> known;
      for (const auto& [theirs, ours] : kLoraNames) known.emplace_back(theirs);
      problems.add(entry.place, fmt::format("'lora' has no setting {}", shown_name(entry.key)),
                   did_you_mean(entry.key, known));
      continue;
    }
    const bool list = entry.value.kind == Kind::list;
    if (entry.value.kind != Kind::scalar && !(list && name == "targets")) {
      problems.expected(entry.value, "'" + entry.key + "'", name == "targets" ? "a list of modules" : "one value");
      continue;
    }
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, list ? joined(entry.value) : entry.value.text);
  }
  if (problems.count() > before) return "";
  try {
    parse_lora(text);
  } catch (const Error& e) {
    problems.add(node.span, e.what(), e.notes().empty() ? "" : e.notes().front());
    return "";
  }
  return text;
}

}  // namespace harmonics::engine::cli
