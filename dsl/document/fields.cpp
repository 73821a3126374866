#include "dsl/document/fields.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::document {

namespace {

constexpr size_t kMostProblems = 20;

}  // namespace

void Problems::add(Span place, const std::string& what, const std::string& remedy, ErrorKind kind) {
  Error error(kind, what, place);
  if (!remedy.empty()) error.note(remedy);
  add(error);
}

void Problems::add(const Error& error) {
  errors_.push_back(error);
  if (errors_.size() < kMostProblems) return;
  errors_.back().note(fmt::format("note: stopped after {} errors", kMostProblems));
  throw_any();
}

void Problems::expected(const Node& node, const std::string& name, const std::string& wanted) {
  add(node.span, fmt::format("{} is {}; it must be {}", name, what_is(node), wanted));
}

void Problems::throw_any() {
  if (!errors_.empty()) throw_errors(source_.get(), std::move(errors_));
}

Fields::Fields(const Node& node, Problems& problems, std::string what)
    : node_(node), problems_(problems), what_(std::move(what)) {
  if (node.kind == Kind::list || node.kind == Kind::scalar) problems.expected(node, what_, "a map of keys and values");
}

const Node* Fields::find(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const Node* found = node_.find(key);
  return found && found->kind != Kind::null ? found : nullptr;
}

const Node* Fields::need(const std::string& key) {
  const Node* found = find(key);
  if (!found && (node_.kind == Kind::map || node_.kind == Kind::null)) missing_.push_back(key);
  return found;
}

std::optional<std::string> Fields::text(const std::string& key) {
  const Node* found = find(key);
  if (!found) return {};
  if (found->kind == Kind::scalar && !found->text.empty()) return found->text;
  problems_.expected(*found, "'" + key + "'", "a string");
  return {};
}

std::optional<int64_t> Fields::whole(const std::string& key, int64_t least, int64_t most) {
  const Node* found = find(key);
  if (!found) return {};
  const auto value = whole_of(*found);
  if (value && *value >= least && *value <= most) return value;
  problems_.expected(*found, "'" + key + "'", fmt::format("a whole number of {} to {}", least, most));
  return {};
}

std::optional<double> Fields::real(const std::string& key, double least, double most) {
  const Node* found = find(key);
  if (!found) return {};
  const auto value = real_of(*found);
  if (value && *value >= least && *value <= most) return value;
  problems_.expected(*found, "'" + key + "'", fmt::format("a number of {} to {}", least, most));
  return {};
}

std::optional<bool> Fields::truth(const std::string& key) {
  const Node* found = find(key);
  if (!found) return {};
  const auto value = truth_of(*found);
  if (!value) problems_.expected(*found, "'" + key + "'", "true or false");
  return value;
}

std::optional<std::vector<std::string>> Fields::texts(const std::string& key) {
  const Node* found = find(key);
  if (!found) return {};
  if (found->kind == Kind::scalar) return std::vector<std::string>{found->text};
  if (found->kind != Kind::list) {
    problems_.expected(*found, "'" + key + "'", "a list of strings");
    return {};
  }
  std::vector<std::string> all;
  for (const Node& item : found->items) {
    if (item.kind == Kind::scalar)
      all.push_back(item.text);
    else
      problems_.expected(item, fmt::format("an item of '{}'", key), "a string");
  }
  return all;
}

void Fields::finish() {
  for (const Entry& entry : node_.entries) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    const std::string meant = did_you_mean(entry.key, known_);
    for (const std::string& key : meant_by(entry.key, known_)) {
      problems_.doubt(key);
      missing_.erase(std::remove(missing_.begin(), missing_.end(), key), missing_.end());
    }
    problems_.add(entry.place, fmt::format("{} has the unknown key {}", what_, shown_name(entry.key)),
                  meant.empty() ? "known keys: " + comma_separated(known_) : meant, ErrorKind::Name);
  }
  for (const std::string& key : missing_) {
    problems_.doubt(key);
    problems_.add(node_.span, fmt::format("{} has no '{}'", what_, key));
  }
}

}  // namespace harmonics::engine::document
