#include "dsl/ndsl/faults.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace harmonics::engine::ndsl {

namespace {

constexpr size_t kMostFaults = 20;  // of one text

}  // namespace

void Faults::add(const Place& place, const std::string& what, const std::string& remedy, ErrorKind kind) {
  Error error(kind, what, place.span);
  if (!remedy.empty()) error.note(remedy);
  add(place.source, error);
}

void Faults::add(const std::shared_ptr<const SourceText>& source, const Error& error) {
  if (!source) throw error;
  ++count_;
  auto of = std::find_if(texts_.begin(), texts_.end(), [&](const TextErrors& text) { return text.source == source; });
  if (of == texts_.end()) of = texts_.insert(texts_.end(), {source, {}});
  for (const Error& known : of->errors)
    if (known.span().line == error.span().line && known.span().column == error.span().column &&
        std::string_view(known.what()) == error.what())
      return;
  of->errors.push_back(error);
  if (of->errors.size() < kMostFaults) return;
  of->errors.back().note(fmt::format("note: stopped after {} errors", kMostFaults));
  throw_any();
}

void Faults::throw_any() const { throw_texts(texts_); }

bool Faults::doubts(std::initializer_list<const char*> names) const {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return doubts(std::string(name)); });
}

}  // namespace harmonics::engine::ndsl
