#include "engine/program/node_scope.hpp"

#include <algorithm>
#include <iterator>

namespace harmonics::engine {

namespace {

constexpr std::string_view kPhaseNames[] = {"forward", "prefill",  "decode",     "loss",
                                            "observe", "gradient", "recomputed", "optimizer"};

constexpr std::string_view kRoundingNames[] = {"none", "fp16", "bf16", "fp8"};

}  // namespace

std::string_view rounding_name(Rounding rounding) { return kRoundingNames[static_cast<size_t>(rounding)]; }

std::optional<Rounding> rounding_named(std::string_view name) {
  const auto at = std::find(std::begin(kRoundingNames), std::end(kRoundingNames), name);
  if (at == std::end(kRoundingNames)) return std::nullopt;
  return static_cast<Rounding>(at - std::begin(kRoundingNames));
}

std::string_view phase_name(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

std::optional<Phase> phase_named(std::string_view name) {
  const auto at = std::find(std::begin(kPhaseNames), std::end(kPhaseNames), name);
  if (at == std::end(kPhaseNames)) return std::nullopt;
  return static_cast<Phase>(at - std::begin(kPhaseNames));
}

std::string NodeScope::text() const {
  const bool plain = phase == Phase::forward && !phase_named(path.substr(0, path.find('/')));
  if (plain) return path;
  return std::string(phase_name(phase)) + (path.empty() ? "" : "/" + path);
}

NodeScope scope_of_text(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const std::optional<Phase> phase = phase_named(text.substr(0, slash));
  if (!phase) return {std::string(text)};
  return {std::string(text.substr(std::min(slash + 1, text.size()))), *phase};
}

}  // namespace harmonics::engine
