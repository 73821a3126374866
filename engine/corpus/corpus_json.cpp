// The JSON description of a corpus.
#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/corpus/register.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr const char* kPackings[] = {"concatenate", "pack", "pad"};
constexpr const char* kTooLong[] = {"error", "skip", "truncate", "split"};
constexpr const char* kKindWords[] = {"auto", "text", "instruction", "chat", "preference"};

// A JSON object with known members. Throws for unknown ones, with the nearest known name.
class Members {
 public:
  Members(const json::value& value, const std::string& path, std::vector<std::string> known)
      : path_(path), known_(std::move(known)) {
    object_ = value.if_object();
    if (!object_) refuse("is not an object");
    for (const auto& member : *object_) {
      const std::string name(member.key());
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      const std::string meant = did_you_mean(name, known_);
      refuse(fmt::format("has an unknown member '{}'{}", name, meant.empty() ? "" : "; " + meant));
    }
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::Syntax, fmt::format("'{}' {}", path_, what));
  }
  const json::value* find(const char* name) const { return object_->if_contains(name); }
  std::string text(const char* name) const {
    const json::value* value = find(name);
    if (!value) return "";
    if (!value->is_string()) refuse(fmt::format("has no string as '{}'", name));
    return {value->as_string().data(), value->as_string().size()};
  }
  double number(const char* name, double otherwise) const {
    const json::value* value = find(name);
    if (!value) return otherwise;
    if (!value->is_number()) refuse(fmt::format("has no number as '{}'", name));
    return value->to_number<double>();
  }
  bool flag(const char* name) const {
    const json::value* value = find(name);
    if (value && !value->is_bool()) refuse(fmt::format("has neither true nor false as '{}'", name));
    return value && value->as_bool();
  }
  // Returns the index of the member's value among the words; none if the member is missing.
  template <size_t N>
  std::optional<int> word(const char* name, const char* const (&words)[N]) const {
    if (!find(name)) return std::nullopt;
    const std::string given = text(name);
    for (size_t i = 0; i < N; ++i)
      if (given == words[i]) return static_cast<int>(i);
    refuse(fmt::format("has '{}' as '{}'; it is one of {}", given, name,
                       comma_separated(std::vector<std::string>(words, words + N))));
  }

 private:
  const std::string& path_;
  std::vector<std::string> known_;
  const json::object* object_ = nullptr;
};

DatasetOptions dataset_of(const json::value& value, const std::string& path) {
  const Members members(value, path, {"path", "type", "columns", "weight", "learn_prompts"});
  DatasetOptions set;
  set.path = members.text("path");
  if (set.path.empty()) members.refuse("has a data set without 'path'");
  set.kind = static_cast<ExampleKind>(members.word("type", kKindWords).value_or(0));
  if (const json::value* columns = members.find("columns")) {
    if (!columns->is_object()) members.refuse("has no object as 'columns'");
    std::string listed;
    for (const auto& column : columns->as_object()) {
      if (!column.value().is_string()) members.refuse("has a column that is not a string");
      listed += (listed.empty() ? "" : ",") + std::string(column.key()) + ":" +
                std::string(column.value().as_string().data(), column.value().as_string().size());
    }
    set.columns = parse_columns(listed);
  }
  set.weight = members.number("weight", 0);
  if (set.weight < 0) members.refuse("has a weight below 0");
  set.learns_prompts = members.flag("learn_prompts");
  return set;
}

}  // namespace

CorpusOptions parse_corpus_json(std::string_view text, const std::string& path) {
  json::error_code failed;
  const json::value whole = parse_json(text, failed, 8);
  if (failed) throw Error(ErrorKind::Syntax, fmt::format("'{}' is not JSON: {}", path, failed.message()));
  const Members members(whole, path,
                        {"datasets", "tokenizer", "chat_template", "window", "packing", "too_long", "validation",
                         "skip_malformed", "memory"});
  CorpusOptions options;
  const json::value* sets = members.find("datasets");
  if (!sets || !sets->is_array()) members.refuse("has no list 'datasets'");
  for (const json::value& set : sets->as_array()) options.datasets.push_back(dataset_of(set, path));
  options.tokenizer = members.text("tokenizer");
  options.chat_template = members.text("chat_template");
  const double window = members.number("window", 0), memory = members.number("memory", 1 << 30);
  if (!(window >= 1 && window <= 1 << 24)) members.refuse("has no 'window' of 1 to 16777216 tokens");
  if (!(memory >= 1 && memory <= 0x1p60)) members.refuse("has no number of bytes as 'memory'");
  options.window = static_cast<uint64_t>(window);
  options.memory = static_cast<uint64_t>(memory);
  if (const auto packing = members.word("packing", kPackings)) options.packing = static_cast<RowPacking>(*packing);
  options.too_long = static_cast<TooLong>(members.word("too_long", kTooLong).value_or(1));
  options.validation = members.number("validation", 0);
  options.skip_malformed = members.flag("skip_malformed");
  return options;
}

std::string corpus_json(const CorpusOptions& options) {
  json::array sets;
  for (const DatasetOptions& set : options.datasets) {
    json::object one{{"path", set.path}, {"type", example_kind_name(set.kind)}};
    json::object columns;
    for (const auto& [name, field] : set.columns) columns[name] = field;
    if (!columns.empty()) one["columns"] = std::move(columns);
    if (set.weight > 0) one["weight"] = set.weight;
    if (set.learns_prompts) one["learn_prompts"] = true;
    sets.push_back(std::move(one));
  }
  json::object whole{{"datasets", std::move(sets)}, {"tokenizer", options.tokenizer}, {"window", options.window}};
  if (!options.chat_template.empty()) whole["chat_template"] = options.chat_template;
  if (options.packing) whole["packing"] = kPackings[static_cast<int>(*options.packing)];
  whole["too_long"] = kTooLong[static_cast<int>(options.too_long)];
  if (options.validation > 0) whole["validation"] = options.validation;
  if (options.skip_malformed) whole["skip_malformed"] = true;
  whole["memory"] = options.memory;
  return json::serialize(whole) + "\n";
}

}  // namespace harmonics::engine
