#include "engine/bound/all_errors.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

constexpr size_t kMostErrors = 20;

}  // namespace

void refuse(const SourceText& source, std::vector<Error> errors, std::vector<Error> more) {
  for (Error& e : more) errors.push_back(std::move(e));
  errors = in_order_of_text(std::move(errors));
  if (errors.size() > kMostErrors) {
    errors.resize(kMostErrors, errors.front());
    errors.back().note(fmt::format("note: stopped after {} errors", kMostErrors));
  }
  throw SourceErrors(source, std::move(errors));
}

void refuse(const FlowErrors& syntax, std::vector<Error> later) {
  std::erase_if(later, [&](const Error& e) {
    return std::any_of(syntax.errors().begin(), syntax.errors().end(), [&](const Error& other) {
      return other.span().line == e.span().line && other.span().column == e.span().column;
    });
  });
  refuse(*syntax.read().source, syntax.errors(), std::move(later));
}

}  // namespace harmonics::engine
